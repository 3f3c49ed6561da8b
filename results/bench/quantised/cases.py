"""Cases of quantised models: chosen by words, quantised and judged before the turns, and one case a model for these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.bench.experiment import Record
from autotune.bench.problem import BenchmarkCase, Problem
from autotune.bench.systems import System
from autotune.files import scratch_folder
from autotune.suggest import counted
from results.bench.quantised import digits
from results.bench.quantised.accuracy import accuracies
from results.bench.quantised.quantisers import OURS, THEIRS, OnnxRuntime, quantised
from results.bench.quantised.sources import MODELS, Source, zoo_source

if TYPE_CHECKING:
    import onnx

INTEGER, FLOAT = "quantised model", "float32 model"
"""The families."""
NAMES = (digits.NAME, *MODELS)


@dataclass
class Prepared:
    """Cases, and what was found of them before any is timed."""

    accuracies: list[Record] = field(default_factory=list)
    cases: list[BenchmarkCase] = field(default_factory=list)


def chosen(words: Sequence[str]) -> list[str]:
    """Names of models that have one of the words, all by default."""
    return [name for name in NAMES if not words or any(word in name for word in words)]


def prepare(names: Sequence[str], peer: System | None, threads: int, say: Callable[[str], None]) -> Prepared:
    """Quantise each model by both quantisers and compare outputs with those of float32.

    Raises MissingExtraError without the package that a model's data come from, MeasureError where the peer fails.
    """
    found = Prepared()
    for source in _sources(names):
        say(f"{source.name}: quantised and compared with float32, {counted(threads, 'thread')}")
        with scratch_folder("autotune-quantised-") as folder:
            runtime = None if peer is None else OnnxRuntime(peer, Path(folder))
            models = quantised(source, runtime, threads)
            found.accuracies += accuracies(source, models, runtime, threads)
        found.cases.append(_case(FLOAT, source.name, source, source.model))
        found.cases += [_case(INTEGER, label(source.name, who), source, m) for who, m in models.items()]
    return found


def label(model: str, quantiser: str) -> str:
    """The name of a quantised model in tables."""
    return f"{model}, by {quantiser}"


def model_of(name: str) -> str:
    """The name of the float32 model of a quantised one."""
    return name.split(", by ")[0]


def _sources(names: Sequence[str]) -> Iterator[Source]:
    for name in names:
        yield digits.digits() if name == digits.NAME else zoo_source(name)


def _case(family: str, name: str, source: Source, model: onnx.ModelProto) -> BenchmarkCase:
    def build() -> Problem:
        from autotune.frontends.onnx.importer import load

        return Problem(load(model), {source.input: source.held_back[0]}, model)

    return BenchmarkCase(family, name, build)


__all__ = [
    "FLOAT",
    "INTEGER",
    "NAMES",
    "OURS",
    "THEIRS",
    "Prepared",
    "chosen",
    "label",
    "model_of",
    "prepare",
]
