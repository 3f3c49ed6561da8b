"""The protocol of benchmarks with peers: a suite of problems, ours and the peers' interleaved, as records."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from autotune.bench.columns import OWN, UNTUNED, best_peer, to_best
from autotune.bench.experiment import FrameRows, Record, Say
from autotune.bench.own import Own, enter, known_history, tune_up_to
from autotune.bench.problem import BenchmarkCase, Problem, write_graph, write_inputs, write_onnx, write_recipe
from autotune.bench.side_by_side import Competitor, CompetitorResult, Pace, SideBySide, difference
from autotune.bench.systems import System, find_peers
from autotune.bench.tables import duration, ratio
from autotune.errors import UsageError
from autotune.files import scratch_folder
from autotune.suggest import counted
from autotune.tuning.report.history import History
from autotune.tuning.report.progress import PlainLines

_LEAST_TUNE_S = 5.0


@dataclass(frozen=True)
class PeerTuning:
    """The tuning of a peer for each case; ``folder`` keeps what it found, None for this run only."""

    trials: int = 64
    seconds: float = 1800.0
    folder: Path | None = None


@dataclass(frozen=True)
class BenchmarkPlan:
    """A comparison: its threads, peers and pace, and how many trials to tune before (None: not at all)."""

    threads: Sequence[int]
    peers: Sequence[System] = ()
    pace: Pace = field(default_factory=Pace)
    database: str | None = None
    trials: int | None = None
    trials_per_workload: bool = False
    tune_s: float | None = None
    """Seconds for all tuning together, shared by the problems that are left; None for no limit."""

    peer_tuning: PeerTuning = field(default_factory=PeerTuning)


def plan_of(
    options: Mapping[str, Any],
    *,
    first: Sequence[System] = (),
    native: bool = False,
    trials_per_workload: bool = False,
) -> BenchmarkPlan:
    """Return the plan of :func:`autotune.bench.options.side_by_side`; the systems ``first`` come before the peers.

    Raises UsageError and MissingExtraError for a peer that is not known or not installed.
    """
    minutes = options["minutes"]
    return BenchmarkPlan(
        options["threads"],
        [*first, *find_peers(options["peers"], options["peer_pythons"])],
        Pace(options["rounds"], options["processes"], options["turn"], native=native),
        options["database"],
        options["trials"],
        trials_per_workload,
        60 * minutes if minutes else None,
        PeerTuning(options["peer_trials"], 60 * options["peer_minutes"], options["peer_folder"]),
    )


def compare(cases: Iterable[BenchmarkCase], plan: BenchmarkPlan, say: Say) -> Iterator[list[Record]]:
    """Run every case at every number of threads; yield a record for each contender as soon as all of a case are there.

    Wrong usage is raised; whatever else goes wrong with a case is in its records, because hours of other results must
    not be lost to it.
    """
    listed = list(cases)
    left = _Share(plan.tune_s, len(plan.threads) * len(listed))
    for threads in plan.threads:
        with (
            scratch_folder("autotune-bench-") as scratch,
            SideBySide(threads, scratch, plan.pace) as running,
        ):
            for number, case in enumerate(listed, start=1):
                say(f"[{number}/{len(listed)}] {case.family} {case.name}, {counted(threads, 'thread')}")
                folder = scratch / str(number)
                folder.mkdir()
                records = _one(case, plan, running, folder, say, left)
                shutil.rmtree(folder)  # of large models nothing must stay until the end
                say(f"    {_short(FrameRows(records))}")
                yield records


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
    case: BenchmarkCase, plan: BenchmarkPlan, running: SideBySide, folder: Path, say: Say, left: _Share
) -> list[Record]:
    threads = running.threads
    about: dict[str, Any] = {"family": case.family, "case": case.name, "threads": threads}
    try:
        problem = case.build()
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 - shown in the table
        return [_failed(about, error)]
    about |= {"flops": problem.flops, "bytes": problem.bytes}
    own, records = None, list[Record]()
    try:
        if plan.trials is not None:
            _tune(problem, plan, threads, say, left)
        own = enter(problem, folder, threads, plan.database)
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 - shown in the table
        records.append(_failed(about, error))
    tunes = any(peer.tunes for peer in plan.peers)
    history = known_history(problem, threads, plan.database) if tunes and own and plan.database else None
    kept = _kept_folder(plan.peer_tuning.folder or folder, case, threads)
    peers = peer_entries(problem, plan.peers, folder, plan.peer_tuning, kept)
    if tunes:
        limits = plan.peer_tuning
        say(f"    peers tune up to {limits.trials} trials, {limits.seconds / 60:.0f} minutes at most")
    readings = running.run([*(own.entries if own else ()), *peers])
    ours = [r.outputs for name, r in readings.items() if name in OWN and not r.failure]
    for name, reading in readings.items():
        record = {**about, "contender": name, **_reading(reading)}
        if name in OWN:
            records.append(record | {"kind": "own", **_own(own, name, history)})
            continue
        system = next(entry.system for entry in peers if entry.name == name)
        record |= {"kind": system.kind, "label": system.label, "version": running.versions.get(system.label)}
        if ours and reading.outputs:
            adapt = np.asarray if system.form == "graph" else problem.our_output
            record["error"] = max(difference(mine, reading.outputs, adapt) for mine in ours)
        if own is not None and reading.tuned is not None and reading.latency is not None:
            default = readings[UNTUNED].latency
            untuned_ns = None if default is None else default.min_ns
            record["as_fast_s"] = _reached(reading.latency.min_ns, own, untuned_ns, history)
        records.append(record)
    return records


def _failed(about: Mapping[str, Any], error: Exception) -> Record:
    return {**about, "contender": UNTUNED, "kind": "own", "failure": _reason(error)}


def _reading(reading: CompetitorResult) -> dict[str, Any]:
    """Return what was read of a contender, times in nanoseconds."""
    latency, tuned = reading.latency, reading.tuned
    found = {
        "min_ns": latency and latency.min_ns,
        "median_ns": latency and latency.median_ns,
        "spread_ns": latency and latency.spread_ns,
        "runs": latency.n if latency else 0,
        "load_s": reading.load_s,
        "native_ns": reading.native_ns,
        "kinds_ns": dict(reading.kinds) if reading.kinds else None,
        "failure": reading.failure or None,
    }
    if tuned is not None:
        found |= {"trials": tuned.trials, "tune_s": tuned.seconds, "best_after_s": tuned.until_best_s}
        found["tuner_failure"] = tuned.failure or None
    return found


def _own(own: Own | None, name: str, history: History | None) -> dict[str, Any]:
    """Return what is known of our entry beside its readings; the history of tuning is that of the default's row."""
    if own is None:
        return {}
    found: dict[str, Any] = {"compile_s": own.compile_s, "hits": own.hits, "dispatches": own.dispatches}
    if name != UNTUNED and own.gain is not None:
        found |= {"default_to_tuned": own.gain.ratio.median, "gain": own.gain.to_json()}
    if name == UNTUNED and history is not None:
        found |= {"trials": history.trials, "tune_s": history.seconds, "steps": asdict(history)["steps"]}
    return found


def _reached(best: float, own: Own, default: float | None, history: History | None) -> float | None:
    """Return the seconds until we were as fast as the peer's best is in this run; None if we never were."""
    if default is not None and default <= best:
        return own.compile_s
    found = history.reached(best) if history else None
    return None if found is None else own.compile_s + found


def _kept_folder(folder: Path, case: BenchmarkCase, threads: int) -> Path:
    """Return the folder in which peers keep what they found for a case; the same one in the next run."""
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


def _short(rows: FrameRows) -> str:
    parts = [f"{row['contender']} {duration(row.get('min_ns'))}" for row in rows]
    parts += [f"÷ best peer {ratio(to_best(rows))}"] if best_peer(rows) is not None else []
    return ", ".join([*parts, *[f"FAILED: {text}" for text in rows.all("failure")]])


__all__ = ["BenchmarkPlan", "PeerTuning", "compare", "peer_entries", "plan_of"]
