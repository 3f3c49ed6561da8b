"""Distances of quantised models' outputs from those of float32, by both quantisers and in both runtimes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from autotune.bench.experiment import Record
from autotune.graph.ir import Array
from results.bench.quantised.quantisers import OnnxRuntime
from results.bench.quantised.sources import Source

if TYPE_CHECKING:
    import onnx


def accuracies(
    source: Source, models: Mapping[str, onnx.ModelProto], peer: OnnxRuntime | None, threads: int
) -> Iterator[Record]:
    """Yield a record of each quantised model in each runtime; what float32 gives is by ours."""
    wanted = _outputs(source.model, source, threads)
    for quantiser, model in models.items():
        yield compared(source, quantiser, "autotune", wanted, _outputs(model, source, threads))
        if peer is not None:
            theirs = peer.outputs(model, source.held_back, threads)
            yield compared(source, quantiser, peer.system.label, wanted, theirs)


def _outputs(model: onnx.ModelProto, source: Source, threads: int) -> Array:
    from autotune.tuning.api import compile

    module = compile(model, threads=threads)
    runs = (module.run({source.input: sample}) for sample in source.held_back)
    return np.stack([next(iter(found.values())).copy() for found in runs])


def compared(source: Source, quantiser: str, runtime: str, wanted: Array, found: Array) -> Record:
    """Return how far outputs of a quantised model are from those of float32; the last axis is that of the classes.

    ``error`` is the norm of the difference over that of the outputs; ``first`` the share of rows whose greatest element
    is at the same place, ``varying`` the same after the mean over all inputs is taken off; ``right`` and
    ``right_before`` are shares of right labels, quantised and in float32, None without labels.
    """
    runs, classes = len(wanted), wanted.reshape(*wanted.shape[:2], -1).shape[-1]
    if wanted.ndim > 3:  # images by channels, of one pixel
        classes = wanted.shape[2]
    a, b = (array.reshape(runs, -1, classes).astype(np.float64) for array in (wanted, found))
    mean = a.mean(0)
    right: list[float | None] = [None, None]
    if source.labels is not None:
        right = [float((array.argmax(-1)[:, 0] == source.labels).mean()) for array in (b, a)]
    return {
        "model": source.name,
        "quantiser": quantiser,
        "runtime": runtime,
        "error": float(np.linalg.norm(a - b) / np.linalg.norm(a)),
        "first": float((a.argmax(-1) == b.argmax(-1)).mean()),
        "varying": float(((a - mean).argmax(-1) == (b - mean).argmax(-1)).mean()),
        "right": right[0],
        "right_before": right[1],
    }


__all__ = ["accuracies", "compared"]
