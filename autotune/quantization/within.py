"""Precisions of a model's products within an error budget.

The error that each product makes alone in a precision says which stay more exact: errors of products add up as squares,
so that those of the largest square for the time that they save become more exact first
(:mod:`autotune.quantization.precision`). Choices are judged by the model whose layers are switched
(:mod:`autotune.quantization.switched`), on one half of the inputs; what results is compiled, and judged on the other
half.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain, islice
from typing import Unpack

import numpy as np

from autotune.compiler.plan import DOUBT
from autotune.compiler.request import CompileRequest
from autotune.compiler.shared import SharedWork
from autotune.errors import UsageError
from autotune.frontends.onnx.read import ModelSource, read_model
from autotune.graph.ir import Array
from autotune.quantization.judged import Judge, WithinBudget
from autotune.quantization.latencies import MixedModel, PredictedLatencies
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
from autotune.tuning.compiling import CompiledRequest
from autotune.tuning.measure.error_budget import CHOICES, Accuracy, assured, expected, relative
from autotune.tuning.measure.samples import Samples, input_shapes

_LEAST_SAVED = 0.01
"""Of the most that a product saves: those that save less, or nothing, count as if they saved that."""
_COMPARED = 4
"""Products are compared by the errors that they make alone on so many input sets; choices are judged by all."""


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
    tried: Sequence[Precisions] = (),
    **options: Unpack[QuantizeOptions],
) -> tuple[WithinBudget, CompiledRequest]:
    """Choose precisions of a model's products, and compile it so.

    Unless ``faster``, as many products as the budget allows are in eight bits and none have stored weights. With it a
    product is in any precision that saves time, and the model is in none that is predicted to be slower than float32.
    Those that are to be ``tried`` come first: the first of them within the budget is taken. Where a mean counts, at
    most ``CHOICES`` are judged by held-back inputs, half of them of those.

    Raises InputError for samples that do not fit the model, or too few for the budget of a mean.
    """
    shared = SharedWork()
    request, proto = replace(request, shared=shared), read_model(request.model).proto
    seen, held = Samples.of(samples, input_shapes(proto, samples)).split()
    calibrated = calibrate_model(request.model, seen.arrays, shared=shared, **options)
    mixed = MixedModel(calibrated, request, seen.arrays)
    known = [precisions for precisions in tried if {*precisions} == {*mixed.products}]
    judge = Judge(request, (seen, held), accuracy)
    search = PrecisionSearch(mixed, seen, len(held.sets), accuracy, faster=faster)
    few, most = (CHOICES // 2, CHOICES) if accuracy.is_mean else (None, None)
    for precisions in islice(chain(known[:few], search.candidates()), most):
        if found := judge.verified(mixed, precisions):
            return found
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

    def candidates(self) -> Iterator[dict[str, str]]:
        """Yield the choice, then one that is a step more exact, then two, four ... more, while any is left.

        Where a mean counts, of which few are judged, steps are as much larger; raises InputError where so few inputs
        are held back that none of them could be shown to be within the budget.
        """
        if self.accuracy.is_mean and products_outside(self.first, FLOAT32):
            self.accuracy.check_enough(self.fastest, self.further)
        chosen, more = self.least(), max(1, len(self.steps) >> CHOICES - 1) if self.accuracy.is_mean else 1
        while products_outside(chosen, FLOAT32):
            yield chosen
            chosen = self.settled(further(chosen, self.steps, more))
            more *= 2  # each is a compilation

    @property
    def first(self) -> dict[str, str]:
        """Return the fastest precision of each product."""
        return {product: choices[0] for product, choices in self.choices.items()}

    @cached_property
    def fastest(self) -> Array:
        """Return the error of each input set with all products in their fastest precision."""
        return self.errors(self.first)

    def least(self) -> dict[str, str]:
        """Return the precisions after the fewest steps that the budget needs, less those that it does not after all."""
        first, steps = self.first, self.steps
        count = bisect_left(range(len(steps)), True, key=lambda n: self.assures(taken(first, steps[:n])))
        found = taken(first, steps[:count])
        for step in reversed(steps[: max(count - 1, 0)]):
            back = {**found, step.product: step.before}
            if found[step.product] == step.after and self.assures(back):
                found = back
        return self.settled(found)

    def holds(self, precisions: Precisions) -> bool:
        """Return whether the error of a choice, as it is expected on further inputs, is within the budget."""
        return self._is_within(precisions, self._expected)

    def assures(self, precisions: Precisions) -> bool:
        """Return whether these inputs assure that the error of a choice is within the budget on further ones."""
        return self._is_within(precisions, partial(assured, self.accuracy, further=self.further))

    def expected(self, precisions: Precisions) -> float:
        """Return the error of a choice as it is expected on further inputs."""
        return self._expected(self.errors(precisions))

    def _expected(self, errors: Array) -> float:
        return expected(self.accuracy, errors, self.further)

    def _is_within(self, precisions: Precisions, error_of: Callable[[Array], float]) -> bool:
        """Return whether an error is within the budget. No input set is run after one by which it is beyond, which the
        next choice begins with."""
        errors = np.zeros(len(self.seen.sets))
        for at in self._order:
            (errors[at],) = self.errors(precisions, slice(at, at + 1))
            if self._is_beyond(errors, at, error_of):
                self._order.insert(0, self._order.pop(self._order.index(at)))
                return False
        return error_of(errors) <= self.accuracy.limit

    def _is_beyond(self, errors: Array, last: int, error_of: Callable[[Array], float]) -> bool:
        """Return whether a choice is beyond the budget whatever comes, which has no errors yet after the ``last``: a
        mean is not where other input sets may make up for it, as the fastest choice wins labels."""
        if not self.accuracy.is_mean:
            return bool(errors[last] > self.accuracy.limit)
        if errors[last] <= 0 or self.fastest.min() < 0:
            return False
        return error_of(errors) > self.accuracy.limit

    def errors(self, precisions: Precisions, which: slice = slice(None)) -> Array:
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


__all__ = ["PrecisionSearch", "chosen_within", "precisions_of", "quantize_within"]
