"""Handwritten digits that ship with scikit-learn, 8 by 8 pixels with labels, and a small network trained on them.

Filters of its two convolutions are centres of clusters of patches (Coates, Ng and Lee, 2011, An analysis of
single-layer networks in unsupervised feature learning), its dense layers are trained by scikit-learn.
"""

from __future__ import annotations

import numpy as np

from autotune.distribution import install
from autotune.errors import MissingExtraError
from autotune.frontends.model_builder import ModelBuilder
from autotune.graph.ir import Array
from results.bench.quantised.sources import Source

NAME = "digits"
_TESTED, _CALIBRATION = 600, 64
_FILTERS = (16, 32)
_HIDDEN = 64
_PATCHES = 6000


def digits() -> Source:
    """The network, with images that it was not trained on; the same on every call.

    Raises:
        MissingExtraError: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split
        from sklearn.neural_network import MLPClassifier
    except ImportError as error:
        raise MissingExtraError(
            f"the network of handwritten digits is trained by scikit-learn: {install('digits')}"
        ) from error
    found = load_digits()
    pixels = (found.images / 16).astype(np.float32)[:, None]
    known, tested, classes, labels = train_test_split(
        pixels, found.target, test_size=_TESTED, random_state=0, stratify=found.target
    )
    maps, layers = known, []
    for count in _FILTERS:
        layers.append(_filters(maps, count))
        maps = _convolved(maps, layers[-1])
    pooled = maps.reshape(len(maps), _FILTERS[-1], 4, 2, 4, 2).max((3, 5)).reshape(len(maps), -1)
    trained = MLPClassifier((_HIDDEN,), max_iter=200, random_state=0, early_stopping=True).fit(
        pooled, classes
    )
    dense = [
        (w.astype(np.float32), b.astype(np.float32))
        for w, b in zip(trained.coefs_, trained.intercepts_, strict=True)
    ]
    m = ModelBuilder(NAME)
    value = m.input("image", (1, 1, 8, 8))
    for i, filters in enumerate(layers):
        value = m.node("Conv", [value, m.constant(f"filters{i}", filters)], f"conv{i}", pads=[1] * 4)
        value = m.node("Relu", [value], f"relu{i}")
    value = m.node("MaxPool", [value], "pooled", kernel_shape=[2, 2], strides=[2, 2])
    value = m.node("Flatten", [value], "flat")
    for i, (w, b) in enumerate(dense):
        value = m.node("Gemm", [value, m.constant(f"w{i}", w), m.constant(f"b{i}", b)], f"dense{i}")
        if i + 1 < len(dense):
            value = m.node("Relu", [value], f"dense{i}.relu")
    return Source(NAME, m.finish([value]), known[:_CALIBRATION, None], tested[:, None], labels)


def _filters(maps: Array, count: int) -> Array:
    """Centres of clusters of 3 by 3 patches, each less its mean and of length 1."""
    from sklearn.cluster import KMeans

    patches = _windows(maps).transpose(0, 2, 3, 1, 4, 5).reshape(-1, 9 * maps.shape[1])
    some = np.random.default_rng(0).choice(len(patches), _PATCHES, replace=False)
    centred = patches[some] - patches[some].mean(1, keepdims=True)
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    centred = (centred / np.maximum(lengths, 1e-3))[lengths[:, 0] > 0.1]
    centres = KMeans(count, n_init=1, max_iter=30, random_state=0).fit(centred).cluster_centers_
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    found: Array = centres.reshape(count, maps.shape[1], 3, 3).astype(np.float32)
    return found


def _convolved(maps: Array, filters: Array) -> Array:
    sums = np.tensordot(_windows(maps), filters, ((1, 4, 5), (1, 2, 3)))
    found: Array = np.maximum(sums, 0).transpose(0, 3, 1, 2).astype(np.float32)
    return found


def _windows(maps: Array) -> Array:
    """Images by channels by places by windows of 3 by 3, with zeros around."""
    padded = np.pad(maps, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))


__all__ = ["NAME", "digits"]
