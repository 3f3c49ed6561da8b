"""Library kernels of operators: options of every workload that has the operator, checked like any other."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
import pytest
from numba import types

import autotune
from autotune import library, te
from autotune.compiler import distinct_workloads, divide
from autotune.errors import ArtifactError, BuildError, GraphError, UsageError
from autotune.graph import ops
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import TensorType
from autotune.graph.ops import registry
from autotune.graph.region import Workload
from autotune.operators import Attribute, check, define
from autotune.passes.options import DIRECT, Option, allowed, options_of
from autotune.passes.preference import Preference
from autotune.runtime.artifacts import artifact
from search_spaces.spaces import space_for
from tests.search_spaces import workloads as make

pytestmark = pytest.mark.registers

_FLOATS = types.CPointer(types.float32)


@numba.cfunc(types.void(_FLOATS, _FLOATS, types.int64, types.float64))  # type: ignore[untyped-decorator]
def fast_snake(out, x, count, alpha):  # type: ignore[no-untyped-def]
    for i in range(count):
        sine = np.sin(alpha * x[i])
        out[i] = x[i] + sine * sine / alpha


def snake_numbers(operands: Sequence[TensorType], attrs: Mapping[str, Any]) -> tuple[int, float]:
    return operands[0].size, attrs["alpha"]


def snake_reference(arrays: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any]:
    (x,) = arrays
    alpha = x.dtype.type(attrs["alpha"])
    return [x + np.sin(alpha * x) ** 2 / alpha]


def snake_expressions(tensors: Any, attrs: Mapping[str, Any], names: Sequence[str]) -> list[te.Tensor]:
    (x,), alpha = tensors, te.const(attrs["alpha"], "float32")
    sines = te.compute(x.shape, lambda *i: te.sin(alpha * x(*i)), name=f"{names[0]}.sines")
    return [te.compute(x.shape, lambda *i: x(*i) + sines(*i) * sines(*i) / alpha, name=names[0])]


SNAKE = {"reference": snake_reference, "attributes": {"alpha": Attribute("float", 1.0)}}


@pytest.fixture
def offer() -> Iterator[Callable[..., None]]:
    """Registers kernels until the test ends."""
    names = []

    def register(name: str, function: Any, **options: Any) -> None:
        library.register(name, function, **options)
        names.append((name, options.get("dtype", "float32")))

    yield register
    for name, dtype in names:
        library.unregister(name, dtype)
    for op in [name for name in registry._REGISTRY if name.startswith("com.test.")]:
        del registry._REGISTRY[op]


def by_reference(op: str, inputs: Sequence[TensorType], attrs: Mapping[str, Any]) -> Any:
    """A C pointer to a function that computes an operator as its reference does."""
    definition = ops.get(op)
    complete = definition.canonical(inputs, attrs)
    results = definition.infer_rule(inputs, complete)

    def compute(*pointers: int) -> None:
        arrays = [
            np.frombuffer((ctypes.c_uint8 * t.nbytes).from_address(p), t.dtype).reshape(t.shape)
            for p, t in zip(pointers, (*results, *inputs), strict=True)
        ]
        given = arrays[len(results) :]
        for out, value in zip(arrays, definition.reference(given, complete), strict=False):
            out[...] = value

    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(results) + len(inputs)))(compute)
    return SimpleNamespace(address=ctypes.cast(function, ctypes.c_void_p).value, function=function)


def agree(option: Option) -> list[str]:
    """Machine code of each dispatch computes what its reference does; returns the operators."""
    for region in option.regions:
        space = space_for(region, make.host())
        for computed, expected in zip(*make.run(space, space.default()), strict=True):
            np.testing.assert_allclose(computed, expected, rtol=1e-6, atol=1e-6)
    return [node.op for region in option.regions for node in region.region.graph.nodes]


def normal(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


EVERY_KIND: Mapping[str, tuple[str, list[Any], dict[str, Any]]] = {
    "elementwise": ("Add", [normal(4, 6), normal(4, 6)], {}),
    "softmax": ("Softmax", [normal(4, 6)], {"axis": 1}),
    "reduction": ("ReduceSum", [normal(4, 6)], {"axes": (0,), "keepdims": 0}),
    "normalization": ("LayerNormalization", [normal(4, 6), normal(6), normal(6)], {"axis": 1}),
    "contraction": ("MatMul", [normal(4, 6), normal(6, 5)], {}),
    "convolution": ("Conv", [normal(1, 5, 6, 3), normal(3, 3, 3, 4)], {"layout": "NHWC"}),
    "pool": ("MaxPool", [normal(1, 5, 6, 3)], {"kernel_shape": (2, 2), "layout": "NHWC"}),
    "movement": ("Gather", [normal(4, 6), np.array([2, 0, 1])], {"axis": 0}),
    "sequential": ("CumSum", [normal(4, 6)], {"axis": 1}),
}


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_kernel_serves_an_operator_of_any_kind(kind: str, offer: Callable[..., None]) -> None:
    op, arrays, attrs = EVERY_KIND[kind]
    b = GraphBuilder("one")
    inputs = [b.input(f"x{n}", a.shape, str(a.dtype)) for n, a in enumerate(arrays)]
    (workload,) = distinct_workloads(divide(b.graph(b.node(op, *inputs, name="y", **attrs))))
    function = by_reference(op, [TensorType.of(a) for a in arrays], attrs)
    offer("theirs", function, operation=op, arguments=lambda types, attrs: ())
    assert agree(allowed(workload, Preference(algorithm="kernel theirs"))[0]) == [
        "autotune.library.float32.theirs"
    ]


def test_an_option_beside_the_direct_one(offer: Callable[..., None]) -> None:
    define("com.test.Snake", compute=snake_expressions, **SNAKE)
    offer("fast_snake", fast_snake, operation="com.test.Snake", arguments=snake_numbers, error=1e-6)
    workload = Workload.parse("""region wave {
      input i0: float32[4, 6]
      v0 = Sqrt(i0) : float32[4, 6]
      v1 = com.test.Snake(v0) {alpha=0.5} : float32[4, 6]
      output v1
    }""")
    direct, kernel = options_of(workload)
    assert (direct.name, kernel.name, kernel.error, kernel.speculative) == (
        DIRECT,
        "kernel fast_snake",
        1e-6,
        True,
    )
    ours = kernel.regions[-1]
    assert ours.kind == "sequential"
    assert Workload.parse(ours.text).key == ours.key
    assert [o.name for o in options_of(workload, speculative=False)] == [DIRECT]
    assert [o.name for o in options_of(workload, tolerance=1e-7)] == [DIRECT]
    double = Workload.parse(workload.text.replace("float32", "float64"))
    assert [o.name for o in options_of(double)] == [DIRECT]
    assert agree(kernel) == ["Sqrt", "autotune.library.float32.fast_snake"]
    assert len(check(ops.get("com.test.Snake"), normal(4, 6), alpha=0.5)) == 1


def test_what_a_kernel_cannot_compute_it_says(offer: Callable[..., None]) -> None:
    def numbers(types: Any, attrs: Mapping[str, Any]) -> tuple[float, ...] | None:
        return (1, 1.0) if attrs["axis"] == 1 else None

    offer("rows", fast_snake, operation="Softmax", arguments=numbers)
    text = "region r {{\n  input i0: float32[4, 6]\n  v0 = Softmax(i0) {{axis={}}} : float32[4, 6]\n  output v0\n}}"
    assert [o.name for o in options_of(Workload.parse(text.format(1)))] == [DIRECT, "kernel rows"]
    assert [o.name for o in options_of(Workload.parse(text.format(0)))] == [DIRECT]


@numba.cfunc(types.void(_FLOATS, _FLOATS, _FLOATS, types.int64, types.int64))  # type: ignore[untyped-decorator]
def centred(out, means, x, rows, columns):  # type: ignore[no-untyped-def]
    for i in range(rows):
        total = np.float32(0)
        for j in range(columns):
            total += x[i * columns + j]
        means[i] = total / columns
        for j in range(columns):
            out[i * columns + j] = x[i * columns + j] - means[i]


def centred_reference(arrays: Sequence[Any], _: Mapping[str, Any]) -> list[Any]:
    means = arrays[0].mean(-1)
    return [arrays[0] - means[:, None], means]


def centred_types(operands: Sequence[Any], _: Mapping[str, Any]) -> list[TensorType]:
    return [operands[0].dense, TensorType(operands[0].shape[:1], operands[0].dtype)]


def test_an_operator_that_a_kernel_alone_computes(offer: Callable[..., None]) -> None:
    """A shape rule, a reference and a function with two results of different shapes: no tensor expressions."""
    op = define("com.test.Centred", kind="sequential", infer=centred_types, reference=centred_reference)
    x = normal(5, 8)
    with pytest.raises(
        GraphError, match=r"com\.test\.Centred has no tensor expressions, and no library kernel"
    ):
        check(op, x)
    offer("centred", centred, operation="com.test.Centred", arguments=lambda types, attrs: types[0].shape)
    out, means = check(op, x)
    np.testing.assert_allclose(out.sum(-1), 0, atol=1e-5)
    assert means.shape == (5,)


def test_a_wrong_kernel_is_found(offer: Callable[..., None]) -> None:
    op = define("com.test.Snake", compute=snake_expressions, **SNAKE)
    offer("wrong_snake", fast_snake, operation=op.name, arguments=lambda types, attrs: (types[0].size, 3.0))
    with pytest.raises(GraphError, match="Snake: result 0 by kernel wrong_snake differs from its reference"):
        check(op, normal(4, 6), alpha=0.5)


def test_an_artifact_lists_its_kernels(offer: Callable[..., None], tmp_path: Path) -> None:
    op = define("com.test.Only", kind="sequential", **SNAKE)
    offer("only_snake", fast_snake, operation=op.name, arguments=snake_numbers)
    b = GraphBuilder("wave")
    module = autotune.compile(
        b.graph(b.node(op.name, b.input("x", (4, 6), "float32"), name="y", alpha=2.0)), threads=1
    )
    artifact.save(module.image, tmp_path / "wave.atm")
    np.testing.assert_allclose(autotune.load(tmp_path / "wave.atm")(normal(4, 6))[0], module(normal(4, 6))[0])
    library.unregister("only_snake")
    with pytest.raises(
        ArtifactError, match="library kernel only_snake for float32 is not registered in this process"
    ):
        autotune.load(tmp_path / "wave.atm")


def test_refusals(offer: Callable[..., None]) -> None:
    with pytest.raises(UsageError, match="a kernel of an operator, and no other, says by arguments= which"):
        library.register("mine", fast_snake, operation="Softmax")
    with pytest.raises(UsageError, match="a kernel of an operator, and no other"):
        library.register("mine", fast_snake, arguments=snake_numbers)
    with pytest.raises(UsageError, match="no dtype 'float31'"):
        library.register("mine", fast_snake, operation="Softmax", dtype="float31", arguments=snake_numbers)
    offer("mine", fast_snake, operation="Sofmax", arguments=snake_numbers)
    with pytest.raises(
        GraphError, match="library kernel mine: unknown operator 'Sofmax'; did you mean 'Softmax'"
    ):
        options_of(
            Workload.parse("region r {\n  input i0: float32[4]\n  v0 = Relu(i0) : float32[4]\n  output v0\n}")
        )
    with pytest.raises(BuildError, match="library kernel gone for float32 is not registered in this process"):
        ops.get("autotune.library.float32.gone")


MODULE = """
import numba
import numpy as np
from numba import types

from autotune import library, te
from autotune.operators import define

floats = types.CPointer(types.float32)


@numba.cfunc(types.void(floats, floats, types.int64, types.int64))
def prefix(out, x, rows, columns):
    for i in range(rows):
        total = types.float32(0)
        for j in range(columns):
            total += x[i * columns + j]
            out[i * columns + j] = total


def expressions(tensors, attrs, names):
    (x,) = tensors
    k = te.reduce_axis((0, x.shape[-1]), name="k")
    return [te.compute(x.shape, lambda i, j: te.sum(te.if_then_else(k <= j, x[i, k], 0.0), axis=k), name=names[0])]


library.register(
    "prefix", prefix, operation="com.test.Prefix", arguments=lambda types, attrs: types[0].shape, error=2e-5
)
define(
    "com.test.Prefix",
    kind="reduction",
    reference=lambda arrays, attrs: [np.cumsum(arrays[0], axis=-1)],
    compute=expressions,
)
"""


@pytest.mark.slow
def test_a_job_finds_a_kernel_that_is_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of all elements before each one are quadratic as a reduction, and linear in the function."""
    (tmp_path / "prefix_for_test.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}")
    for name in ("AUTOTUNE_KERNELS", "AUTOTUNE_OPERATORS"):
        monkeypatch.setenv(name, "prefix_for_test")
    b = GraphBuilder("sums")
    graph = b.graph(b.node("com.test.Prefix", b.input("x", (64, 512), "float32"), name="y"))
    untuned = autotune.compile(graph, threads=1)
    assert [d.name for d in untuned.image.dispatches] == ["000_com.test.prefix"]
    database = tmp_path / "tuning.db"
    autotune.tune(graph, budget=autotune.Budget(trials=6), database=database, threads=1, quiet=True)
    tuned = autotune.compile(graph, database=database, threads=1)
    assert [d.name for d in tuned.image.dispatches] == [
        "000_com.test.prefix/000_autotune.library.float32.prefix"
    ]
    x = normal(64, 512)
    np.testing.assert_allclose(tuned(x)[0], np.cumsum(x, -1), atol=1e-4)
    library.unregister("prefix")
    del registry._REGISTRY["com.test.Prefix"]
