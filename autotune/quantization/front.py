"""The front of latency and error: models in several precisions, tuned and measured alongside float32, and stored.

A point is stored as an option of the site "precision" of the whole model, beside those of other sites. Errors depend on
weights, which the key of a model leaves out, so that a point has a hash of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from autotune.compiler.sites.decision import model_row
from autotune.database.front import PRECISION
from autotune.database.records import Comparison, Ratio
from autotune.errors import DatabaseError
from autotune.foreign import parse_json
from autotune.frontends.onnx.read import ModelSource
from autotune.quantization.network import Network
from autotune.quantization.precision import FLOAT32, PRECISIONS, Precisions, products_by_precision
from autotune.tuning.measure.error_budget import Accuracy, MeasuredError
from autotune.tuning.report.units import nanoseconds
from autotune.tuning.requested import open_database, with_database

if TYPE_CHECKING:
    from autotune.compiler.request import CompileRequest

HEADING = "precisions of the whole model, none beaten in latency and error:"


@dataclass(frozen=True)
class PrecisionPoint:
    """Precisions of a model's products, the error on held-back inputs by a budget, and the latency over float32's.

    ``median_ns`` and ``ratio`` are None where it was not measured; ``weights`` is the SHA-256 (hex) of the model's.
    """

    precisions: Precisions
    budget: str
    held_back: MeasuredError
    random_inputs: bool
    weights: str
    median_ns: float | None = None
    ratio: Ratio | None = None

    @staticmethod
    def of(row: Comparison) -> PrecisionPoint:
        """Return what a database has; raises DatabaseError for a damaged row."""
        try:
            made = parse_json(row.detail)
            precisions = dict(made["precisions"])
            if not set(precisions.values()) <= set(PRECISIONS):
                raise ValueError("there is no such precision")
            interval = made["held_back"]["interval"]
            error = MeasuredError(**{**made["held_back"], "interval": interval and tuple(interval)})
            latency = None if row.latency is None else row.latency.median_ns
            facts = made["budget"], error, bool(made["random_inputs"]), made["weights"]
            return PrecisionPoint(precisions, *facts, latency, row.ratio)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DatabaseError(f"a precision of {row.inside!r} is damaged: {error}") from error

    @property
    def over_float32(self) -> float:
        """Return the median latency over that of float32; infinite where it was not measured."""
        return float("inf") if self.ratio is None else self.ratio.median

    def to_json(self) -> dict[str, Any]:
        """Return all but the hash of the weights, as plain values; the latency in ns."""
        return {
            "precisions": dict(self.precisions),
            "budget": self.budget,
            "error": self.held_back.to_json(),
            "random_inputs": self.random_inputs,
            "latency_ns": self.median_ns,
            "over_float32": None if self.ratio is None else self.ratio.to_json(),
        }

    @property
    def kind(self) -> str:
        """The kind of accuracy that its error is of."""
        return Accuracy.of(self.budget).kind

    @property
    def name(self) -> str:
        """The name of the option: the SHA-256 (hex) of its precisions and of the weights."""
        return _sha(json.dumps([sorted(self.precisions.items()), self.weights]).encode())

    @property
    def detail(self) -> str:
        """Return what names the option, as JSON."""
        return json.dumps(
            {
                "precisions": dict(self.precisions),
                "budget": self.budget,
                "held_back": asdict(self.held_back),
                "random_inputs": self.random_inputs,
                "weights": self.weights,
            },
            sort_keys=True,
        )

    def __str__(self) -> str:
        inputs = "random" if self.random_inputs else "held-back"
        error = f"error {self.held_back.error:.2g} ({self.budget}, {inputs} inputs)"
        return f"{self._latency}; {error}; products: {products_by_precision(self.precisions)}"

    @property
    def _latency(self) -> str:
        if self.ratio is None:
            return "not measured"
        median = "" if self.median_ns is None else f"{nanoseconds(self.median_ns)}, "
        return f"{median}{self.ratio.median:.2f} of float32, {self.ratio}"


def faster(points: Iterable[PrecisionPoint]) -> list[PrecisionPoint]:
    """Return the points that were measured to be faster than float32, the fastest first."""
    return sorted((point for point in points if point.over_float32 < 1), key=lambda point: point.over_float32)


def front(points: Iterable[PrecisionPoint]) -> list[PrecisionPoint]:
    """Return those of :func:`faster` that none of the same kind of error beats in both latency and error."""
    found, least = list[PrecisionPoint](), dict[str, float]()
    for point in faster(points):
        if point.held_back.error < least.get(point.kind, float("inf")):
            found.append(point)
            least[point.kind] = point.held_back.error
    return found


def stored_points(request: CompileRequest) -> list[PrecisionPoint]:
    """Return the points of a model that the request's database has, the newest measurement of each."""

    def look_up(own: CompileRequest) -> list[Comparison]:
        store = open_database(own)
        if store is None:
            return []
        from autotune.compiler.dividing import imported

        graph = imported(request.model, request.shapes)
        return store.comparison_history(model_row(graph).key, own.one_target().key, PRECISION)

    points = points_of(with_database(request, look_up)[0])
    if not points:
        return []
    weights = weights_of(request.model)
    return [point for point in points if point.weights == weights]


def points_of(compared: Iterable[Comparison]) -> list[PrecisionPoint]:
    """Return the points in rows of comparisons, the oldest first: the newest measurement of each."""
    found = [PrecisionPoint.of(row) for row in compared if row.name != FLOAT32]
    return list({point.name: point for point in found}.values())


def weights_of(source: ModelSource) -> str:
    """Return the SHA-256 (hex) of the values of a model's constants, by their names."""
    found = hashlib.sha256()
    for name, array in sorted(Network.read(source).arrays.items()):
        found.update(f"{name} {array.dtype} {array.shape} ".encode() + array.tobytes())
    return found.hexdigest()


def rows_of(
    points: Sequence[tuple[PrecisionPoint, Mapping[str, Any]]], plain: Mapping[str, Any]
) -> list[Comparison]:
    """Return rows of a comparison: float32 and points with what was measured of them; the fastest has won."""
    made = [Comparison(FLOAT32, _sha(FLOAT32.encode()), **plain)]
    made += [
        Comparison(
            point.name,
            _sha(point.detail.encode()),
            error=point.held_back.error,
            detail=point.detail,
            **measured,
        )
        for point, measured in points
    ]
    best = min(made, key=lambda row: 1.0 if row.ratio is None else row.ratio.median)
    return [replace(row, won=row is best) for row in made]


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


__all__ = [
    "HEADING",
    "PrecisionPoint",
    "faster",
    "front",
    "points_of",
    "rows_of",
    "stored_points",
    "weights_of",
]
