"""The cost of open sizes: a request beside the model compiled for its exact sizes, and memory over mixed requests."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import autotune
from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, Record, Say, TableView, over
from autotune.bench.interleaved import interleaved
from autotune.bench.problem import write_onnx
from autotune.bench.suites import models
from autotune.bench.tables import duration, geometric_mean, number, ratio
from results.bench.load_times import typical
from results.bench.worker_requests import resident

if TYPE_CHECKING:
    import onnx

_IMAGE = {"height": "160..224:+32:160,224", "width": "160..224:+32:160,224"}
_TRIED = ((224, 224), (160, 160), (192, 192), (160, 224))
OPEN: Mapping[str, tuple[Mapping[int, str], Mapping[str, str], Sequence[tuple[int, ...]]]] = {
    "mlp": ({0: "batch"}, {"batch": "1..64:16,64"}, ((64,), (16,), (40,))),
    "encoder": ({1: "length"}, {"length": "1..128:32,128"}, ((128,), (32,), (80,))),
    "squeezenet": ({2: "height", 3: "width"}, _IMAGE, _TRIED),
    "mobilenetv2": ({2: "height", 3: "width"}, _IMAGE, _TRIED),
}
"""By model, the axes of its input that are opened, their ranges, and the sizes that are timed."""


@dataclass(frozen=True)
class _OpenModel:
    """A file whose only input has this shape, but for the axes that have names; and their ranges."""

    path: str
    shape: Sequence[int]
    axes: Mapping[int, str]
    ranges: Mapping[str, str]

    def module(self, sizes: Mapping[str, str], threads: int) -> Any:
        """Return the model compiled for sizes, or for ranges of them."""
        return autotune.compile_for_sizes(self.path, sizes, threads=threads)

    def input(self, sizes: Mapping[str, int]) -> Any:
        """Return random numbers of a request of these sizes."""
        own = [sizes[self.axes[place]] if place in self.axes else n for place, n in enumerate(self.shape)]
        return np.random.default_rng(0).standard_normal(own).astype(np.float32)


def measure(
    say: Say, names: Sequence[str], threads: int, rounds: int, requests: int
) -> Iterator[Sequence[Record]]:
    """Yield records of the times of requests, then of memory after quarters of mixed ones.

    Raises what compiling the models raises.
    """
    for case in models.models(names or tuple(OPEN)):
        axes, ranges, tried = OPEN[case.name]
        say(f"{case.name}: compiled for {ranges}, and for each of {len(tried)} sizes alone")
        model = case.build().model
        assert model is not None
        shape = [each.dim_value for each in model.graph.input[0].type.tensor_type.shape.dim]
        with tempfile.TemporaryDirectory() as folder:
            opened = _OpenModel(str(Path(folder, "model.onnx")), shape, axes, ranges)
            write_onnx(with_open_axes(model, axes), Path(opened.path))
            module = opened.module(ranges, threads)
            about = {"model": case.name, "threads": threads}
            for sizes in tried:
                found = _timed(module, opened, dict(zip(ranges, sizes, strict=True)), threads, rounds)
                yield [{**about, **record} for record in found]
            yield [{**about, "requests": requests, **_memory(module, opened, requests)}]


def with_open_axes(model: onnx.ModelProto, axes: Mapping[int, str]) -> onnx.ModelProto:
    """Return the model with named axes of its first input; what is said of other shapes, and reshapes to the size, are
    left to shape inference."""
    import onnx
    from onnx import numpy_helper

    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    dims = opened.graph.input[0].type.tensor_type.shape.dim
    fixed = {dims[place].dim_value for place in axes}
    for place, name in axes.items():
        dims[place].dim_param = name
    del opened.graph.value_info[:]
    for value in opened.graph.output:
        value.type.tensor_type.ClearField("shape")
    shapes = {node.input[1] for node in opened.graph.node if node.op_type == "Reshape"}
    for tensor in opened.graph.initializer:
        if tensor.name in shapes:
            wanted = [-1 if size in fixed else int(size) for size in numpy_helper.to_array(tensor)]
            if wanted.count(-1) <= 1:
                tensor.CopyFrom(numpy_helper.from_array(np.array(wanted, np.int64), tensor.name))
    return opened


def _timed(
    module: Any, model: _OpenModel, sizes: Mapping[str, int], threads: int, rounds: int
) -> list[Record]:
    exact, x = model.module({name: str(size) for name, size in sizes.items()}, threads), model.input(sizes)
    np.testing.assert_allclose(module(x)[0], exact(x)[0], rtol=1e-3, atol=1e-4)
    turns = {"open": partial(_least, module, x), "exact": partial(_least, exact, x)}
    text = ", ".join(f"{name} {size}" for name, size in sizes.items())
    return [
        {"of": "times", "sizes": text, "round": count, "system": name, "ns": ns}
        for count, name, ns in interleaved(turns, rounds + 1)
        if count
    ]


def _least(module: Any, x: Any, calls: int = 20) -> int:
    """Return nanoseconds of the fastest of some calls from Python, copies of a padded request included."""
    times = []
    for _ in range(calls):
        begin = time.perf_counter_ns()
        module(x)
        times.append(time.perf_counter_ns() - begin)
    return min(times)


def _memory(module: Any, model: _OpenModel, requests: int) -> Record:
    """Return resident bytes after a tenth and the whole of requests of random sizes, and the most at any tenth."""
    rng, found = np.random.default_rng(1), []
    for count in range(1, requests + 1):
        module(model.input({name: _drawn(rng, text) for name, text in model.ranges.items()}))
        if count % (requests // 10) == 0:
            found.append(resident())
    return {"of": "memory", "first_bytes": found[0], "last_bytes": found[-1], "most_bytes": max(found)}


def _drawn(rng: Any, text: str) -> int:
    """Return a size of a range as it is written."""
    bounds, *rest = text.split(":")
    low, high = (int(each) for each in bounds.split(".."))
    step = next((int(each[1:]) for each in rest if each.startswith("+")), 1)
    return low + step * int(rng.integers(0, (high - low) // step + 1))


EXPERIMENT = Experiment(
    title="Open sizes",
    about=(
        "What it costs that sizes are open: a request to a model compiled for ranges (`open`), beside the same model "
        "compiled for exactly the request's sizes (`exact`), in one process, interleaved. Sizes that are "
        "buckets are computed as they are; others are padded to the next. Then memory of the process over "
        "requests of random sizes."
    ),
    summary="Measure requests of open sizes beside exact ones, and memory; NAMES are among those of the page.",
    example="squeezenet --rounds 5 -o results/open-sizes.md",
    options=(
        options.words(),
        options.workers(),
        options.number("--rounds", 9, "Turns of each."),
        options.number("--requests", 10_000, "Requests of random sizes.", least=10),
    ),
    measure=measure,
    views=(
        TableView(
            "Requests, {threads}",
            ("model", "sizes"),
            (
                Column("model", "model"),
                Column("sizes", "sizes"),
                *(Column(name, typical("ns", system=name), duration) for name in ("open", "exact")),
                Column(
                    "open ÷ exact",
                    over(typical("ns", system="open"), typical("ns", system="exact")),
                    ratio,
                    geometric_mean,
                ),
            ),
            of="times",
            last="geometric mean",
            notes=(
                "medians over turns of the fastest of 20 calls from Python, copies of padded requests included",
                "buckets: "
                + "; ".join(f"{m} {', '.join(dict.fromkeys(r.values()))}" for m, (_, r, _) in OPEN.items()),
            ),
        ),
        TableView(
            "Memory, {threads}",
            ("model",),
            (
                Column("model", "model"),
                Column("requests", "requests"),
                *(
                    Column(label, column, number(1, " MB", 1e6))
                    for label, column in (
                        ("after a tenth", "first_bytes"),
                        ("at the end", "last_bytes"),
                        ("most", "most_bytes"),
                    )
                ),
            ),
            of="memory",
        ),
    ),
)

__all__ = ["EXPERIMENT", "with_open_axes"]
