"""DFT and STFT as products with matrices of cosines and sines, and the weights of mel bins."""

from __future__ import annotations

import numpy as np

from autotune.frontends.onnx.budget import check_evaluated
from autotune.frontends.onnx.emit import Emitter
from autotune.frontends.onnx.nodes import OnnxNode
from autotune.graph.ir import ABSENT, Array
from autotune.graph.ops.common import accumulated_in


def dft(node: OnnxNode, emit: Emitter) -> None:
    """Transform along an axis of a tensor whose last dimension holds real parts, or real and imaginary ones."""
    x = node.input_type(0)
    given = _integer(node, 2, "axis", -2) if node.scope.opset >= 20 else int(node.attrs.get("axis", 1))
    axis, parts = given % x.rank, x.shape[-1]
    inverse, onesided = bool(node.attrs.get("inverse", 0)), bool(node.attrs.get("onesided", 0))
    if parts not in (1, 2) or axis == x.rank - 1:
        raise node.fail(
            f"the last dimension holds 1 or 2 parts of a number, and is no axis; x is {x}, axis {given}"
        )
    given_bins = onesided and inverse
    samples = _integer(node, 1, "dft_length", 2 * (x.shape[axis] - 1) if given_bins else x.shape[axis])
    if samples < 1:
        raise node.fail(f"dft_length = {samples}")
    matrix = _transform(node, x.shape[axis], parts, samples, inverse=inverse, onesided=onesided)
    order = [*(a for a in range(x.rank - 1) if a != axis), axis, x.rank - 1]
    moved = emit("Transpose", node.inputs[:1], {"perm": tuple(order)}, "moved")
    result = _product(emit, moved, matrix, 1 if given_bins else 2)
    back = tuple(order.index(a) for a in range(x.rank))
    emit("Transpose", [result], {"perm": back}, "", node.outputs[0])


def stft(node: OnnxNode, emit: Emitter) -> None:
    """Transform frames of a signal [batch, samples, parts], each multiplied by a window."""
    x = node.input_type(0)
    parts = x.shape[2] if x.rank == 3 else 1
    step = _integer(node, 1, "frame_step", 0)
    window = node.input(2)
    whole = x.shape[1] if window == ABSENT else node.input_type(2).size
    length = _integer(node, 3, "frame_length", whole)
    if step < 1 or not 0 < length <= x.shape[1] or (window != ABSENT and whole != length):
        raise node.fail(
            f"frame_step {step}, frame_length {length}, {whole} elements in the window, signal {x}"
        )
    frames = (x.shape[1] - length) // step + 1
    check_evaluated(node, (frames, length), 8, "the table of places of all frames")
    places = np.arange(frames)[:, None] * step + np.arange(length)
    signal = emit("Reshape", node.inputs[:1], {"shape": (x.shape[0], x.shape[1], parts)}, "signal")
    cut = emit("Gather", [signal, emit.constant(places, "int64")], {"axis": 1}, "frames")
    if window != ABSENT:
        shaped = emit("Reshape", [window], {"shape": (length, 1)}, "window")
        cut = emit("Mul", [cut, shaped], {}, "windowed")
    onesided = bool(node.attrs.get("onesided", 1)) and parts == 1
    matrix = _transform(node, length, parts, length, inverse=False, onesided=onesided)
    emit("Identity", [_product(emit, cut, matrix, 2)], {}, "", node.outputs[0])


def mel_weights(bins: int, length: int, rate: int, low: float, high: float) -> Array:
    """Return the matrix [length // 2 + 1, bins] of triangles that are as wide on the mel scale, as ONNX defines it."""
    edges = 2595 * np.log10(1 + np.array([low, high]) / 700)
    mels = np.arange(bins + 2) * (edges[1] - edges[0]) / (bins + 2) + edges[0]
    points = ((length + 1) * (700 * (10 ** (mels / 2595) - 1)) // rate).astype(np.int64)
    found, places = np.zeros((length // 2 + 1, bins)), np.arange(length // 2 + 1)
    for i in range(bins):
        left, centre, right = points[i : i + 3]
        if left == centre:
            found[centre, i] = 1
        else:
            rising = (places >= left) & (places <= centre)
            found[rising, i] = (places[rising] - left) / (centre - left)
        falling = (places >= centre) & (places < right)
        found[falling, i] = (right - places[falling]) / max(right - centre, 1)
    return found


def _integer(node: OnnxNode, index: int, name: str, default: int) -> int:
    """Return a number that must be known when the model is compiled."""
    value = node.input(index)
    if value == ABSENT:
        return default
    array = node.scope.constant_of(value)
    if array is None:
        raise node.unknown(f"input {name!r} ({value!r})", value)
    return int(array.reshape(-1)[0])


def _transform(
    node: OnnxNode, given: int, parts: int, samples: int, *, inverse: bool, onesided: bool
) -> Array:
    """Return rows for the parts of what is given, columns for those of what is wanted; rows beyond
    ``samples`` are zeros.

    Onesided results are the first half; onesided inverses take it, and the other half is its conjugate.
    """
    half = samples // 2 + 1
    wanted = half if onesided and not inverse else samples
    results = 1 if onesided and inverse else 2
    check_evaluated(node, (given * parts, wanted * results), 8, "the matrix of the transform")
    turn = np.outer(np.arange(given), np.arange(wanted)) % samples * (2 * np.pi / samples)
    # Quarter turns are exact: what cancels there is 0 in any precision.
    real, imaginary = (np.where(np.abs(v) < 1e-15, 0, v) for v in (np.cos(turn), np.sin(turn)))
    imaginary = imaginary if inverse else -imaginary
    used = np.arange(given) < (half if onesided and inverse else samples)
    weights = used / (samples if inverse else 1)
    if onesided and inverse:  # all but the first and, of an even number, the middle one stand for two
        alone = (np.arange(given) == 0) | (2 * np.arange(given) == samples)
        weights = weights * np.where(alone, 1, 2)
    rows = [[real, imaginary], [-imaginary, real]]
    matrix = np.stack([np.stack(row[:results], axis=-1) for row in rows[:parts]], axis=1)
    return (matrix * weights[:, None, None, None]).reshape(given * parts, wanted * results)


def _product(emit: Emitter, x: str, matrix: Array, results: int) -> str:
    """Return [..., samples, parts] by the matrix, as [..., results, parts]."""
    found = emit.type_of(x)
    flat = emit("Reshape", [x], {"shape": (*found.shape[:-2], matrix.shape[0])}, "flat")
    wide = emit("Cast", [flat], {"to": accumulated_in(found.dtype)}, "wide")
    product = emit("MatMul", [wide, emit.constant(matrix, emit.type_of(wide).dtype)], {}, "product")
    shape = (*found.shape[:-2], matrix.shape[1] // results, results)
    return emit(
        "Cast", [emit("Reshape", [product], {"shape": shape}, "parts")], {"to": found.dtype}, "result"
    )


__all__ = ["dft", "mel_weights", "stft"]
