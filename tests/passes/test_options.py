"""Options of a workload: which there are, and that putting one in a model's place changes no number."""

import numpy as np
import pytest

from autotune.compiler import distinct_workloads, divide
from autotune.errors import UsageError
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.graph.region import Workload
from autotune.passes.options import DIRECT, Option, allowed, options_of
from autotune.passes.partition import Partition
from autotune.passes.preference import Preference
from autotune.passes.substitute import substitute

STEPS = ["winograd F(2x2)", "winograd F(4x4)", "winograd F(6x6)"]
FUSED = [f"{STEPS[number]} fused" for number in (1, 0, 2)]
"""The first is estimated, the others are speculative."""
NAMES = [DIRECT, *STEPS, *FUSED, "implicit GEMM"]


def algorithms(workload: Workload) -> list[Option]:
    """All options but those of fusion: channels last, a convolution of a model reads what was transposed."""
    return [option for option in options_of(workload) if option.name != "producers apart"]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def fire() -> Graph:
    """Two convolutions written into one Concat, after one that is used twice."""
    b = GraphBuilder("fire")
    x = b.node("Conv", b.input("x", (1, 6, 9, 11)), b.constant("w0", normal(6, 6, 3, 3)), pads=(1, 1, 1, 1))
    x = b.node("Relu", x)
    left = b.node("Relu", b.node("Conv", x, b.constant("w1", normal(4, 6, 1, 1))))
    right = b.node("Conv", x, b.constant("w2", normal(5, 6, 3, 3)), pads=(1, 1, 1, 1))
    return b.graph(b.node("Concat", left, right, axis=1, name="y"))


def run(parts: Partition, x: np.ndarray) -> np.ndarray:
    """Every dispatch in NumPy, in the memory that its placements say."""
    memory = {**parts.constants, parts.inputs[0]: x}
    flat = {name: np.ascontiguousarray(array).reshape(-1) for name, array in memory.items()}

    def view(value: str, shape: tuple[int, ...]) -> np.ndarray:
        place = parts.placements[value]
        root = flat.setdefault(place.root, np.zeros(parts.types[place.root].size, np.float32))
        strides = [s * root.itemsize for s in place.strides]
        return np.lib.stride_tricks.as_strided(root[place.offset :], shape, strides)

    for dispatch in parts.dispatches:
        graph = dispatch.workload.region.graph
        arrays = [view(v, graph.type_of(i).shape) for v, i in zip(dispatch.inputs, graph.inputs, strict=True)]
        results = dispatch.workload.reference(arrays)
        for value, result in zip(dispatch.outputs, results, strict=True):
            view(value, result.shape)[...] = result
    return view(parts.outputs[0], parts.types[parts.outputs[0]].shape).copy()


def test_a_convolution_of_3x3_has_eight_ways():
    found = {w.kind: [a.name for a in algorithms(w)] for w in distinct_workloads(divide("zoo:mlp"))}
    assert found == {"contraction": [DIRECT]}
    workload = divide(fire()).dispatches[0].workload
    assert [a.name for a in algorithms(workload)] == NAMES
    direct, *others = algorithms(workload)
    assert direct.regions == (workload,)
    for other in others:
        kinds = [region.kind for region in other.regions]
        assert kinds.count("chain" if other.name in FUSED else "contraction") == 1
        assert other.error > direct.error == 0


@pytest.mark.parametrize("name", NAMES[1:])
def test_a_model_computes_the_same_by_any(name):
    graph = fire()
    parts = divide(graph)
    chosen = {w.key: allowed(w, Preference(algorithm=name))[0] for w in distinct_workloads(parts)}
    other = substitute(parts, chosen)
    assert other.dispatches != parts.dispatches
    x = normal(1, 6, 9, 11)
    (expected,) = evaluate.run(graph, {"x": x}).values()
    np.testing.assert_allclose(run(other, x), expected, rtol=1e-3, atol=1e-3)
    assert set(other.constants) == {v for d in other.dispatches for v in d.inputs} & set(other.constants)


def residual_1x1(size: tuple[int, ...], stride: int) -> Graph:
    """A 1x1 convolution with bias, residual and ReLU, channels first as in ONNX."""
    b, rank = GraphBuilder("pointwise"), len(size)
    x, w = b.input("x", (2, 6, *size)), b.constant("w", normal(5, 6, *(1,) * rank))
    y = b.node("Conv", x, w, b.constant("bias", normal(5)), strides=(stride,) * rank)
    residual = b.constant("r", normal(*b.type_of(y).shape))
    return b.graph(b.node("Relu", b.node("Add", y, residual), name="y"))


@pytest.mark.parametrize("size", [(9,), (5, 7), (3, 4, 5)])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_a_1x1_convolution_is_a_product_with_what_follows_it(size, stride):
    graph = residual_1x1(size, stride)
    parts = divide(graph)
    preference = Preference(algorithm="matrix product")
    chosen = {w.key: allowed(w, preference)[0] for w in distinct_workloads(parts)}
    (product,) = [a for a in chosen.values() if a.name == "matrix product"]
    # The layout changes, and pixels are picked, before the product; all that follows is in it.
    assert [r.kind for r in product.regions] == ["elementwise"] * (1 + (stride > 1)) + ["contraction"]
    x = normal(2, 6, *size)
    (expected,) = evaluate.run(graph, {"x": x}).values()
    np.testing.assert_allclose(run(substitute(parts, chosen), x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "pads", "names"),
    [("float32", (1, 1, 1, 1), [DIRECT, "implicit GEMM"]), ("float16", (0, 0, 0, 0), [DIRECT])],
)
def test_padding_and_short_types_are_no_products(dtype, pads, names):
    b = GraphBuilder("no")
    w = b.constant("w", normal(4, 6, 1, 1).astype(dtype))
    y = b.node("Conv", b.input("x", (1, 6, 4, 4), dtype), w, pads=pads)
    for workload in distinct_workloads(divide(b.graph(b.node("Relu", y, name="y")))):
        found = [a.name for a in algorithms(workload)]
        assert found == (names if workload.kind == "convolution" else [DIRECT])


def test_without_a_choice_nothing_changes():
    parts = divide(fire())
    assert substitute(parts, {}) is parts


def test_what_is_not_exact_enough_is_not_allowed():
    workload = divide(fire()).dispatches[0].workload
    assert [a.name for a in allowed(workload, Preference(0.0))] == [DIRECT]
    assert [a.name for a in allowed(workload, Preference(1e-5))] == NAMES[:2]
    everything = allowed(workload, Preference(1e-5), speculative=True)
    assert [a.name for a in everything] == [*NAMES[:2], FUSED[1], NAMES[-1], "producers apart"]
    with pytest.raises(UsageError, match=r"tolerance -1; allowed: 0 \(exact algorithms only\) or more"):
        Preference(-1)


def test_errors_are_within_what_is_declared():
    workload = divide(fire()).dispatches[0].workload
    arrays = workload.random_inputs(0)
    exact = workload.reference(arrays)[0].astype(np.float64)
    fixed = workload.region.constant_inputs
    for option in algorithms(workload)[1:]:
        names = workload.region.graph.inputs
        given = {v: a for v, a in zip(names, arrays, strict=True) if v in fixed}
        values = dict(zip(names, arrays, strict=True)) | option.constants(given)
        assert option.steps is not None
        for step in option.steps.dispatches:
            graph = step.workload.region.graph
            shapes = [graph.type_of(v).shape for v in graph.inputs]
            read = [
                values_of(option.steps, values, v).reshape(s)
                for v, s in zip(step.inputs, shapes, strict=True)
            ]
            values.update(zip(step.outputs, step.workload.reference(read), strict=True))
        result = values[option.steps.dispatches[-1].outputs[0]].reshape(exact.shape)
        assert np.abs(result - exact).max() / np.abs(exact).max() < option.error


def values_of(parts: Partition, values: dict[str, np.ndarray], value: str) -> np.ndarray:
    return values[value] if value in values else values[parts.placements[value].root]
