"""Predicted latencies of a model with its products in some precisions, and the tolerances that make it so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from autotune.compiler.dividing import divide
from autotune.compiler.driver import predict_dispatches
from autotune.compiler.request import CompileRequest
from autotune.graph.ir import Array
from autotune.passes.preference import TOLERANCE
from autotune.quantization.network import Quantization
from autotune.quantization.precision import (
    DECLARED_ERRORS,
    FLOAT32,
    INT8,
    Precisions,
    products_outside,
)
from autotune.quantization.quantize import CalibratedModel
from autotune.quantization.replaced import REPLACED
from autotune.tuning.measure.samples import open_sizes
from autotune.tuning.requested import with_database

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class PredictedLatencies:
    """The predicted latency of a model, and of each of its products; those of one dispatch share its time evenly."""

    total_ns: float
    products: Mapping[str, float]


class MixedModel:
    """A calibrated model with its products in any precisions, as a request compiles it."""

    def __init__(
        self, calibrated: CalibratedModel, request: CompileRequest, samples: Mapping[str, Array]
    ) -> None:
        self.calibrated, self.samples = calibrated, samples
        self.products = tuple(node.output[0] for node in calibrated.choice().products)
        self._request = request
        self._known: dict[tuple[str, ...], PredictedLatencies] = {}

    @property
    def threads(self) -> int | None:
        """Return the threads that were asked for."""
        return self._request.threads

    @property
    def in_float32(self) -> Precisions:
        """Return float32 for all products."""
        return dict.fromkeys(self.products, FLOAT32)

    def written(self, precisions: Precisions) -> Quantization:
        """Return the model with the products of these precisions in eight bits; stored weights are no part of it."""
        replaced = {product: one for product, one in precisions.items() if one in REPLACED}
        return self.calibrated.written(products_outside(precisions, INT8), replaced)

    def request(self, precisions: Precisions, made: Quantization | None = None) -> CompileRequest:
        """Return the request of the model in these precisions; ``made`` where it was written already."""
        model = (made or self.written(precisions)).model
        own = replace(self._request, model=model, shapes=open_sizes(model, self.samples))
        return replace(own, tolerances=_tolerances(own, self.products, precisions))

    def predicted(self, precisions: Precisions) -> PredictedLatencies:
        """Return the latencies of the model in these precisions."""
        key = tuple(precisions[product] for product in self.products)
        if key not in self._known:
            self._known[key] = _predicted(self.request(precisions), self.products)
        return self._known[key]

    def predicted_alone(self, precision: str) -> PredictedLatencies:
        """Return the latencies with all products in a precision, or where weights may be stored so."""
        if precision not in DECLARED_ERRORS:
            return self.predicted(dict.fromkeys(self.products, precision))
        plain = self.request(self.in_float32)
        return _predicted(replace(plain, tolerance=DECLARED_ERRORS[precision]), self.products)


def _predicted(request: CompileRequest, products: Sequence[str]) -> PredictedLatencies:
    model, names = _named(request, products)
    found, _ = with_database(replace(request, model=model), predict_dispatches)
    spent = dict.fromkeys(products, 0.0)
    for dispatch in found:
        own = [product for product in products if names[product] in dispatch.nodes]
        for product in own:
            spent[product] += dispatch.latency_ns / len(own)
    return PredictedLatencies(sum(dispatch.latency_ns for dispatch in found), spent)


def _tolerances(request: CompileRequest, products: Sequence[str], precisions: Precisions) -> dict[str, float]:
    """Return the tolerance of each workload of which all products have stored weights: what the most exact allows."""
    if not any(precision in DECLARED_ERRORS for precision in precisions.values()):
        return {}
    model, names = _named(request, products)
    parts = divide(
        model,
        layout=request.layout,
        activations=request.one_target().activations,
        shapes=request.shapes,
    )
    found = dict[str, float]()
    for dispatch in parts.dispatches:
        own = [product for product in products if names[product] in dispatch.origins]
        allowed = [DECLARED_ERRORS.get(precisions[product], TOLERANCE) for product in own]
        if own:
            key = dispatch.workload.key
            found[key] = min(*allowed, found.get(key, float("inf")))
    return {key: tolerance for key, tolerance in found.items() if tolerance > TOLERANCE}


def _named(request: CompileRequest, products: Sequence[str]) -> tuple[onnx.ModelProto, dict[str, str]]:
    """Return the model of a request with names for its products alone, and these."""
    import onnx

    model, names = onnx.ModelProto(), {product: f"product.{i}" for i, product in enumerate(products)}
    model.CopyFrom(request.model)
    for node in model.graph.node:
        node.name = names.get(node.output[0], "")
    return model, names


__all__ = ["MixedModel", "PredictedLatencies"]
