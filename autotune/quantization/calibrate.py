"""Calibration: a model is compiled with the values that become eight bits as outputs, and run on samples."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from autotune.errors import InputError
from autotune.graph.ir import Array
from autotune.quantization.bias_correction import Channels
from autotune.quantization.network import Network
from autotune.quantization.ranges import Histogram, Method, QuantizedRange, chosen

if TYPE_CHECKING:
    import onnx

    from autotune.runtime.module import Module


def batches(samples: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]) -> list[dict[str, Array]]:
    """Return inputs for each run: arrays have the shapes of the model's inputs, or several of them along
    the first axis.

    Raises:
        InputError: an input is missing, or an array's shape is not that of some runs.
    """
    runs: dict[str, int] = {}
    for name, shape in shapes.items():
        found = _given(name, samples).shape
        first = shape[0] if shape else 1
        if (
            len(found) != len(shape)
            or found[1:] != shape[1:]
            or (shape and (not found[0] or found[0] % first))
        ):
            allowed = f"{shape}, or a multiple of {first} along the first axis" if shape else "()"
            raise InputError(f"calibration: input {name!r} has shape {found}, not {allowed}")
        runs[name] = found[0] // first if shape else 1
    count = max(runs.values(), default=1)
    wrong = [name for name, n in runs.items() if n not in (1, count)]
    if wrong:
        raise InputError(f"calibration: input {wrong[0]!r} has {runs[wrong[0]]} runs, others have {count}")

    def part(name: str, run: int) -> Array:
        array, shape = samples[name], shapes[name]
        if runs[name] == 1:
            return array
        return np.ascontiguousarray(array[run * shape[0] : (run + 1) * shape[0]])

    return [{name: part(name, run) for name in shapes} for run in range(count)]


def fixed_shapes(module: Module) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a model's inputs by name; the model was compiled for fixed ones."""
    return {spec.name: tuple(int(size) for size in spec.shape) for spec in module.inputs}  # type: ignore[arg-type]


def open_sizes(model: onnx.ModelProto, samples: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    """Return shapes of the inputs that leave sizes open: 1 along the first axis, where samples follow one another,
    else those of the samples.

    Raises:
        InputError: there are no samples of such an input, or they have another rank.
    """
    fixed = {tensor.name for tensor in model.graph.initializer}
    found = dict[str, tuple[int, ...]]()
    for value in model.graph.input:
        dims = [int(dim.dim_value) for dim in value.type.tensor_type.shape.dim]
        if value.name in fixed or all(dims):
            continue
        given = _given(value.name, samples).shape
        if len(given) != len(dims):
            raise InputError(
                f"calibration: input {value.name!r} has shape {given}, not {len(dims)} dimensions"
            )
        found[value.name] = tuple(size or (given[i] if i else 1) for i, size in enumerate(dims))
    return found


def _given(name: str, samples: Mapping[str, Array]) -> Array:
    if name not in samples:
        given = ", ".join(sorted(samples)) or "none"
        raise InputError(f"calibration has no input {name!r}\n  the file has: {given}")
    return samples[name]


@dataclass(frozen=True)
class CalibrationStatistics:
    """Statistics over all samples: the range of each value, and the mean of each channel where it was asked for."""

    ranges: dict[str, QuantizedRange] = field(default_factory=dict)
    means: dict[Channels, Array] = field(default_factory=dict)


def calibrate(
    network: Network,
    values: Sequence[str],
    channels: Collection[Channels],
    samples: Mapping[str, Array],
    method: Method,
    percentile: float,
    threads: int | None,
) -> CalibrationStatistics:
    """Run the network on samples; ``channels`` are of some of the values.

    Raises:
        InputError: samples do not fit the inputs, or give values that are not finite.
    """
    from autotune.tuning.api import compile

    inputs = [value for value in values if value in network.inputs]
    inner = [value for value in values if value not in inputs]
    model = network.model([v for v in inner if v not in network.outputs])
    module = compile(model, shapes=open_sizes(model, samples), threads=threads)
    feeds = batches(samples, fixed_shapes(module))

    def seen() -> Iterator[dict[str, Array]]:
        for feed in feeds:
            found = module.run(feed)
            yield {value: np.asarray(feed[value] if value in feed else found[value]) for value in values}

    histograms, means = dict[str, Histogram](), dict[Channels, Array]()
    for found in seen():
        for value, array in found.items():
            low, high = float(array.min()), float(array.max())
            if not np.isfinite([low, high]).all():
                raise InputError(f"calibration: value {value!r} is not finite for some sample")
            before = histograms.setdefault(value, Histogram(low, high))
            before.low, before.high = min(before.low, low), max(before.high, high)
        for value, axis in channels:
            array = np.moveaxis(found[value], axis, 0)
            mean = array.reshape(len(array), -1).mean(1, dtype=np.float64) / len(feeds)
            means[value, axis] = means.get((value, axis), np.zeros(())) + mean
    if method != "minmax":
        for found in seen():
            for value, array in found.items():
                histograms[value].add(array)
    return CalibrationStatistics(
        {value: chosen(each, method, percentile) for value, each in histograms.items()}, means
    )


__all__ = ["CalibrationStatistics", "batches", "calibrate", "fixed_shapes", "open_sizes"]
