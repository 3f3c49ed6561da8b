"""Precisions of a model's products within an error budget.

The error that each product makes alone in a precision says which stay more exact: errors of products add up as squares,
so that those of the largest square for the time that they save become more exact first
(:mod:`autotune.quantization.precision`). Choices are judged by the model whose layers are switched
(:mod:`autotune.quantization.switched`), on one half of the inputs; what results is compiled, and judged on the other
half.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Unpack

import numpy as np

from autotune.compiler.plan import DOUBT
from autotune.compiler.request import CompileRequest
from autotune.compiler.shared import SharedWork
from autotune.errors import UsageError
from autotune.frontends.onnx.read import ModelSource, read_model
from autotune.graph.ir import Array
from autotune.quantization.latencies import MixedModel, PredictedLatencies
from autotune.quantization.network import Quantization
from autotune.quantization.precision import (
    BFLOAT16,
    FLOAT32,
    INT8,
    LOW,
    PRECISIONS,
    SHORT_PRODUCTS,
    PrecisionOption,
    Precisions,
    PrecisionStep,
    further,
    hull,
    in_order,
    products_in,
    products_outside,
    switched_in,
    taken,
)
from autotune.quantization.quantize import QuantizeOptions, calibrate_model
from autotune.quantization.switched import SwitchedModel
from autotune.suggest import counted
from autotune.tuning.compiling import CompiledRequest, compile_request
from autotune.tuning.measure.error_budget import Accuracy, MeasuredError, expected, relative
from autotune.tuning.measure.samples import Samples, input_shapes, open_sizes, outputs_of
from autotune.tuning.report.units import listed

_LEAST_SAVED = 0.01
"""Of the most that a product saves: those that save less, or nothing, count as if they saved that."""
_COMPARED = 4
"""Products are compared by the errors that they make alone on so many input sets; choices are judged by all."""


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
        used = {one: len(products_in(self.precisions, one)) for one in PRECISIONS if one != FLOAT32}
        others = ", ".join(f"{count} {_phrase(one)}" for one, count in used.items() if count)
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


def quantize_within(
    source: ModelSource,
    samples: Mapping[str, Array],
    accuracy: Accuracy,
    **options: Unpack[QuantizeOptions],
) -> WithinBudget:
    """Quantise a model as :func:`~autotune.quantization.quantize.quantize` does, but for layers that stay in float32 so
    that the error is within ``accuracy``. Samples may have ``labels``, and are of at least two input sets.

    Raises:
        UsageError: as that function; no layer can be quantised within the budget.
        InputError: samples that do not fit the model.
    """
    request = CompileRequest(source, threads=options.get("threads"))
    found, _ = chosen_within(request, samples, accuracy, faster=False, **options)
    if found.quantization.products:
        return found
    raise UsageError(
        f"nothing can be quantised within the accuracy {accuracy}\n  allow a larger error, or give more inputs: the "
        "fewer they are, the more is to be expected of others"
    )


def chosen_within(
    request: CompileRequest,
    samples: Mapping[str, Array],
    accuracy: Accuracy,
    *,
    faster: bool,
    tried: Iterable[Precisions] = (),
    **options: Unpack[QuantizeOptions],
) -> tuple[WithinBudget, CompiledRequest]:
    """Choose precisions of a model's products, and compile it so.

    Unless ``faster``, as many products as the budget allows are in eight bits and none have stored weights. With it a
    product is in any precision that saves time, and the model is in none that is predicted to be slower than float32.
    Those that are to be ``tried`` come first: the first of them within the budget is taken.
    """
    shared = SharedWork()
    request, proto = replace(request, shared=shared), read_model(request.model).proto
    seen, held = Samples.of(samples, input_shapes(proto, samples)).split()
    calibrated = calibrate_model(request.model, seen.arrays, shared=shared, **options)
    mixed = MixedModel(calibrated, request, seen.arrays)
    judge = Judge(request, (seen, held), accuracy)
    for precisions in tried:
        if {*precisions} == {*mixed.products} and (found := judge.verified(mixed, precisions)):
            return found
    search = PrecisionSearch(mixed, seen, len(held.sets), accuracy, faster=faster)
    chosen, more = search.least(), 1
    while products_outside(chosen, FLOAT32):
        if found := judge.verified(mixed, chosen):
            return found
        chosen = search.settled(further(chosen, search.steps, more))
        more *= 2  # each is a compilation
    return judge.in_float32(mixed)


class PrecisionSearch:
    """The choice of precisions, by forward passes of the switched model and by predicted latencies.

    ``choices`` are the precisions that a product may have, the most exact last; by default those that are predicted to
    be faster than all more exact ones.
    """

    def __init__(
        self,
        mixed: MixedModel,
        seen: Samples,
        further: int,
        accuracy: Accuracy,
        *,
        faster: bool,
        choices: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.mixed, self.seen, self.further = mixed, seen, further
        self.accuracy, self.faster, self._order = accuracy, faster, [*range(len(seen.sets))]
        kinds = precisions_of(mixed) if faster else (INT8, FLOAT32)
        self.alone = {precision: self.mixed.predicted_alone(precision) for precision in kinds}
        self.choices = choices or {product: self._choices(product) for product in self.mixed.products}
        stored = {
            product: [one for one in choices if switched_in(one)] for product, choices in self.choices.items()
        }
        self._make = partial(
            SwitchedModel, mixed.calibrated, seen.arrays, mixed.threads, stored, mixed.shared
        )
        self.options = {
            product: [self._option(product, precision) for precision in choices]
            for product, choices in self.choices.items()
        }
        self.steps = self.steps_of(self.options)

    @cached_property
    def model(self) -> SwitchedModel:
        """Return the switched model, which is compiled where there is something to choose."""
        return self._make()

    @cached_property
    def reference(self) -> list[dict[str, Array]]:
        """Return the outputs in float32 for what was seen."""
        return self.model.run(self.seen.sets, self.mixed.products)

    @property
    def plain(self) -> PredictedLatencies:
        """Return the latencies in float32."""
        return self.alone[FLOAT32]

    def _choices(self, product: str) -> list[str]:
        """Return the precisions of a product, the most exact last: those that are faster than all more exact ones."""
        if not self.faster:
            return [INT8, FLOAT32]
        found = [FLOAT32]
        for precision in [*reversed(self.alone)][1:]:
            if self.alone[precision].products[product] < self.alone[found[0]].products[product]:
                found.insert(0, precision)
        return found

    def steps_of(self, options: Mapping[str, Sequence[PrecisionOption]]) -> list[PrecisionStep]:
        """Return the steps from the first options of products to the last, the most worthwhile first."""
        saved = [each[-1].latency_ns - each[0].latency_ns for each in options.values()]
        least = _LEAST_SAVED * max(*saved, 1.0)
        return in_order(step for product, each in options.items() for step in hull(product, each, least))

    def _option(self, product: str, precision: str) -> PrecisionOption:
        square = 0.0 if precision == FLOAT32 else self._square({product: precision})
        return PrecisionOption(precision, self.alone[precision].products[product], square)

    def _square(self, precisions: Precisions) -> float:
        """Return the mean square of the relative error, by which products are compared under every budget: a share of
        labels is 0 for most of them."""
        pairs = zip(self.reference, self._run(precisions, self.seen.sets[:_COMPARED]), strict=False)
        return float(np.mean([relative(*pair) ** 2 for pair in pairs]))

    def _run(self, precisions: Precisions, sets: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        """Return the outputs for input sets; products that are not named are in float32."""
        stored = {product: one for product, one in precisions.items() if switched_in(one)}
        floats = [product for product in self.mixed.products if precisions.get(product) != INT8]
        return self.model.run(sets, floats, stored)

    def least(self) -> dict[str, str]:
        """Return the precisions after the fewest steps that the budget needs, less those that it does not after all."""
        first = {product: choices[0] for product, choices in self.choices.items()}
        steps = self.steps
        count = bisect_left(range(len(steps)), True, key=lambda n: self.holds(taken(first, steps[:n])))
        found = taken(first, steps[:count])
        for step in reversed(steps[: max(count - 1, 0)]):
            back = {**found, step.product: step.before}
            if found[step.product] == step.after and self.holds(back):
                found = back
        return self.settled(found)

    def holds(self, precisions: Precisions) -> bool:
        """Return whether the error of a choice, as it is expected on further inputs, is within the budget. Where the
        worst input set counts, none is run after one that is beyond it, which the next choice begins with."""
        if self.accuracy.is_mean:
            return self.expected(precisions) <= self.accuracy.limit
        errors = np.zeros(len(self.seen.sets))
        for at in self._order:
            (errors[at],) = self._errors(precisions, slice(at, at + 1))
            if errors[at] > self.accuracy.limit:
                self._order.insert(0, self._order.pop(self._order.index(at)))
                return False
        return expected(self.accuracy, errors, self.further) <= self.accuracy.limit

    def expected(self, precisions: Precisions) -> float:
        """Return the error of a choice as it is expected on further inputs."""
        return expected(self.accuracy, self._errors(precisions), self.further)

    def _errors(self, precisions: Precisions, which: slice = slice(None)) -> Array:
        """Return the error of each of some input sets, by default of all that were seen."""
        labels = None if self.seen.labels is None else self.seen.labels[which]
        return self.accuracy.each(self.reference[which], self._run(precisions, self.seen.sets[which]), labels)

    def settled(self, precisions: dict[str, str]) -> dict[str, str]:
        """Return the choice, or where only what is faster counts the one of least predicted latency among those in
        which products leave short activations that gain nothing, all of them, and float32, which others must clearly
        beat."""
        if not self.faster:
            return precisions
        tried = [
            (self.plain.total_ns / DOUBT, dict.fromkeys(precisions, FLOAT32)),
            self._without_low(precisions),
        ]
        while products_in(precisions, *LOW):
            found = self.mixed.predicted(precisions)
            tried.append((found.total_ns, precisions))
            slow = [p for p in products_in(precisions, *LOW) if found.products[p] >= self.plain.products[p]]
            if not slow:
                break
            precisions = self._left(precisions, slow)
        return min(tried, key=lambda each: each[0])[1]

    def _without_low(self, precisions: dict[str, str]) -> tuple[float, dict[str, str]]:
        while low := products_in(precisions, *LOW):
            precisions = self._left(precisions, low)
        return self.mixed.predicted(precisions).total_ns, precisions

    def _left(self, precisions: dict[str, str], products: Sequence[str]) -> dict[str, str]:
        """Return the choice with products no longer as they are, but in what follows."""
        follows = {(step.product, step.before): step.after for step in self.steps}
        return {**precisions, **{product: follows[product, precisions[product]] for product in products}}


def precisions_of(mixed: MixedModel) -> list[str]:
    """Return the precisions that the target of a model has, the most exact last."""
    has = set(SHORT_PRODUCTS) & set(mixed.target.features)
    return [one for one in PRECISIONS if one != BFLOAT16 or has]


class Judge:
    """The errors of models on several samples, against a model as it is."""

    def __init__(self, request: CompileRequest, samples: Sequence[Samples], accuracy: Accuracy) -> None:
        self.samples, self.accuracy = samples, accuracy
        shapes = open_sizes(read_model(request.model).proto, samples[0].arrays)
        self.references, self.reference = self._outputs(replace(request, shapes=shapes))

    def verified(
        self, mixed: MixedModel, precisions: Precisions
    ) -> tuple[WithinBudget, CompiledRequest] | None:
        """Return the model in precisions with its errors, and as it was compiled; None unless all hold."""
        found = self.measured(mixed, precisions)
        return found if found[0].chosen_by.holds and found[0].held_back.holds else None

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
        chosen_by, held_back = (self.accuracy.judged(np.zeros(len(each.sets))) for each in self.samples)
        latency = mixed.predicted(mixed.in_float32).total_ns
        made = mixed.written(mixed.in_float32)
        return WithinBudget(made, mixed.in_float32, chosen_by, held_back, latency, latency), self.reference

    def _outputs(self, request: CompileRequest) -> tuple[list[list[dict[str, Array]]], CompiledRequest]:
        from autotune.runtime.module import Module

        compiled = compile_request(request)
        with Module(compiled.model) as module:
            return [outputs_of(module, samples.sets) for samples in self.samples], compiled


__all__ = ["Judge", "PrecisionSearch", "WithinBudget", "chosen_within", "precisions_of", "quantize_within"]
