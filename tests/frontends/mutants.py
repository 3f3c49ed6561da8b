"""Mutants of ONNX models: real models with a few things changed that a file may well have wrong."""

from __future__ import annotations

import contextlib
import random
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, helper, numpy_helper

from autotune.errors import ModelImportError
from autotune.frontends import zoo_built
from autotune.frontends.model_builder import ModelBuilder
from autotune.frontends.onnx.importer import load

Mutation = Callable[[random.Random, Any], None]

INTEGERS = (0, 1, -1, 2, 3, -2, 5, 7, 64, 1 << 20, 1 << 31, -(1 << 31), 1 << 40, (1 << 62) + 3, -(1 << 63))
FLOATS = (0.0, -1.0, 1e-30, 1e38, float("inf"), float("-inf"), float("nan"), 0.5)
DTYPES = (1, 2, 3, 5, 6, 7, 9, 10, 11, 16, 12, 13, 8, 0, 99)
MAX_NODE_CASE_ELEMENTS = 1 << 14
_IMPOSSIBLE = (ValueError, TypeError, OverflowError, KeyError)
"""The errors of onnx's helpers for a model that another mutation has damaged already."""


@cache
def seeds() -> tuple[Any, ...]:
    """Small models: nets of several layers, and ONNX's own cases of single operators."""
    nets = [
        zoo_built.tiny_cnn(),
        zoo_built.mlp(batch=2, sizes=(8, 16, 4)),
        zoo_built.encoder(layers=1, width=16, heads=2, sequence=6, hidden=32),
        zoo_built.mobilenetv2(size=32),
        *(build() for build in (_indexing, _shapes, _arithmetic, _windows)),
    ]
    return (*nets, *_node_cases())


@cache
def small_seeds() -> tuple[Any, ...]:
    """Those that compile within a moment; no collecting of ONNX's cases."""
    return tuple(build() for build in (_indexing, _shapes, _arithmetic, _windows))


def _node_cases() -> list[Any]:
    """The cases of one operator; integers and scalars, which are often parameters, as constants."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    found = []
    for case in cases:
        given = [array for array in case.data_sets[0][0] if isinstance(array, np.ndarray | np.generic)]
        if len(given) != len(case.model.graph.input) or sum(a.size for a in given) > MAX_NODE_CASE_ELEMENTS:
            continue
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        for opset in model.opset_import:
            opset.version = min(opset.version, 23) if not opset.domain else opset.version
        for declared, array in zip(model.graph.input, map(np.asarray, given), strict=True):
            if array.dtype.kind == "i" or array.ndim == 0:
                model.graph.initializer.append(numpy_helper.from_array(array, declared.name))
        if _imports(model):
            found.append(model)
    return found


def _imports(model: Any) -> bool:
    try:
        load(model)
    except ModelImportError:  # an operator or element type that is not supported
        return False
    return True


def _indexing() -> Any:
    b = ModelBuilder("indexing", seed=1)
    table, ids = b.normal("table", (11, 6), 1.0), b.input("ids", (2, 3), "int64")
    x = b.node("Gather", [table, ids], "rows", axis=0)
    part = [b.constant(n, np.array(v)) for n, v in (("from", [1, -3]), ("to", [3, 99]), ("axes", [1, 2]))]
    y = b.node("Slice", [x, *part], "part")
    y = b.node("Pad", [y, b.constant("pads", np.array([0, 1, 0, 0, 1, 2]))], "padded")
    b.nodes("Split", [y], ["left", "right"], axis=1)
    joined = b.node("Concat", ["left", "right", y], "joined", axis=-2)
    first = b.node("Transpose", [joined], "turned", perm=[0, 2, 1])
    return b.finish([first, b.node("Trilu", [y], "lower", upper=0)])


def _shapes() -> Any:
    b = ModelBuilder("shapes", seed=2)
    x = b.input("x", (2, 3, 4))
    sizes = b.node("Shape", [x], "sizes")
    last = b.node("Gather", [sizes, b.constant("two", np.array([2]))], "last")
    shape = b.node("Concat", [b.constant("minus", np.array([-1])), last], "shape", axis=0)
    flat = b.node("Reshape", [x, shape], "flat")
    filled = b.node(
        "ConstantOfShape", [last], "filled", value=numpy_helper.from_array(np.ones(1, np.float32))
    )
    bounds = [b.constant(n, np.array(v, np.float32)) for n, v in (("start", 0), ("limit", 4), ("delta", 1))]
    steps = b.node("Range", bounds, "steps")
    total = b.node("Add", [b.node("Mul", [flat, filled], "scaled"), steps], "total")
    wide = b.node("Unsqueeze", [total, b.constant("at", np.array([1]))], "wide")
    grown = b.node("Expand", [wide, b.constant("grown_to", np.array([6, 2, 4]))], "grown")
    less = b.node("Squeeze", [wide, b.constant("from_axis", np.array([1]))], "less")
    return b.finish(
        [b.node("Tile", [grown, b.constant("times", np.array([1, 2, 1]))], "tiled"), less, "sizes"]
    )


def _arithmetic() -> Any:
    b = ModelBuilder("arithmetic", seed=3)
    x, y = b.input("x", (3, 8)), b.input("y", (8,))
    z = b.node("Pow", [b.node("Abs", [b.node("Sub", [x, y], "d")], "m"), b.constant("e", np.float32(2))], "p")
    z = b.node("Clip", [z, b.constant("low", np.float32(0)), b.constant("high", np.float32(6))], "c")
    whole = b.node("Cast", [z], "whole", to=7)
    rest = b.node("Mod", [whole, b.constant("three", np.array([3]))], "rest")
    best = b.node("ArgMax", [z], "best", axis=-1)
    mean = b.node("ReduceMean", [z], "mean", axes=[-1])
    norm = b.node("Softmax", [b.node("Where", [b.node("Less", [x, y], "less"), x, z], "w")], "s", axis=-1)
    scaled = b.node("Gemm", [norm, b.normal("g", (8, 5), 1.0), b.normal("h", (5,), 1.0)], "out", alpha=0.5)
    return b.finish([scaled, rest, best, mean])


def _windows() -> Any:
    b = ModelBuilder("windows", seed=4)
    x = b.input("x", (1, 4, 9, 7))
    w = b.normal("w", (8, 2, 3, 3), 0.3)
    y = b.node(
        "Conv", [x, w, b.normal("bias", (8,), 0.3)], "conv", group=2, pads=[1, 1, 1, 1], strides=[2, 1]
    )
    ones = [b.constant(f"k{i}", np.ones(8, np.float32)) for i in range(4)]
    y = b.node("BatchNormalization", [y, *ones], "bn", epsilon=1e-3)
    y = b.node("MaxPool", [b.node("Relu", [y], "relu")], "pool", kernel_shape=[2, 2], auto_pad="SAME_UPPER")
    y = b.node("ConvTranspose", [y, b.normal("v", (8, 4, 2, 2), 0.3)], "up", strides=[2, 2])
    y = b.node("AveragePool", [y], "mean", kernel_shape=[3, 3], ceil_mode=1, strides=[2, 2])
    return b.finish([b.node("Flatten", [b.node("GlobalAveragePool", [y], "global")], "flat")])


def mutant(seed: int, models: Sequence[Any]) -> bytes:
    """The bytes of a mutant: a function of its seed and the models."""
    rng = random.Random(seed)
    model = onnx.ModelProto()
    model.CopyFrom(rng.choice(models[:8]) if rng.random() < 0.3 else rng.choice(models))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        with contextlib.suppress(*_IMPOSSIBLE):
            rng.choice(MUTATIONS)(rng, model)
    data = bytearray(model.SerializeToString())
    if rng.random() < 0.08:
        _damage(rng, data)
    return bytes(data)


def _damage(rng: random.Random, data: bytearray) -> None:
    """Cut the file short, or change some of its bytes."""
    if rng.random() < 0.3:
        del data[rng.randrange(len(data)) :]
    for _ in range(rng.choice((0, 1, 4))):
        if data:
            data[rng.randrange(len(data))] = rng.randrange(256)


def _node(rng: random.Random, model: Any) -> Any:
    return rng.choice(model.graph.node) if model.graph.node else onnx.NodeProto()


def _values(model: Any) -> list[str]:
    made = [v for node in model.graph.node for v in node.output]
    return ["", *(v.name for v in (*model.graph.input, *model.graph.initializer)), *made]


def _change_attribute(rng: random.Random, model: Any) -> None:
    node = _node(rng, model)
    if not node.attribute:
        _add_attribute(rng, model)
        return
    attribute = rng.choice(node.attribute)
    if attribute.type == AttributeProto.INT:
        attribute.i = rng.choice((attribute.i + 1, attribute.i - 1, -attribute.i, *INTEGERS))
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = rng.choice(FLOATS)
    elif attribute.type == AttributeProto.STRING:
        attribute.s = rng.choice((b"", b"SAME_LOWER", b"VALID", b"edge", b"reflect", b"\xff\xfe", b"tanh"))
    elif attribute.type == AttributeProto.INTS:
        _change_list(rng, attribute.ints)
    elif attribute.type == AttributeProto.TENSOR:
        _change_tensor(rng, attribute.t)


def _change_list(rng: random.Random, items: Any) -> None:
    kind = rng.randrange(4)
    if kind == 0 and items:
        del items[rng.randrange(len(items))]
    elif kind == 1 or not items:
        items.append(rng.choice(INTEGERS))
    else:
        at = rng.randrange(len(items))
        items[at] = rng.choice((items[at] + 1, items[at] - 1, -items[at], *INTEGERS)) % (1 << 63)
        items[at] = -items[at] if rng.random() < 0.2 else items[at]


def _drop_attribute(rng: random.Random, model: Any) -> None:
    node = _node(rng, model)
    if node.attribute:
        del node.attribute[rng.randrange(len(node.attribute))]


def _add_attribute(rng: random.Random, model: Any) -> None:
    """One of the operator's own, of any kind of value."""
    node = _node(rng, model)
    names = list(onnx.defs.get_schema(node.op_type).attributes) if onnx.defs.has(node.op_type) else []
    value = rng.choice(
        (rng.choice(INTEGERS), rng.choice(FLOATS), "text", [1, 2], [rng.choice(INTEGERS)], [0.5])
    )
    node.attribute.append(helper.make_attribute(rng.choice([*names, "nothing"]), value))


def _change_inputs(rng: random.Random, model: Any) -> None:
    node = _node(rng, model)
    kind = rng.randrange(5)
    if kind == 0 and node.input:
        del node.input[rng.randrange(len(node.input))]
    elif kind == 1:
        node.input.append(rng.choice(_values(model)))
    elif kind == 2 and len(node.input) > 1:
        a, b = rng.sample(range(len(node.input)), 2)
        node.input[a], node.input[b] = node.input[b], node.input[a]
    elif node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice((*_values(model), "unknown"))


def _change_outputs(rng: random.Random, model: Any) -> None:
    node = _node(rng, model)
    kind = rng.randrange(3)
    if kind == 0 and node.output:
        del node.output[rng.randrange(len(node.output))]
    elif kind == 1:
        node.output.append(rng.choice((*_values(model), "another")))
    elif node.output:
        node.output[0] = rng.choice(_values(model))


def _change_operator(rng: random.Random, model: Any) -> None:
    operators = [n.op_type for seed in small_seeds() for n in seed.graph.node]
    node = _node(rng, model)
    node.op_type = rng.choice(
        (*operators, "GatherElements", "Interleave", "Nothing", "Neg", "MatMul", "Loop")
    )


def _change_dims(rng: random.Random, dims: Any) -> None:
    kind = rng.randrange(6)
    if kind == 0 and dims:
        del dims[rng.randrange(len(dims))]
    elif kind == 1:
        dims.append(rng.choice((0, 1, 2, 3)))
    elif dims:
        at = rng.randrange(len(dims))
        dims[at] = rng.choice((0, 0, 1, 2, dims[at] + 1, dims[at] - 1, rng.choice(INTEGERS)))


def _change_input_shape(rng: random.Random, model: Any) -> None:
    if model.graph.input:
        shape = rng.choice(model.graph.input).type.tensor_type.shape
        dims = [d.dim_value for d in shape.dim]
        _change_dims(rng, dims)
        del shape.dim[:]
        for extent in dims:
            shape.dim.add().dim_value = extent


def _change_input_dtype(rng: random.Random, model: Any) -> None:
    if model.graph.input:
        rng.choice(model.graph.input).type.tensor_type.elem_type = rng.choice(DTYPES)


def _change_all_dtypes(rng: random.Random, model: Any) -> None:
    """float32 becomes another type everywhere: as legal as it was, often."""
    wanted = rng.choice((10, 11, 16))
    for declared in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        if declared.type.tensor_type.elem_type == 1:
            declared.type.tensor_type.elem_type = wanted
    for tensor in model.graph.initializer:
        if tensor.data_type == 1:
            array = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(wanted))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _change_tensor(rng: random.Random, tensor: Any) -> None:
    kind = rng.randrange(5)
    if kind == 0:
        _change_dims(rng, tensor.dims)
    elif kind == 1:
        tensor.data_type = rng.choice(DTYPES)
    elif kind == 2:
        tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data) + 1)]
    elif kind == 3:
        _change_elements(rng, tensor)
    else:
        _change_size(rng, tensor)


def _change_elements(rng: random.Random, tensor: Any) -> None:
    """Another value: of integers, which are often shapes or axes, perhaps a huge one."""
    array = numpy_helper.to_array(tensor).copy()
    if array.size and array.dtype.kind in "iuf":
        wide = array.dtype.itemsize == 8 or array.dtype.kind == "f"
        choices = FLOATS if array.dtype.kind == "f" else INTEGERS if wide else INTEGERS[:8]
        with np.errstate(all="ignore"):
            array.reshape(-1)[rng.randrange(array.size)] = np.asarray(rng.choice(choices)).astype(array.dtype)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _change_size(rng: random.Random, tensor: Any) -> None:
    """Another shape, with data to match."""
    array = numpy_helper.to_array(tensor)
    dims = [min(d, 64) for d in array.shape]
    _change_dims(rng, dims)
    shape = [abs(d) % 70 for d in dims]
    tensor.CopyFrom(numpy_helper.from_array(np.resize(array, shape).astype(array.dtype), tensor.name))


def _change_initializer(rng: random.Random, model: Any) -> None:
    if model.graph.initializer:
        _change_tensor(rng, rng.choice(model.graph.initializer))


def _change_graph_outputs(rng: random.Random, model: Any) -> None:
    """Any value may be an output: constants, inputs, one twice."""
    name = rng.choice((*_values(model)[1:], "unknown"))
    if rng.random() < 0.5 and model.graph.output:
        model.graph.output[0].name = name
        model.graph.output[0].ClearField("type")
    else:
        model.graph.output.add().name = name


def _duplicate(rng: random.Random, model: Any) -> None:
    items = rng.choice((model.graph.node, model.graph.input, model.graph.initializer, model.graph.output))
    if items:
        items.add().CopyFrom(rng.choice(items))


def _reorder(rng: random.Random, model: Any) -> None:
    nodes = list(model.graph.node)
    if len(nodes) > 1:
        a, b = rng.sample(range(len(nodes)), 2)
        nodes[a], nodes[b] = nodes[b], nodes[a]
        del model.graph.node[:]
        model.graph.node.extend(nodes)


def _close_cycle(rng: random.Random, model: Any) -> None:
    node = _node(rng, model)
    if node.input and model.graph.node:
        node.input[0] = rng.choice([v for n in model.graph.node for v in n.output] or [""])


def _change_opset(rng: random.Random, model: Any) -> None:
    for opset in model.opset_import:
        opset.version = rng.choice((*range(7, 25), 0, 1, 6, -1, 1 << 40))


def _drop_node(rng: random.Random, model: Any) -> None:
    if model.graph.node:
        del model.graph.node[rng.randrange(len(model.graph.node))]


MUTATIONS: tuple[Mutation, ...] = (
    *(_change_attribute,) * 4,
    *(_change_inputs,) * 3,
    *(_change_input_shape,) * 3,
    *(_change_initializer,) * 5,
    _add_attribute,
    _change_all_dtypes,
    _change_graph_outputs,
    _change_input_dtype,
    _change_operator,
    _change_opset,
    _change_outputs,
    _close_cycle,
    _drop_attribute,
    _drop_node,
    _duplicate,
    _reorder,
)


__all__ = ["mutant", "seeds", "small_seeds"]
