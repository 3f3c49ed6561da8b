"""ONNX operators that become several here, where ONNX's own definition is less precise, overflows, or is none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from autotune.frontends.onnx.einsum import COMPOSED_EINSUM
from autotune.frontends.onnx.emit import Composer, Emitter
from autotune.frontends.onnx.indexing import COMPOSED_INDEXING
from autotune.frontends.onnx.nodes import OnnxNode
from autotune.frontends.onnx.quantized import dequantize, quantize
from autotune.frontends.onnx.random import COMPOSED_RANDOM
from autotune.frontends.onnx.resize import compose_resize
from autotune.frontends.onnx.spatial import COMPOSED_SPATIAL
from autotune.frontends.onnx.spectral import dft, stft
from autotune.frontends.onnx.tfidf import COMPOSED_TFIDF
from autotune.graph.ops.common import accumulated_in
from autotune.te.dtypes import float_limits, is_float
from autotune.te.narrow import NARROW_FLOATS, NARROW_INTEGERS


def _log_sum_exp(node: OnnxNode, emit: Emitter) -> None:
    """Compute log(sum(e^x)) as log(sum(e^(x - top))) + top with a finite top: e^x overflows at 89 in float32."""
    found, (output,) = node.input_type(0), node.outputs
    wide = accumulated_in(found.dtype) if is_float(found.dtype) else "float64"
    x = emit("Cast", node.inputs, {"to": wide}, "wide")
    axes = {key: value for key, value in node.attrs.items() if key == "axes"}
    most = float(np.finfo(wide).max)
    shifted, tops = x, []
    if found.size:  # nothing has no largest element
        top = emit("ReduceMax", [x], {**axes, "keepdims": 1}, "top")
        tops = [emit("Clip", [top], {"min": -most, "max": most}, "finite")]
        shifted = emit("Sub", [x, *tops], {}, "shifted")
    exps = emit("Exp", [shifted], {}, "exps")
    value = emit("Log", [emit("ReduceSum", [exps], {**axes, "keepdims": 1}, "sums")], {}, "log")
    if tops:
        value = emit("Add", [value, *tops], {}, "total")
    if not node.attrs.get("keepdims", 1):
        value = emit("Squeeze", [value], axes, "squeezed")
    emit("Cast", [value], {"to": found.dtype}, "", output)


def _reduce_mean(node: OnnxNode, emit: Emitter) -> None:
    """Compute the mean of integers: the sum, which wraps around, divided by their number and rounded towards zero."""
    x = node.input_type(0)
    if is_float(x.dtype):
        emit("ReduceMean", node.inputs, node.attrs, "", node.outputs[0])
        return
    total = emit("ReduceSum", node.inputs, node.attrs, "sum")
    count = math.prod(x.shape[axis] for axis in node.attrs.get("axes", range(x.rank)))
    if not count and emit.type_of(total).size:
        raise node.fail(f"the mean of no integers; x is {x}")
    if count > np.iinfo(x.dtype).max:
        raise node.fail(f"the mean of {count} elements, a number that {x.dtype} does not hold")
    emit("Div", [total, emit.constant(max(count, 1), x.dtype)], {}, "", node.outputs[0])


def _layer_normalization(node: OnnxNode, emit: Emitter) -> None:
    """Compute mean and inverse deviation alongside the operator, from what it reads."""
    output = node.outputs[0]
    emit("LayerNormalization", node.inputs, node.attrs, "", output)
    if not emit.wants(1) and not emit.wants(2):
        return
    x, axis = node.input_type(0), int(node.attrs.get("axis", -1))
    axes = tuple(range(axis % x.rank, x.rank))
    wide = emit("Cast", node.inputs[:1], {"to": accumulated_in(x.dtype)}, "wide")
    mean = emit("ReduceMean", [wide], {"axes": axes}, "mean", node.outputs[1] if emit.wants(1) else "")
    if emit.wants(2):
        centred = emit("Sub", [wide, mean], {}, "centred")
        variance = emit("ReduceMean", [emit("Mul", [centred, centred])], {"axes": axes}, "variance")
        epsilon = emit.constant(float(node.attrs.get("epsilon", 1e-5)), emit.type_of(variance).dtype)
        deviation = emit("Sqrt", [emit("Add", [variance, epsilon])], {}, "deviation")
        emit("Reciprocal", [deviation], {}, "", node.outputs[2])


def _cast(node: OnnxNode, emit: Emitter) -> None:
    """Convert to float8 within its limits, unless told not to; from floats to narrow integers by int32, so
    that they wrap."""
    to, saturate, values = node.attrs["to"], node.attrs.get("saturate", 1), node.inputs
    dtype = node.input_type(0).dtype
    if to in NARROW_FLOATS and saturate:
        limit = float(float_limits(to).max)
        values = [emit("Clip", values, {"min": -limit, "max": limit})] if is_float(dtype) else values
    elif to in NARROW_INTEGERS and is_float(dtype):
        values = [emit("Cast", values, {"to": "int32"})]
    emit("Cast", values, {"to": to}, "", node.outputs[0])


def _dropout(node: OnnxNode, emit: Emitter) -> None:
    """Drop nothing: the mask is true everywhere."""
    emit("Dropout", node.inputs, {}, "", node.outputs[0])
    if emit.wants(1):
        emit(
            "Expand", [emit.constant(True, "bool")], {"shape": node.input_type(0).shape}, "", node.outputs[1]
        )


def _batch_normalization(node: OnnxNode, emit: Emitter) -> None:
    """Normalise by the statistics of the batch in training mode, of which running ones follow."""
    if not node.attrs.pop("training_mode", 0):
        node.attrs.pop("momentum", None)
        _normalized(node, node.inputs, emit)
        return
    x, momentum = node.input_type(0), float(node.attrs.pop("momentum", 0.9))
    axes = tuple(axis for axis in range(x.rank) if axis != 1)
    wide = emit("Cast", node.inputs[:1], {"to": accumulated_in(x.dtype)}, "wide")
    mean = emit("ReduceMean", [wide], {"axes": axes}, "mean")
    centred = emit("Sub", [wide, mean], {}, "centred")
    variance = emit("ReduceMean", [emit("Mul", [centred, centred])], {"axes": axes}, "variance")
    found = []
    for value, running in ((mean, 3), (variance, 4)):
        old = node.input_type(running)
        flat = emit("Cast", [emit("Reshape", [value], {"shape": old.shape})], {"to": old.dtype}, "flat")
        found.append(flat)
        if emit.wants(running - 2):
            kept = emit("Mul", [node.inputs[running], emit.constant(momentum, old.dtype)], {}, "kept")
            new = emit("Mul", [flat, emit.constant(1 - momentum, old.dtype)], {}, "new")
            emit("Add", [kept, new], {}, "", node.outputs[running - 2])
    emit("BatchNormalization", [*node.inputs[:3], *found], node.attrs, "", node.outputs[0])


def _normalized(node: OnnxNode, operands: Sequence[str], emit: Emitter) -> None:
    """Normalise by given statistics; computed in float32 where these have another dtype than what is normalised."""
    dtypes = {emit.type_of(value).dtype for value in operands}
    if len(dtypes) == 1:
        emit("BatchNormalization", operands, node.attrs, "", node.outputs[0])
        return
    wide = accumulated_in(node.input_type(0).dtype)
    cast = [emit("Cast", [value], {"to": wide}, "wide") for value in operands]
    found = emit("BatchNormalization", cast, node.attrs, "normalized")
    emit("Cast", [found], {"to": node.input_type(0).dtype}, "", node.outputs[0])


def _lp_normalization(node: OnnxNode, emit: Emitter) -> None:
    """Compute x / norm; zero where the norm is."""
    x, order = node.input_type(0), int(node.attrs.get("p", 2))
    axes = (int(node.attrs.get("axis", -1)) % x.rank,)
    wide = emit("Cast", node.inputs, {"to": accumulated_in(x.dtype)}, "wide")
    dtype = emit.type_of(wide).dtype
    terms = emit("Abs", [wide]) if order == 1 else emit("Mul", [wide, wide], {}, "squares")
    norm = emit("ReduceSum", [terms], {"axes": axes}, "sum")
    if order == 2:
        norm = emit("Sqrt", [norm])
    zero, one = emit.constant(0, dtype), emit.constant(1, dtype)
    divisor = emit("Where", [emit("Equal", [norm, zero]), one, norm], {}, "divisor")
    emit("Cast", [emit("Div", [wide, divisor])], {"to": x.dtype}, "", node.outputs[0])


def _recurrent(node: OnnxNode, emit: Emitter) -> None:
    from autotune.frontends.onnx.recurrent import recurrent  # which few models have

    recurrent(node, emit)


_RECURRENT = ("GRU", "LSTM", "RNN")


def _extreme(node: OnnxNode, emit: Emitter) -> None:
    """Reduce truth values as integers."""
    if node.input_type(0).dtype != "bool":
        emit(node.op, node.inputs, node.attrs, "", node.outputs[0])
        return
    numbers = emit("Cast", node.inputs, {"to": "uint8"}, "numbers")
    emit("Cast", [emit(node.op, [numbers], node.attrs)], {"to": "bool"}, "", node.outputs[0])


_MOST_ROWS = 4


def _det(node: OnnxNode, emit: Emitter) -> None:
    """Compute determinants of matrices of up to four rows, by those of the minors of their last rows."""
    x = node.input_type(0)
    rows = x.shape[-1]
    if rows > _MOST_ROWS:
        raise node.fail(f"matrices of more than {_MOST_ROWS} rows are not supported; x is {x}")
    wide = emit("Cast", node.inputs, {"to": accumulated_in(x.dtype)}, "wide")
    made: dict[tuple[int, ...], str] = {}

    def element(row: int, column: int) -> str:
        place = {"axes": (x.rank - 2, x.rank - 1), "starts": (row, column), "ends": (row + 1, column + 1)}
        return emit("Slice", [wide], place, "element")

    def minor(columns: tuple[int, ...]) -> str:
        """Return a minor of the last rows, as many as there are columns."""
        if columns not in made:
            row = rows - len(columns)
            total = element(row, columns[0])
            if len(columns) > 1:
                total = emit("Mul", [total, minor(columns[1:])], {}, "term")
            for n in range(1, len(columns)):
                rest = minor(columns[:n] + columns[n + 1 :])
                term = emit("Mul", [element(row, columns[n]), rest], {}, "term")
                total = emit("Sub" if n % 2 else "Add", [total, term], {}, "sum")
            made[columns] = total
        return made[columns]

    found = emit("Reshape", [minor(tuple(range(rows)))], {"shape": x.shape[:-2]}, "determinant")
    emit("Cast", [found], {"to": x.dtype}, "", node.outputs[0])


COMPOSED: Mapping[str, Composer] = {
    "BatchNormalization": _batch_normalization,
    "Cast": _cast,
    "DequantizeLinear": dequantize,
    "DFT": dft,
    "Det": _det,
    "Dropout": _dropout,
    "LayerNormalization": _layer_normalization,
    "LpNormalization": _lp_normalization,
    "QuantizeLinear": quantize,
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": _extreme,
    "ReduceMean": _reduce_mean,
    "ReduceMin": _extreme,
    "STFT": stft,
    "Resize": compose_resize,
    "Upsample": compose_resize,
    **COMPOSED_SPATIAL,
    **dict.fromkeys(_RECURRENT, _recurrent),
    **COMPOSED_EINSUM,
    **COMPOSED_INDEXING,
    **COMPOSED_RANDOM,
    **COMPOSED_TFIDF,
}
"""A function that adds the nodes for a node whose parameters are attributes already."""

SEVERAL_OUTPUTS = (
    "BatchNormalization",
    "Dropout",
    "LayerNormalization",
    "MaxPool",
    "Split",
    "TopK",
    "Unique",
    *_RECURRENT,
)
"""Operators of which more than the first output can be asked for."""

__all__ = ["COMPOSED", "SEVERAL_OUTPUTS"]
