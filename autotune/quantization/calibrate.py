"""Calibration: a model is compiled with the values that become eight bits as outputs, and run on samples."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from autotune.compiler.request import CompileRequest
from autotune.compiler.shared import SharedWork
from autotune.errors import InputError
from autotune.graph.ir import Array
from autotune.quantization.bias_correction import Channels
from autotune.quantization.network import Network
from autotune.quantization.ranges import Histogram, Method, QuantizedRange, chosen
from autotune.tuning.api import module_of
from autotune.tuning.measure.samples import batches, fixed_shapes, open_sizes


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
    shared: SharedWork | None = None,
) -> CalibrationStatistics:
    """Run the network on samples; ``channels`` are of some of the values.

    Its code is made with the ``shared`` work.

    Raises:
        InputError: samples do not fit the inputs, or give values that are not finite.
    """
    inputs = [value for value in values if value in network.inputs]
    inner = [value for value in values if value not in inputs]
    model = network.model([v for v in inner if v not in network.outputs])
    request = CompileRequest(model, shapes=open_sizes(model, samples), threads=threads, shared=shared)
    module = module_of(request)
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


__all__ = ["CalibrationStatistics", "calibrate"]
