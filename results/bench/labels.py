"""Do trained networks keep their labels within an asked loss: digits, and words that recognisers of text read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, Record, Say, TableView
from autotune.bench.side_by_side import Competitor, Pace, SideBySide
from autotune.bench.systems import OURS
from autotune.bench.tables import duration, percent, plain, ratio
from autotune.compiler.request import CompileRequest
from autotune.files import scratch_folder
from autotune.graph.ir import Array
from autotune.quantization.compiling import compile_within, with_sizes
from autotune.quantization.precision import PRECISIONS, Precisions, products_in
from autotune.quantization.quantize import quantize
from autotune.runtime.artifacts import artifact
from autotune.runtime.compiled import Compiled
from autotune.runtime.module import Module
from autotune.tuning.compiling import compile_request
from autotune.tuning.measure.error_budget import Accuracy
from results.bench.quantised.digits import NAME, digits
from results.bench.quantised.recogniser import SHAPE, Recogniser, words

BUDGETS = ("2%", "5%")
_PLAIN = "float32"
_EIGHT = "autotune quantize"


@dataclass(frozen=True)
class _Trained:
    """A model of one input, its input sets [sets, ...] with the right label of each, and what reads a label."""

    name: str
    model: Any
    input: str
    sets: Array
    labels: Sequence[Any]
    read: Callable[[Mapping[str, Array]], Any]

    def changed(self, reference: Mapping[str, Array], outputs: Mapping[str, Array]) -> float:
        """Return 1 for another label than float32 gives, 0 for the same: the mean is at least the loss."""
        return float(self.read(reference) != self.read(outputs))

    def labelled(self, model: Compiled, first: int) -> list[Any]:
        """Return the labels that a compiled model gives to the sets from one on."""
        with Module(model) as module:
            return [self.read(module.run({self.input: each})) for each in self.sets[first:]]


def measure(
    say: Say,
    names: Sequence[str],
    threads: int,
    sets: int,
    fresh: int,
    budget: Sequence[str],
    rounds: int,
    turn: float,
) -> Iterator[Sequence[Record]]:
    """Compile each network within each budget, count labels of inputs that were not given, and time all interleaved."""
    for name in names or (NAME,):
        trained = _trained(name, sets + fresh)
        given = {trained.input: np.concatenate([*trained.sets[:sets]])}
        request = CompileRequest(trained.model, threads=threads)
        made: dict[str, tuple[Compiled, Precisions]] = {_PLAIN: (compile_request(request).model, {})}
        for each in budget or BUDGETS:
            say(f"{trained.name} within a loss of {each}")
            done = compile_within(request, Accuracy.of((trained.changed, _share(each), "mean")), given)
            made[f"within {each}"] = done.compiled.model, done.precisions
        eight = quantize(trained.model, given, threads=threads).model
        made[_EIGHT] = compile_request(CompileRequest(eight, threads=threads)).model, {}
        yield [*_rows(trained, made, sets, threads, Pace(rounds, turn_s=turn, rest_s=0.02))]


def _trained(name: str, count: int) -> _Trained:
    if name == NAME:
        source = digits()
        right = source.labels
        assert right is not None, "digits have labels"
        return _Trained(
            name, source.model, source.input, source.held_back[:count], right[:count].tolist(), _greatest
        )
    found = Recogniser(Path(name))
    request = with_sizes(CompileRequest(found.model, shapes={found.input: SHAPE}))
    labels, images = words(count, 0)
    return _Trained(Path(name).stem, request.model, found.input, images[:, None], labels, found.read)


def _greatest(outputs: Mapping[str, Array]) -> int:
    return int(next(iter(outputs.values())).argmax())


def _share(text: str) -> float:
    return float(text.removesuffix("%")) / 100


def _rows(
    trained: _Trained,
    made: Mapping[str, tuple[Compiled, Precisions]],
    first: int,
    threads: int,
    pace: Pace,
) -> Iterator[Record]:
    labels = {setting: trained.labelled(model, first) for setting, (model, _) in made.items()}
    times = _timed(trained, {setting: model for setting, (model, _) in made.items()}, threads, pace)
    right = np.array(trained.labels[first:])
    for setting, (_, precisions) in made.items():
        counts = {one: len(products_in(precisions, one)) for one in PRECISIONS}
        before, after = np.array(labels[_PLAIN]), np.array(labels[setting])
        yield {
            "model": trained.name,
            "threads": threads,
            "setting": setting,
            "products": ", ".join(f"{count} {one}" for one, count in counts.items() if count) or "–",
            "right": float((after == right).mean()),
            "lost": float((before == right).mean() - (after == right).mean()),
            "changed": float((before != after).mean()),
            "median_ns": times[setting],
            "over": times[setting] / times[_PLAIN],
        }


def _timed(trained: _Trained, models: Mapping[str, Compiled], threads: int, pace: Pace) -> dict[str, float]:
    """Return the median latency of each in ns, interleaved in fresh processes."""
    with scratch_folder("autotune-labels-") as folder, SideBySide(threads, folder, pace) as running:
        np.save(folder / "x.npy", trained.sets[0])
        entries = []
        for at, (setting, model) in enumerate(models.items()):
            artifact.save(model, str(folder / f"{at}.atm"))
            file, feed = str(folder / f"{at}.atm"), {trained.input: str(folder / "x.npy")}
            entries.append(Competitor(setting, OURS, file, feed))
        found = running.run(entries)
    return {
        name: float("nan") if each.latency is None else each.latency.median_ns for name, each in found.items()
    }


_VIEW = TableView(
    "Labels, {threads}",
    ("model", "setting"),
    (
        Column("model", "model"),
        Column("setting", "setting", plain),
        Column("products", "products", plain),
        Column("labels right", "right", percent(1)),
        Column("lost", "lost", percent(1)),
        Column("other than float32", "changed", percent(1)),
        Column("median", "median_ns", duration),
        Column("÷ float32", "over", ratio),
    ),
    notes=lambda _: (
        "labels of inputs that the command was not given; lost: less right ones than in float32",
        "a budget is of the share of labels that are other ones than in float32, which is at least the loss: the mean "
        "of a function of the outputs, for words of the text that they say",
        "autotune quantize: all products in eight bits, without a budget",
    ),
)

EXPERIMENT = Experiment(
    title="Labels of trained networks",
    about='Trained networks compiled by `autotune.compile(accuracy=(function, limit, "mean"))` from nothing: labels of '
    "inputs that were not given, and latencies interleaved with float32. Words of random letters are drawn by Pillow; "
    "the recognisers are files in the wheels of RapidOCR.",
    summary="Labels that trained networks keep within budgets; NAMES are digits and ONNX files of recognisers.",
    example="digits PP-OCRv6_rec_small.onnx -o results/labels.md",
    options=(
        options.words(),
        options.number("--threads", 1, "Workers."),
        options.number("--sets", 440, "Inputs that a command is given."),
        options.number("--fresh", 600, "Inputs that labels are counted of."),
        click.Option(
            ["--budget"], multiple=True, metavar="SHARE", help="Shares of labels. [default: 2%, 5%]"
        ),
        options.number("--rounds", 9, "Rounds of each."),
        options.seconds("--turn", 0.05, "Seconds of a round of each."),
    ),
    measure=measure,
    views=(_VIEW,),
)

__all__ = ["BUDGETS", "EXPERIMENT"]
