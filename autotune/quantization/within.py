"""Quantisation within an error budget: which layers stay in float32.

The error that each layer makes alone says which: errors of layers add up as squares, so that the layers of the largest
square for the time that they save stay first (the greedy rule of the knapsack problem). Choices are judged by the model
whose layers are switched (:mod:`autotune.quantization.switched`), on one half of the inputs; the quantised model that
results is compiled, and judged on the other half.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from autotune.errors import UsageError
from autotune.frontends.onnx.read import ModelSource, read_model
from autotune.graph.ir import Array
from autotune.quantization.quantize import CalibratedModel, Quantization, QuantizeOptions, calibrate_model
from autotune.quantization.switched import SwitchedModel
from autotune.suggest import counted
from autotune.tuning.measure.error_budget import Accuracy, MeasuredError, expected, relative
from autotune.tuning.measure.samples import Samples, input_shapes, open_sizes
from autotune.tuning.report.units import listed

if TYPE_CHECKING:
    import onnx

    from autotune.runtime.module import Module

_LEAST_SAVED = 0.01
"""Of the most that a layer saves: layers that save less, or nothing, count as if they saved that."""


@dataclass(frozen=True)
class WithinBudget:
    """A quantised model, the outputs of its products that stay in float32, and its errors: on the inputs that these
    were chosen by, and on others."""

    quantization: Quantization
    floats: tuple[str, ...]
    chosen_by: MeasuredError
    held_back: MeasuredError

    def to_json(self) -> dict[str, Any]:
        """Return what is known of the errors, as plain values."""
        return {
            "float32": self.floats,
            "chosen_by": self.chosen_by.to_json(),
            "held_back": self.held_back.to_json(),
        }

    def lines(self, budget: str) -> str:
        """Return the same as text."""
        count = self.quantization.products + len(self.floats)
        stay = f"{len(self.floats)} of {counted(count, 'product')} stay in float32"
        return "\n".join(
            [
                f"accuracy {budget}: {stay}{': ' if self.floats else ''}{listed(self.floats)}",
                f"  error on held-back inputs {self.held_back}",
                f"  error on the inputs chosen by {self.chosen_by}",
            ]
        )


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
    proto, threads = read_model(source).proto, options.get("threads")
    seen, held = Samples.of(samples, input_shapes(proto, samples)).split()
    calibrated = calibrate_model(source, seen.arrays, **options)
    choice = _LayerSearch(calibrated, seen, len(held.sets), accuracy, threads)
    order = choice.order()
    floats, more = choice.least(order), 1
    judge = _Judge(source, (seen, held), accuracy, threads)
    while len(floats) < len(order):
        made = calibrated.written(floats)
        errors = judge.errors(made.model)
        if all(error.holds for error in errors):
            kept = tuple(product for product in choice.model.products if product in floats)
            return WithinBudget(made, kept, *errors)
        floats = floats | set([product for product in order if product not in floats][:more])
        more *= 2  # each is a compilation
    raise UsageError(
        f"nothing can be quantised within the accuracy {accuracy}\n  allow a larger error, or give more inputs: the "
        "fewer they are, the more is to be expected of others"
    )


class _LayerSearch:
    """The choice of layers that stay in float32, by forward passes of the switched model."""

    def __init__(
        self,
        calibrated: CalibratedModel,
        seen: Samples,
        further: int,
        accuracy: Accuracy,
        threads: int | None,
    ) -> None:
        self.model = SwitchedModel(calibrated, seen.arrays, threads)
        self.seen, self.further, self.accuracy = seen, further, accuracy
        self.reference = self.model.run(seen.sets, self.model.products)
        self.saved = saved_ns(calibrated, self.model.products, seen.arrays, threads)

    def order(self) -> list[str]:
        """Return the products, what is to stay in float32 first."""
        products = self.model.products
        squares = {
            product: self._square([other for other in products if other != product]) for product in products
        }
        least = _LEAST_SAVED * max(*self.saved.values(), 1.0)

        def score(product: str) -> float:
            return squares[product] / max(self.saved[product], least)

        return sorted(products, key=score, reverse=True)

    def _square(self, floats: Collection[str]) -> float:
        """Return the mean square of the relative error, by which layers are compared under every budget: a share of
        labels is 0 for most layers."""
        pairs = zip(self.reference, self.model.run(self.seen.sets, floats), strict=True)
        return float(np.mean([relative(*pair) ** 2 for pair in pairs]))

    def least(self, order: Sequence[str]) -> frozenset[str]:
        """Return the first products of the order that have to stay for the budget, less those that need not after
        all."""
        count = bisect_left(range(len(order)), True, key=lambda n: self.holds(frozenset(order[:n])))
        floats = frozenset(order[:count])
        for product in reversed(order[: max(count - 1, 0)]):
            if self.holds(floats - {product}):
                floats -= {product}
        return floats

    def holds(self, floats: frozenset[str]) -> bool:
        """Return whether the error of a choice, as it is expected on further inputs, is within the budget."""
        outputs = self.model.run(self.seen.sets, floats)
        errors = self.accuracy.each(self.reference, outputs, self.seen.labels)
        return expected(self.accuracy, errors, self.further) <= self.accuracy.limit


class _Judge:
    """The errors of models on several samples, against a model as it is."""

    def __init__(
        self, source: ModelSource, samples: Sequence[Samples], accuracy: Accuracy, threads: int | None
    ) -> None:
        self.samples, self.accuracy, self.threads = samples, accuracy, threads
        self.shapes = open_sizes(read_model(source).proto, samples[0].arrays)
        self.references = self._outputs(source)

    def errors(self, model: onnx.ModelProto) -> list[MeasuredError]:
        """Return the error on each of the samples."""
        return [
            self.accuracy.judged(self.accuracy.each(reference, outputs, samples.labels))
            for samples, reference, outputs in zip(
                self.samples, self.references, self._outputs(model), strict=True
            )
        ]

    def _outputs(self, model: ModelSource) -> list[list[dict[str, Array]]]:
        from autotune.tuning.api import compile

        module = compile(model, shapes=self.shapes, threads=self.threads)
        return [outputs_of(module, samples) for samples in self.samples]


def outputs_of(module: Module, samples: Samples) -> list[dict[str, Array]]:
    """Return the outputs of a module for each input set."""
    return [{name: np.array(array) for name, array in module.run(each).items()} for each in samples.sets]


def saved_ns(
    calibrated: CalibratedModel, products: Iterable[str], samples: Mapping[str, Array], threads: int | None
) -> dict[str, float]:
    """Return by how much each product is faster in eight bits where all are, as `autotune query` predicts it.

    Products of one dispatch share its time evenly.
    """
    before, after = (
        _spent(model, list(products), samples, threads)
        for model in (calibrated.network.copy().model(), calibrated.written().model)
    )
    return {product: before[product] - after[product] for product in products}


def _spent(
    model: onnx.ModelProto, products: Sequence[str], samples: Mapping[str, Array], threads: int | None
) -> dict[str, float]:
    from autotune.tuning.api import predict

    names = {product: f"product.{i}" for i, product in enumerate(products)}
    for node in model.graph.node:
        node.name = names.get(node.output[0], "")
    spent = dict.fromkeys(products, 0.0)
    for dispatch in predict(model, shapes=open_sizes(model, samples), threads=threads).dispatches:
        own = [product for product in products if names[product] in dispatch.nodes]
        for product in own:
            spent[product] += dispatch.latency_ns / len(own)
    return spent


__all__ = ["WithinBudget", "outputs_of", "quantize_within", "saved_ns"]
