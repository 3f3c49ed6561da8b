"""Two ways to know what layers of eight bits cost, by how well they predict the error of random choices of layers.

``python -m results.bench.quantised.sensitivities MODEL...`` prints the table of docs/precision.md. A layer's square is
that of the error it makes alone, or by how much the square of the error of all falls without it. Of a choice, squares
of its layers are added, or those of the others are taken off the square of all.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

import numpy as np

from autotune.graph.ir import Array
from autotune.quantization.quantize import calibrate_model
from autotune.quantization.switched import SwitchedModel
from autotune.tuning.measure.error_budget import relative
from autotune.tuning.measure.samples import Samples, input_shapes
from results.bench.quantised.digits import NAME, digits
from results.bench.quantised.sources import zoo_source

_SETS, _CHOICES = 8, 24


def squares(model: SwitchedModel, samples: Samples) -> tuple[Array, Array, Array]:
    """Return the squares of the errors of random choices, and what both ways predict for them."""
    products = np.array(model.products)
    reference = model.run(samples.sets, products)

    def square(quantised: Collection[str]) -> float:
        outputs = model.run(samples.sets, set(products) - {*quantised})
        return float(np.mean([relative(*pair) ** 2 for pair in zip(reference, outputs, strict=True)]))

    whole = square(products)
    alone = np.array([square({product}) for product in products])
    without = np.array([whole - square({*products} - {product}) for product in products])
    rng = np.random.default_rng(1)
    sizes = rng.integers(1, len(products), _CHOICES)
    chosen = np.array([np.isin(products, rng.choice(products, size, replace=False)) for size in sizes])
    found = np.array([square(products[choice]) for choice in chosen])
    return found, chosen @ alone, whole - ~chosen @ without


def row(name: str) -> str:
    """Return a line of the table: rank correlations, and by what factor predictions of the error are off."""
    from scipy.stats import spearmanr

    given = digits() if name == NAME else zoo_source(name)
    arrays = {given.input: np.concatenate([*given.calibration[:_SETS]])}
    calibrated = calibrate_model(given.model, arrays, threads=1)
    samples = Samples.of(arrays, input_shapes(given.model, arrays))
    found, *predicted = squares(SwitchedModel(calibrated, arrays, 1), samples)
    ranks = [f"{spearmanr(found, each).statistic:.2f}" for each in predicted]
    off = [_off(each, found) for each in predicted]
    none = [f"{int((each <= 0).sum())} of {len(found)}" for each in predicted]
    return " | ".join(["", name, *ranks, *off, none[1], ""]).strip()


def _off(predicted: Array, found: Array) -> str:
    """Return the median factor between errors of these squares; a dash where no error is predicted for most."""
    if np.median(predicted) <= 0:
        return "–"
    logs = np.log(np.maximum(predicted, np.finfo(np.float64).tiny) / found)
    return f"{np.exp(np.median(np.abs(logs)) / 2):.2f}"


def main(names: Sequence[str]) -> None:
    """Print the table of models."""
    print(
        "| model | rank correlation, alone | all but one | factor off, alone | all but one | of these none |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name in names:
        print(row(name), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

__all__ = ["main", "row", "squares"]
