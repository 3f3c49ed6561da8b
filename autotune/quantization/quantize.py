"""The way from a model and samples to a quantised model, and how near its outputs are."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypedDict, Unpack

import numpy as np

from autotune.compiler.shared import SharedWork
from autotune.errors import UsageError
from autotune.frontends.onnx.read import ModelSource, read_model
from autotune.graph.ir import Array
from autotune.quantization.bias_correction import channels_of, correct
from autotune.quantization.calibrate import CalibrationStatistics, calibrate
from autotune.quantization.choice import QuantizationChoice, choose
from autotune.quantization.fold_norms import fold_norms
from autotune.quantization.network import Network, Quantization
from autotune.quantization.ranges import METHODS, Method
from autotune.quantization.replaced import replace_products
from autotune.quantization.write import write
from autotune.tuning.measure.samples import batches, fixed_shapes, open_sizes


@dataclass(frozen=True)
class CalibratedModel:
    """A model whose values were seen on samples: all that a quantised model of any part of it is written from."""

    network: Network
    leave_out: tuple[str, ...]
    correct_biases: bool
    statistics: CalibrationStatistics

    def choice(self, floats: Collection[str] = ()) -> QuantizationChoice:
        """Return what is quantised where the products of the outputs ``floats`` stay in float32."""
        return choose(self.network, self.leave_out, floats)

    def written(
        self,
        floats: Collection[str] = (),
        replaced: Mapping[str, str] | None = None,
        short: Collection[str] = (),
    ) -> Quantization:
        """Return the quantised model of such a choice; of ``floats`` those that are ``replaced`` become another
        operator (:mod:`autotune.quantization.replaced`), and those that are ``short`` are in bfloat16."""
        network = self.network.copy()
        choice = choose(network, self.leave_out, floats)
        others = [node.output[0] for node in self.choice().products if node.output[0] not in short]
        if self.correct_biases:
            correct(network, choice.products, self.statistics.means)
        write(network, choice, self.statistics.ranges, choose(network, self.leave_out, others))
        replace_products(network, replaced or {})
        return Quantization(network.model(), len(choice.products), len(choice.values))


def calibrate_model(
    source: ModelSource,
    samples: Mapping[str, Array],
    *,
    method: Method = "mse",
    percentile: float = 99.99,
    leave_out: tuple[str, ...] = (),
    correct_biases: bool = True,
    threads: int | None = None,
    shared: SharedWork | None = None,
) -> CalibratedModel:
    """Return what :func:`quantize` writes a model from; takes and raises the same. What
    compilations have in common is in the ``shared`` work."""
    if method not in METHODS:
        raise UsageError(f"unknown method {method!r}\n  one of {', '.join(METHODS)}")
    if not 50 < percentile <= 100:
        raise UsageError(f"percentile {percentile} is not above 50 and at most 100")
    network = Network.read(source)
    fold_norms(network)
    choice = choose(network, leave_out)
    if not choice.products:
        raise UsageError(
            "nothing to quantise: no Conv, MatMul or Gemm with constant float32 weights is left in"
        )
    channels = {channels_of(node) for node in choice.products} if correct_biases else ()
    found = calibrate(network, list(choice.values), channels, samples, method, percentile, threads, shared)
    return CalibratedModel(network, leave_out, correct_biases, found)


def has_products(source: ModelSource) -> bool:
    """Return whether a model has products that can be quantised."""
    network = Network.read(source)
    return bool(choose(network).products)


class QuantizeOptions(TypedDict, total=False):
    """Keywords of what quantises a model, as :func:`calibrate_model` has them."""

    method: Method
    percentile: float
    leave_out: tuple[str, ...]
    correct_biases: bool
    threads: int | None


def quantize(
    source: ModelSource, samples: Mapping[str, Array], **options: Unpack[QuantizeOptions]
) -> Quantization:
    """Quantise a model statically by samples of its inputs, by input name.

    Arrays have the shape of their input, or several of it along the first axis; sizes that the model leaves open are 1
    along the first axis, else those of the arrays. ``method`` says how the range of a
    value follows from what was seen (:mod:`autotune.quantization.ranges`); ``leave_out`` names nodes or operators that
    stay. With ``correct_biases`` the means that rounded weights move are taken off the biases
    (:mod:`autotune.quantization.bias_correction`).

    Raises:
        UsageError: an unknown method or a percentile that is none; nothing in the model can be quantised.
        InputError: samples that do not fit the inputs.
    """
    return calibrate_model(source, samples, **options).written()


@dataclass(frozen=True)
class Agreement:
    """The distance of the outputs of two models over samples.

    ``relative`` is the norm of the difference over that of the first's; ``first`` the share of rows, along the last
    axis, whose greatest element is at the same place.
    """

    relative: float
    first: float


def agreement(
    one: ModelSource, other: ModelSource, samples: Mapping[str, Array], threads: int | None = None
) -> Agreement:
    """Compile two models of the same inputs and outputs and compare what they give for samples."""
    from autotune.tuning.api import compile

    shapes = open_sizes(read_model(one).proto, samples)
    modules = [compile(model, shapes=shapes, threads=threads) for model in (one, other)]
    apart = whole = 0.0
    same, rows = 0, 0
    for feed in batches(samples, fixed_shapes(modules[0])):
        wanted, found = (module.run(feed) for module in modules)
        for name, array in wanted.items():
            a, b = (np.asarray(x, np.float64) for x in (array, found[name]))
            apart += float(((a - b) ** 2).sum())
            whole += float((a**2).sum())
            if a.ndim and a.shape[-1]:
                same += int((a.argmax(-1) == b.argmax(-1)).sum())
                rows += a.size // a.shape[-1]
    return Agreement((apart / whole) ** 0.5 if whole else 0.0, same / rows if rows else 1.0)


__all__ = [
    "Agreement",
    "CalibratedModel",
    "QuantizeOptions",
    "agreement",
    "calibrate_model",
    "has_products",
    "quantize",
]
