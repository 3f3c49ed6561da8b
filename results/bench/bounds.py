"""Distance of dispatches from their bound: where untuned models lose most against the roofline of this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, Record, Say, TableView
from autotune.bench.problem import BenchmarkCase
from autotune.bench.suites import models, operators
from autotune.bench.tables import duration, number, percent
from autotune.compiler import compile_in_detail
from autotune.compiler.explain import Compilation
from autotune.compiler.request import CompileRequest
from autotune.frontends import zoo
from autotune.profiling.profile import DispatchProfile, profile
from autotune.runtime.module import Module

SHOWN = 20
"""Workloads of the table."""


@dataclass(frozen=True)
class Distance:
    """A workload of a case: the dispatches that have it, and what they take together and need at least, in ns."""

    case: BenchmarkCase
    dispatches: tuple[DispatchProfile, ...]

    @property
    def taken_ns(self) -> float:
        """Return what they take."""
        return sum(each.time_ns for each in self.dispatches)

    @property
    def least_ns(self) -> float:
        """Return what the machine needs for them at least."""
        return sum(each.least_ns or 0.0 for each in self.dispatches)

    @property
    def lost(self) -> float:
        """Return the share of its case that lies between the two."""
        return sum(each.share for each in self.dispatches) * (1.0 - self.least_ns / self.taken_ns)

    def record(self, threads: int) -> Record:
        """Return the row of a table."""
        first = self.dispatches[0]
        return {
            "threads": threads,
            "case": f"{self.case.family} {self.case.name}",
            "dispatch": first.name,
            "kind": first.kind,
            "count": len(self.dispatches),
            "time_ns": self.taken_ns / len(self.dispatches),
            "of_bound": self.taken_ns / self.least_ns if self.least_ns else None,
            "bound": first.bound,
            "share": sum(each.share for each in self.dispatches),
            "lost": self.lost,
        }


def distances(case: BenchmarkCase, threads: int, runs: int) -> list[Distance]:
    """Compile a case untuned, run it, and return its workloads. Raises what compiling raises."""
    problem = case.build()
    made = compile_in_detail(CompileRequest(problem.graph, threads=threads))
    keys, grouped = _keys(made), dict[str, list[DispatchProfile]]()
    with Module(made.image, threads) as module:
        found = profile(module, problem.inputs, runs=runs)
    for each in found.dispatches:
        grouped.setdefault(keys[each.name], []).append(each)
    return [Distance(case, tuple(each)) for each in grouped.values()]


def _keys(made: Compilation) -> dict[str, str]:
    return {d.name: d.workload.key for segment in made.segments for d in segment.partition.dispatches}


def cases(names: Sequence[str]) -> Iterable[BenchmarkCase]:
    """Return zoo models and operators such as ``GMM:1,512,512,512``; all of both without names."""
    if not names:
        yield from models.models(models.DEFAULT)
        yield from operators.cases()
    for name in names:
        known = name.removeprefix("zoo:") in zoo.names()
        yield from models.models([name]) if known else operators.named(name)


def measure(say: Say, names: Sequence[str], threads: int, runs: int) -> Iterator[Sequence[Record]]:
    """Yield the workloads that lose the largest share of their case, of all cases. Raises what compiling raises."""
    found = list[Distance]()
    for case in cases(names):
        say(f"{case.family} {case.name}: compiled, then run {runs} times")
        found += distances(case, threads, runs)
    found.sort(key=lambda each: -each.lost)
    yield [each.record(threads) for each in found[:SHOWN]]


EXPERIMENT = Experiment(
    title="Distance from the bound",
    about="The workloads of untuned models and operators that lose the largest share of their model's time between "
    "what they take and what the machine needs for them: arithmetic at the peak, or bytes from where they are "
    "(autotune/profiling/roofline.py). What an operator loses counts as a whole.",
    summary="List the workloads that are farthest from their bound; NAMES are zoo models or operators.",
    example="squeezenet mobilenetv2 DEP -o results/bounds.md",
    options=(options.words(), options.workers(), options.number("--runs", 30, "Runs of each case.")),
    measure=measure,
    views=(
        TableView(
            "Farthest from the bound, {threads}",
            ("case", "dispatch"),
            (
                Column("case, dispatch", lambda rows: f"{rows.get('case')}, {rows.get('dispatch')}"),
                Column("kind", "kind"),
                Column("dispatches", "count"),
                Column("time of one", "time_ns", duration),
                Column("÷ bound", "of_bound", number(1)),
                Column("bound", "bound"),
                Column("share", "share", percent()),
                Column("lost", "lost", percent()),
            ),
        ),
    ),
)

__all__ = ["EXPERIMENT", "Distance", "cases", "distances"]
