"""A graph's operators in TVM's tensor expressions, for the benchmark worker; loaded by its file name.

The forms are those of MetaSchedule's own operator suite (``tvm.s_tir.meta_schedule.testing.te_workload``):
channels last, each padding, transposition and scale a stage of its own for its rules to inline, no zeros
multiplied outside of a transposed convolution, whose zeros its unrolling removes. Only a capsule convolution
is another: a convolution between two transpositions, as for everybody here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Arrays = Mapping[str, Any]
_EPSILON = 1e-5
"""The epsilon of a BatchNormalization without the attribute, as ONNX defines it."""


def prim_func(recipe: Mapping[str, Any], inputs: Arrays, constants: Arrays) -> tuple[Any, list[Any]]:
    """A recipe (:func:`autotune.bench.problem.write_graph`) as one function, and its arguments in order.

    The arguments are the inputs, then the constants, then the outputs, which are empty. Raises ValueError
    for an operator that has no form here.
    """
    import tvm
    from tvm import te, topi  # noqa: F401 - the forms use tvm.topi

    arguments: list[tuple[Any, Any]] = []

    def placeholder(name: str, array: Any) -> Any:
        tensor = te.placeholder(array.shape, str(array.dtype), name=name)
        arguments.append((tensor, array))
        return tensor

    values = {name: placeholder(name, array) for name, array in inputs.items()}
    for node in recipe["nodes"]:
        op, attrs, (output,) = node["op"], node["attrs"], node["outputs"]
        if op not in _FORMS:
            raise ValueError(f"no tensor expression for {op}")
        arrays = [constants.get(name) for name in node["inputs"]]
        if op == "BatchNormalization":
            operands = _scale_and_shift(arrays[1:], attrs.get("epsilon", _EPSILON))
            known = [placeholder(f"{output}_{i}", array) for i, array in enumerate(operands)]
            tensors = [values[node["inputs"][0]], *known]
        else:
            for name, array in zip(node["inputs"], arrays, strict=True):
                if array is not None and name not in values:
                    values[name] = placeholder(name, array)
            tensors = [values[name] for name in node["inputs"]]
        values[output] = _FORMS[op](tvm, tensors, attrs)
    for name in recipe["outputs"]:
        tensor = values[name]
        arguments.append((tensor, np.empty(_ints(tensor.shape), str(tensor.dtype))))
    function = te.create_prim_func([tensor for tensor, _ in arguments])
    return function, [array for _, array in arguments]


def _scale_and_shift(arrays: Sequence[Any], epsilon: float) -> tuple[Any, Any]:
    """The factor and the addend that a batch norm of constants comes to."""
    scale, shift, mean, variance = arrays
    factor = scale / np.sqrt(variance + np.float32(epsilon))
    return factor, shift - mean * factor


def _conv(tvm: Any, tensors: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """``x[n, spatial..., c]`` by ``w[kernel..., c/group, o]``, and a bias if there is one."""
    x, w, *bias = tensors
    rank, strides, dilations = len(x.shape) - 2, attrs["strides"], attrs["dilations"]
    pads = attrs["pads"]
    size, kernel = _ints(x.shape[1:-1]), _ints(w.shape[:rank])
    inner, outputs = _ints(w.shape[rank:])
    group_outputs = outputs // attrs["group"]
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    out = [
        (s + before + after - span) // stride + 1
        for s, before, after, span, stride in zip(size, pads[:rank], pads[rank:], spans, strides, strict=True)
    ]
    padded = tvm.topi.nn.pad(x, [0, *pads[:rank], 0], [0, *pads[rank:], 0]) if any(pads) else x
    taps = [tvm.te.reduce_axis((0, extent), name=f"r{i}") for i, extent in enumerate(kernel)]
    channels = [tvm.te.reduce_axis((0, inner), name="rc")] if inner > 1 else []

    def element(n: Any, *index: Any) -> Any:
        *place, o = index
        at = [p * s + t * d for p, s, t, d in zip(place, strides, taps, dilations, strict=True)]
        rc = channels[0] if channels else 0
        c = o // group_outputs * inner + rc if attrs["group"] > 1 else rc
        return tvm.te.sum(padded(n, *at, c) * w(*taps, rc, o), axis=[*taps, *channels])

    y = tvm.te.compute((x.shape[0], *out, outputs), element, name="conv")
    return _channelwise(tvm, lambda value, b: value + b, y, *bias) if bias else y


def _conv_transpose(tvm: Any, tensors: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """``x[n, spatial..., c]`` by ``w[kernel..., c, o]``; the zeros between elements are a condition in the sum."""
    x, w = tensors
    rank, strides, pads = len(x.shape) - 2, attrs["strides"], attrs["pads"]
    size, kernel = _ints(x.shape[1:-1]), _ints(w.shape[:rank])
    inner, outputs = _ints(w.shape[rank:])
    if attrs["group"] != 1 or any(d != 1 for d in attrs["dilations"]):
        raise ValueError("no tensor expression for a transposed convolution with groups or dilations")
    more = attrs.get("output_padding") or [0] * rank
    before = [k - 1 - p for k, p in zip(kernel, pads[:rank], strict=True)]
    after = [k - 1 - p + e for k, p, e in zip(kernel, pads[rank:], more, strict=True)]
    out = [
        (s - 1) * stride + b + a - k + 2
        for s, stride, b, a, k in zip(size, strides, before, after, kernel, strict=True)
    ]
    edges = [[math.ceil(p / s) for p, s in zip(side, strides, strict=True)] for side in (before, after)]
    padded = tvm.topi.nn.pad(x, [0, *edges[0], 0], [0, *edges[1], 0])
    border = [-b % s for b, s in zip(before, strides, strict=True)]
    taps = [tvm.te.reduce_axis((0, extent), name=f"r{i}") for i, extent in enumerate(kernel)]
    rc = tvm.te.reduce_axis((0, inner), name="rc")

    def element(n: Any, *index: Any) -> Any:
        *place, o = index
        spread = [p + t + b for p, t, b in zip(place, taps, border, strict=True)]
        real = tvm.te.all(*(tvm.te.indexmod(at, s).equal(0) for at, s in zip(spread, strides, strict=True)))
        value = padded(n, *(tvm.te.indexdiv(at, s) for at, s in zip(spread, strides, strict=True)), rc)
        value = tvm.te.if_then_else(real, value, tvm.tirx.const(0.0, str(x.dtype)))
        flipped = [k - 1 - t for k, t in zip(kernel, taps, strict=True)]
        return tvm.te.sum(value * w(*flipped, rc, o), axis=[*taps, rc])

    return tvm.te.compute((x.shape[0], *out, outputs), element, name="conv_transpose")


def _matmul(tvm: Any, tensors: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    a, b = tensors
    if _ints(a.shape[:-2]) != _ints(b.shape[:-2]):
        raise ValueError("no tensor expression for a product whose batches differ")
    k = tvm.te.reduce_axis((0, a.shape[-1]), name="k")

    def element(*index: Any) -> Any:
        *batch, i, j = index
        return tvm.te.sum(a(*batch, i, k) * b(*batch, k, j), axis=[k])

    return tvm.te.compute((*a.shape[:-1], b.shape[-1]), element, name="matmul")


def _channelwise(tvm: Any, function: Callable[..., Any], x: Any, *vectors: Any) -> Any:
    """A function of each element and its channel's values."""
    return tvm.te.compute(x.shape, lambda *index: function(x(*index), *(v(index[-1]) for v in vectors)))


def _batch_norm(tvm: Any, tensors: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    x, factor, addend = tensors
    scaled = _channelwise(tvm, lambda value, f: value * f, x, factor)
    return _channelwise(tvm, lambda value, a: value + a, scaled, addend)


def _reduce_sum(tvm: Any, tensors: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    return tvm.topi.sum(tensors[0], axis=list(attrs["axes"]), keepdims=bool(attrs["keepdims"]))


def _ints(extents: Sequence[Any]) -> list[int]:
    return [int(extent) for extent in extents]


_FORMS: Mapping[str, Callable[[Any, Sequence[Any], Mapping[str, Any]], Any]] = {
    "Add": lambda tvm, tensors, attrs: tvm.topi.add(*tensors),
    "BatchNormalization": _batch_norm,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MatMul": _matmul,
    "Mul": lambda tvm, tensors, attrs: tvm.topi.multiply(*tensors),
    "ReduceSum": _reduce_sum,
    "Relu": lambda tvm, tensors, attrs: tvm.topi.nn.relu(*tensors),
    "Reshape": lambda tvm, tensors, attrs: tvm.topi.reshape(tensors[0], list(attrs["shape"])),
    "Softmax": lambda tvm, tensors, attrs: tvm.topi.nn.softmax(tensors[0], axis=attrs["axis"]),
    "Sqrt": lambda tvm, tensors, attrs: tvm.topi.sqrt(tensors[0]),
    "Transpose": lambda tvm, tensors, attrs: tvm.topi.transpose(tensors[0], list(attrs["perm"])),
}

__all__ = ["prim_func"]
