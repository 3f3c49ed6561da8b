"""Predicted latencies of a model with its products in some precisions, and the tolerances that make it so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autotune.compiler.devices.segments import part_of
from autotune.compiler.driver import predict_dispatches
from autotune.compiler.request import CompileRequest
from autotune.compiler.shared import LastModels, SharedWork
from autotune.frontends.onnx.schema import node_name
from autotune.graph.ir import Array
from autotune.passes.preference import TOLERANCE
from autotune.quantization.network import Network, Quantization
from autotune.quantization.precision import (
    BFLOAT16,
    DECLARED_ERRORS,
    FLOAT32,
    INT8,
    STORED_TYPES,
    Precisions,
    products_in,
    products_outside,
)
from autotune.quantization.quantize import CalibratedModel
from autotune.quantization.replaced import REPLACED
from autotune.target import Target
from autotune.tuning.measure.samples import open_sizes
from autotune.tuning.requested import with_database


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
        self.calibrated, self.samples = replace(calibrated, network=_named(calibrated.network)), samples
        self.names = {node.output[0]: node_name(node) for node in self.calibrated.choice().products}
        self.products = tuple(self.names)
        self._request = replace(request, shared=request.shared or SharedWork())
        self._known: dict[tuple[str, ...], PredictedLatencies] = {}
        self._made = LastModels[Quantization]()

    @property
    def threads(self) -> int | None:
        """Return the threads that were asked for."""
        return self._request.threads

    @property
    def shared(self) -> SharedWork | None:
        """Return what compilations of the model in several precisions have in common."""
        return self._request.shared

    @property
    def target(self) -> Target:
        """Return the target of the request."""
        return self._request.one_target()

    @property
    def in_float32(self) -> Precisions:
        """Return float32 for all products."""
        return dict.fromkeys(self.products, FLOAT32)

    def written(self, precisions: Precisions) -> Quantization:
        """Return the model with the products of these precisions in eight bits and in bfloat16; stored weights are no
        part of it. The last ones are remembered, and with them their parts in the shared work."""
        kinds = [precisions[product] for product in self.products]
        key = tuple(FLOAT32 if kind in STORED_TYPES else kind for kind in kinds)
        return self._made.get(key, lambda: self._write(precisions))

    def _write(self, precisions: Precisions) -> Quantization:
        replaced = {product: one for product, one in precisions.items() if one in REPLACED}
        short = products_in(precisions, BFLOAT16)
        return self.calibrated.written(products_outside(precisions, INT8), replaced, short)

    def request(self, precisions: Precisions, made: Quantization | None = None) -> CompileRequest:
        """Return the request of the model in these precisions; ``made`` where it was written already."""
        model = (made or self.written(precisions)).model
        own = replace(self._request, model=model, shapes=open_sizes(model, self.samples))
        return replace(own, tolerances=_tolerances(own, self.names, precisions))

    def predicted(self, precisions: Precisions) -> PredictedLatencies:
        """Return the latencies of the model in these precisions."""
        key = tuple(precisions[product] for product in self.products)
        if key not in self._known:
            self._known[key] = _predicted(self.request(precisions), self.names)
        return self._known[key]

    def predicted_alone(self, precision: str) -> PredictedLatencies:
        """Return the latencies with all products in a precision, or where weights may be stored so."""
        if precision not in DECLARED_ERRORS:
            return self.predicted(dict.fromkeys(self.products, precision))
        plain = self.request(self.in_float32)
        return _predicted(replace(plain, tolerance=DECLARED_ERRORS[precision]), self.names)


def _predicted(request: CompileRequest, names: Mapping[str, str]) -> PredictedLatencies:
    found, _ = with_database(request, predict_dispatches)
    spent = dict.fromkeys(names, 0.0)
    for dispatch in found:
        own = [product for product, name in names.items() if name in dispatch.nodes]
        for product in own:
            spent[product] += dispatch.latency_ns / len(own)
    return PredictedLatencies(sum(dispatch.latency_ns for dispatch in found), spent)


def _tolerances(
    request: CompileRequest, names: Mapping[str, str], precisions: Precisions
) -> dict[str, float]:
    """Return the tolerance of each workload of which all products have stored weights: what the most exact allows."""
    if not any(precision in DECLARED_ERRORS for precision in precisions.values()):
        return {}
    parts = part_of(request, request.one_target(), None)
    found = dict[str, float]()
    for dispatch in parts.dispatches:
        own = [product for product, name in names.items() if name in dispatch.origins]
        allowed = [DECLARED_ERRORS.get(precisions[product], TOLERANCE) for product in own]
        if own:
            key = dispatch.workload.key
            found[key] = min(*allowed, found.get(key, float("inf")))
    return {key: tolerance for key, tolerance in found.items() if tolerance > TOLERANCE}


def _named(network: Network) -> Network:
    """Return a network each node of which has a name that no other one has."""
    named, seen = network.copy(), set[str]()
    for node in named.nodes:
        if node_name(node) in seen or not node.name:
            node.name = named.fresh(node.name or node.output[0])
        seen.add(node_name(node))
    return named


__all__ = ["MixedModel", "PredictedLatencies"]
