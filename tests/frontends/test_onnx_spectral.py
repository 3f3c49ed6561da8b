"""Fourier transforms, mel bins and determinants, against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.errors import ModelImportError
from autotune.frontends.onnx.importer import load
from autotune.graph import evaluate
from autotune.graph.verify import verify


def run(op: str, x: Any, *constants: Any, opset: int = 20, **attributes: Any) -> Any:
    """One operator that reads x and constants, absent ones as None."""
    names = ["x", *("" if c is None else f"c{i}" for i, c in enumerate(constants))]
    stored = [
        numpy_helper.from_array(np.asarray(c), f"c{i}") for i, c in enumerate(constants) if c is not None
    ]
    node = helper.make_node(op, names, ["y"], **attributes)
    info = [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)]
    out = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "g", info, out, stored)
    model = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]))
    verify(model)
    return evaluate.run(model, {"x": x})["y"]


def pairs(values: Any) -> Any:
    return np.stack([values.real, values.imag], axis=-1).astype(np.float32)


RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 7, 3)) + 1j * RNG.standard_normal((2, 7, 3))


@pytest.mark.parametrize("length", [None, 5, 8, 12])
@pytest.mark.parametrize("inverse", [0, 1])
def test_complex_transforms(length: int | None, inverse: int) -> None:
    given = None if length is None else np.int64(length)
    found = run("DFT", pairs(X), given, np.int64(1), inverse=inverse)
    expected = (np.fft.ifft if inverse else np.fft.fft)(X, length, axis=1)
    np.testing.assert_allclose(found, pairs(expected), atol=1e-5)


@pytest.mark.parametrize("length", [None, 5, 8])
def test_real_transforms_by_their_first_half(length: int | None) -> None:
    given = None if length is None else np.int64(length)
    x = X.real[..., None].astype(np.float32)
    found = run("DFT", x, given, opset=17, axis=1, onesided=1)
    np.testing.assert_allclose(found, pairs(np.fft.rfft(X.real, length, axis=1)), atol=1e-5)
    whole = run("DFT", x, given, opset=17, axis=1)
    np.testing.assert_allclose(whole, pairs(np.fft.fft(X.real, length, axis=1)), atol=1e-5)


@pytest.mark.parametrize("length", [8, 9])
def test_the_inverse_of_a_first_half_is_real(length: int) -> None:
    half = np.fft.rfft(RNG.standard_normal((2, length)), axis=1)
    found = run("DFT", pairs(half), np.int64(length), np.int64(1), inverse=1, onesided=1)
    np.testing.assert_allclose(found[..., 0], np.fft.irfft(half, length, axis=1), atol=1e-5)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("window", [False, True])
def test_transforms_of_frames(onesided: int, window: bool) -> None:
    signal = RNG.standard_normal((2, 40, 1)).astype(np.float32)
    weights = np.hanning(16).astype(np.float32)
    found = run("STFT", signal, np.int64(8), weights if window else None, np.int64(16), onesided=onesided)
    frames = np.stack([signal[:, i : i + 16, 0] for i in range(0, 25, 8)], axis=1)
    frames = frames * weights if window else frames
    expected = np.fft.rfft(frames) if onesided else np.fft.fft(frames)
    np.testing.assert_allclose(found, pairs(expected), atol=1e-5)


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_determinants(rows: int) -> None:
    x = RNG.standard_normal((3, rows, rows)).astype(np.float32)
    np.testing.assert_allclose(run("Det", x), np.linalg.det(x), rtol=1e-4, atol=1e-5)


def test_large_determinants_are_refused() -> None:
    with pytest.raises(ModelImportError, match="matrices of more than 4 rows are not supported"):
        run("Det", np.ones((5, 5), np.float32))
