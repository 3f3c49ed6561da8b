"""A model in chosen precisions, with its errors on the inputs that these were chosen by and on others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autotune.compiler.request import CompileRequest
from autotune.frontends.onnx.read import read_model
from autotune.graph.ir import Array
from autotune.quantization.latencies import MixedModel
from autotune.quantization.network import Quantization
from autotune.quantization.precision import FLOAT32, Precisions, counts_by_precision, products_in
from autotune.suggest import counted
from autotune.tuning.compiling import CompiledRequest, compile_request
from autotune.tuning.measure.error_budget import Accuracy, MeasuredError
from autotune.tuning.measure.samples import Samples, open_sizes, outputs_of
from autotune.tuning.report.units import listed


@dataclass(frozen=True)
class WithinBudget:
    """The precisions of a model's products, the model with those of eight bits quantised, and its errors: on the inputs
    that these were chosen by, and on others.

    ``predicted_ns`` and ``float32_ns`` are predicted latencies of the whole model, so and in float32.
    """

    quantization: Quantization
    precisions: Precisions
    chosen_by: MeasuredError
    held_back: MeasuredError
    predicted_ns: float
    float32_ns: float

    @property
    def floats(self) -> tuple[str, ...]:
        """Return the outputs of products that stay in float32."""
        return products_in(self.precisions, FLOAT32)

    def to_json(self) -> dict[str, Any]:
        """Return all but the model, as plain values."""
        return {
            "float32": self.floats,
            "precisions": dict(self.precisions),
            "predicted_ns": self.predicted_ns,
            "float32_ns": self.float32_ns,
            "chosen_by": self.chosen_by.to_json(),
            "held_back": self.held_back.to_json(),
        }

    def lines(self, budget: str) -> str:
        """Return the same as text."""
        stay = f"{len(self.floats)} of {counted(len(self.precisions), 'product')} stay in float32"
        used = counts_by_precision(self.precisions).items()
        others = ", ".join(f"{count} {_phrase(one)}" for one, count in used if one != FLOAT32)
        return "\n".join(
            [
                f"accuracy {budget}: {stay}{': ' if self.floats else ''}{listed(self.floats)}",
                *([f"  others: {others}"] if others else []),
                f"  predicted: {self.predicted_ns / 1e3:.1f} µs, in float32 {self.float32_ns / 1e3:.1f} µs",
                f"  error on held-back inputs {self.held_back}",
                f"  error on the inputs chosen by {self.chosen_by}",
            ]
        )


def _phrase(precision: str) -> str:
    return f"with {precision}" if precision.endswith("weights") else f"in {precision}"


class Judge:
    """The errors of models on several samples, against a model as it is."""

    def __init__(self, request: CompileRequest, samples: Sequence[Samples], accuracy: Accuracy) -> None:
        self.samples, self.accuracy = samples, accuracy
        shapes = open_sizes(read_model(request.model).proto, samples[0].arrays)
        self.references, self.reference = self._outputs(replace(request, shapes=shapes))

    def verified(
        self, mixed: MixedModel, precisions: Precisions
    ) -> tuple[WithinBudget, CompiledRequest] | None:
        """Return the model in precisions with its errors, and as it was compiled; None unless they hold on
        held-back inputs, and the others are not beyond the budget."""
        found = self.measured(mixed, precisions)
        chosen_by, held_back = found[0].chosen_by, found[0].held_back
        return found if held_back.holds and chosen_by.error <= chosen_by.limit else None

    def measured(self, mixed: MixedModel, precisions: Precisions) -> tuple[WithinBudget, CompiledRequest]:
        """Return the model in precisions with its errors, whatever they are, and as it was compiled."""
        made = mixed.written(precisions)
        found, compiled = self._outputs(mixed.request(precisions, made))
        chosen_by, held_back = (
            self.accuracy.judged(self.accuracy.each(reference, outputs, samples.labels))
            for samples, reference, outputs in zip(self.samples, self.references, found, strict=True)
        )
        predicted, plain = (mixed.predicted(each).total_ns for each in (precisions, mixed.in_float32))
        return WithinBudget(made, precisions, chosen_by, held_back, predicted, plain), compiled

    def in_float32(self, mixed: MixedModel) -> tuple[WithinBudget, CompiledRequest]:
        """Return the model as it is, which is the reference."""
        chosen_by, held_back = (
            replace(self.accuracy.judged(np.zeros(len(each.sets))), bound=None) for each in self.samples
        )  # of other inputs it is none either
        latency = mixed.predicted(mixed.in_float32).total_ns
        made = mixed.written(mixed.in_float32)
        return WithinBudget(made, mixed.in_float32, chosen_by, held_back, latency, latency), self.reference

    def _outputs(self, request: CompileRequest) -> tuple[list[list[dict[str, Array]]], CompiledRequest]:
        from autotune.runtime.module import Module

        compiled = compile_request(request)
        with Module(compiled.model) as module:
            return [outputs_of(module, samples.sets) for samples in self.samples], compiled


__all__ = ["Judge", "WithinBudget"]
