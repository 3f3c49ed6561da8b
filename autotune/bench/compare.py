"""A suite of problems, ours beside peers: what every side-by-side benchmark does."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from autotune.bench.own import enter, known_history, tune_up_to
from autotune.bench.problem import Case, Problem, write_graph, write_inputs, write_onnx, write_recipe
from autotune.bench.result import OWN_NAMES, Result
from autotune.bench.side_by_side import Competitor, CompetitorResult, Pace, SideBySide, difference
from autotune.bench.systems import System
from autotune.bench.tables import duration, ratio
from autotune.errors import UsageError
from autotune.files import scratch_folder
from autotune.tuning.progress import PlainLines

Say = Callable[[str], None]
_LEAST_TUNE_S = 5.0


@dataclass(frozen=True)
class PeerTuning:
    """What a peer that tunes gets for each case; ``folder`` keeps what it found, None for this run only."""

    trials: int = 64
    seconds: float = 1800.0
    folder: Path | None = None


@dataclass(frozen=True)
class BenchmarkPlan:
    """What to compare: threads, peers, pace, and how many trials to tune before (None: not at all)."""

    threads: Sequence[int]
    peers: Sequence[System] = ()
    pace: Pace = field(default_factory=Pace)
    database: str | None = None
    trials: int | None = None
    trials_per_workload: bool = False
    tune_s: float | None = None
    """Seconds for all tuning together, shared by the problems that are left; None for no limit."""

    peer_tuning: PeerTuning = field(default_factory=PeerTuning)


def compare(
    cases: Iterable[Case], plan: BenchmarkPlan, say: Say, versions: dict[str, str] | None = None
) -> Iterator[Result]:
    """Run every case at every number of threads; each result as soon as it is there.

    ``versions`` receives the systems' versions by label. Wrong usage is raised; whatever else goes
    wrong with a case is its result, because hours of other results must not be lost to it.
    """
    listed = list(cases)
    left = _Share(plan.tune_s, len(plan.threads) * len(listed))
    for threads in plan.threads:
        with (
            scratch_folder("autotune-bench-") as scratch,
            SideBySide(threads, scratch, plan.pace) as running,
        ):
            for number, case in enumerate(listed, start=1):
                say(f"[{number}/{len(listed)}] {case.family} {case.name}, {threads} threads")
                folder = scratch / str(number)
                folder.mkdir()
                result = _one(case, plan, running, folder, say, left)
                shutil.rmtree(folder)  # of large models nothing must stay until the end
                say(f"    {_short(result)}")
                if versions is not None:
                    versions.update(running.versions)
                yield result


@dataclass
class _Share:
    """Divides the remaining tuning time equally among the remaining problems; ``seconds`` is None without a limit."""

    seconds: float | None
    problems: int

    def take(self) -> float | None:
        """Seconds that the next problem may use."""
        part = None if self.seconds is None else self.seconds / max(1, self.problems)
        self.problems -= 1
        return part

    def used(self, seconds: float) -> None:
        """Take off the seconds that a problem used."""
        if self.seconds is not None:
            self.seconds = max(0.0, self.seconds - seconds)


def _one(
    case: Case, plan: BenchmarkPlan, running: SideBySide, folder: Path, say: Say, left: _Share
) -> Result:
    threads = running.threads
    try:
        problem = case.build()
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 - shown in the table
        return Result(case, threads, 0, 0, {}, failure=_reason(error))
    own, failure = None, ""
    try:
        if plan.trials is not None:
            _tune(problem, plan, threads, say, left)
        own = enter(problem, folder, threads, plan.database)
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 - shown in the table
        failure = _reason(error)
    tunes = any(peer.tunes for peer in plan.peers)
    history = known_history(problem, threads, plan.database) if tunes and own and plan.database else None
    kept = _kept_folder(plan.peer_tuning.folder or folder, case, threads)
    peers = peer_entries(problem, plan.peers, folder, plan.peer_tuning, kept)
    if tunes:
        limits = plan.peer_tuning
        say(f"    peers tune up to {limits.trials} trials, {limits.seconds / 60:.0f} minutes at most")
    readings = running.run([*(own.entries if own else ()), *peers])
    errors = _errors(problem, readings, {peer.name for peer in plan.peers if peer.form == "graph"})
    bare = {name: replace(reading, outputs=()) for name, reading in readings.items()}
    return Result(case, threads, problem.flops, problem.bytes, bare, errors, own, failure, history)


def _kept_folder(folder: Path, case: Case, threads: int) -> Path:
    """Where peers keep what they found for a case; the same one in the next run."""
    name = re.sub(r"[^\w.]+", "-", f"{case.family}-{case.name}").strip("-")
    return folder / f"{name}-{threads}-threads"


def _tune(problem: Problem, plan: BenchmarkPlan, threads: int, say: Say, left: _Share) -> None:
    """Up to the plan's number of trials, in this problem's share of the time."""
    seconds = left.take()
    if seconds is not None and seconds < _LEAST_TUNE_S:
        say("    no time left to tune")
        return
    limit = "" if seconds is None else f", {seconds / 60:.1f} minutes at most"
    say(f"    tuning up to {plan.trials} trials{' a workload' if plan.trials_per_workload else ''}{limit}")
    begin = time.monotonic()
    report = tune_up_to(
        problem,
        plan.trials or 0,
        threads,
        plan.database,
        per_workload=plan.trials_per_workload,
        seconds=seconds,
        progress=PlainLines(sys.stderr, brief=True),
    )
    left.used(time.monotonic() - begin)
    if report.stopped:
        raise KeyboardInterrupt


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def peer_entries(
    problem: Problem,
    peers: Sequence[System],
    folder: Path,
    tuning: PeerTuning | None = None,
    kept: Path | None = None,
) -> list[Competitor]:
    """The problem in the form that each peer loads; peers without a form of it are left out.

    One that tunes keeps what it finds in ``kept``, by default below ``folder``.
    """
    entries = []
    forms: dict[str, str] = {}
    inputs = write_inputs(problem, folder / "peer_inputs", peer=True) if peers else {}
    for peer in peers:
        if peer.form == "bytes":
            forms["bytes"] = str(problem.bytes // 2)
        elif peer.form == "graph":
            mine = write_inputs(problem, folder / "graph_inputs", peer=False)
            where = write_graph(problem, folder / "graph", kept or folder / "kept")
            limits = tuning or PeerTuning()
            entries.append(Competitor(peer.name, peer, where, mine, limits.trials, limits.seconds))
            continue
        elif problem.model is None:
            continue
        elif peer.form not in forms:
            write = write_onnx if peer.form == "onnx" else write_recipe
            forms[peer.form] = write(problem.model, folder / f"model.{peer.form}")
        entries.append(Competitor(peer.name, peer, forms[peer.form], inputs))
    return entries


def _errors(
    problem: Problem, readings: Mapping[str, CompetitorResult], alike: Container[str]
) -> dict[str, float]:
    """Our largest difference to each peer that gave outputs, over our entries; those ``alike`` have our layout."""
    ours = [r.outputs for name, r in readings.items() if name in OWN_NAMES and not r.failure]
    return {
        name: max(
            difference(mine, reading.outputs, np.asarray if name in alike else problem.our_output)
            for mine in ours
        )
        for name, reading in readings.items()
        if ours and name not in OWN_NAMES and reading.outputs
    }


def _short(result: Result) -> str:
    parts = [f"{name} {duration(result.min_ns(name))}" for name in result.readings]
    parts += [f"÷ best peer {ratio(result.ratio())}"] if result.ratio() is not None else []
    failures = [result.failure, *(r.failure for r in result.readings.values())]
    return ", ".join([*parts, *[f"FAILED: {text}" for text in failures if text]])


__all__ = ["BenchmarkPlan", "PeerTuning", "compare", "peer_entries"]
