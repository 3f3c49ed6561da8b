"""How far the outputs of quantised models are from those of float32, by both quantisers and in both runtimes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune.bench.quantised.quantisers import OnnxRuntime
from autotune.bench.quantised.sources import CALIBRATION, HELD_BACK, Source
from autotune.bench.tables import NOTHING, Table
from autotune.graph.ir import Array

if TYPE_CHECKING:
    import onnx

FAMILY = "accuracy"


@dataclass(frozen=True)
class Accuracy:
    """A quantised model in a runtime beside the float32 one, over inputs that calibration has not seen.

    ``error`` is the norm of the difference over that of the outputs; ``first`` the share of rows whose greatest element
    is at the same place, ``varying`` the same after the mean over all inputs is taken off; ``right`` and
    ``right_before`` are shares of right labels, quantised and in float32.
    """

    model: str
    quantiser: str
    runtime: str
    error: float
    first: float
    varying: float
    right: float | None = None
    right_before: float | None = None

    def to_json(self) -> dict[str, Any]:
        """All numbers."""
        return {"family": FAMILY, **asdict(self)}


def accuracies(
    source: Source, models: Mapping[str, onnx.ModelProto], peer: OnnxRuntime | None, threads: int
) -> Iterator[Accuracy]:
    """Of each quantised model in each runtime; what float32 gives is by ours."""
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


def compared(source: Source, quantiser: str, runtime: str, wanted: Array, found: Array) -> Accuracy:
    """Outputs of a quantised model beside those of float32; the last axis is that of the classes."""
    runs, classes = len(wanted), wanted.reshape(*wanted.shape[:2], -1).shape[-1]
    if wanted.ndim > 3:  # images by channels, of one pixel
        classes = wanted.shape[2]
    a, b = (array.reshape(runs, -1, classes).astype(np.float64) for array in (wanted, found))
    mean = a.mean(0)
    right: list[float | None] = [None, None]
    if source.labels is not None:
        right = [float((array.argmax(-1)[:, 0] == source.labels).mean()) for array in (b, a)]
    return Accuracy(
        source.name,
        quantiser,
        runtime,
        float(np.linalg.norm(a - b) / np.linalg.norm(a)),
        float((a.argmax(-1) == b.argmax(-1)).mean()),
        float(((a - mean).argmax(-1) == (b - mean).argmax(-1)).mean()),
        *right,
    )


def table(rows: Sequence[Accuracy]) -> Table:
    """A row a model, quantiser and runtime."""

    def cells(row: Accuracy) -> tuple[str, ...]:
        shares = [f"{100 * share:.1f} %" for share in (row.first, row.varying)]
        right = NOTHING
        if row.right is not None and row.right_before is not None:
            right = f"{100 * row.right:.1f} % ({100 * row.right_before:.1f} %)"
        return row.model, row.quantiser, row.runtime, f"{row.error:.4f}", *shares, right

    columns = (
        "model",
        "quantised by",
        "run by",
        "error",
        "same first",
        "same first, varying part",
        "labels right",
    )
    notes = (
        f"{CALIBRATION} inputs to calibrate by, {HELD_BACK} others to be judged by (digits: 64 and 600), logits; both "
        "quantisers with their defaults, weights by channel",
        "error: the norm of the difference to float32 over the norm of float32's logits",
        "same first: rows whose greatest logit is that of float32; varying part: after the mean of float32's logits "
        "over all inputs is taken off, because random weights give all images nearly the same logits",
        "labels right: in brackets by the float32 model",
    )
    return Table("Accuracy", columns, tuple(map(cells, rows)), notes)


__all__ = ["Accuracy", "accuracies", "compared", "table"]
