"""How long we and a peer tuned, what each reached, and when we were as fast as the peer became."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.bench.own import UNTUNED_NAME
from autotune.bench.result import Result
from autotune.bench.side_by_side import Tuned
from autotune.bench.tables import NOTHING, Table, geometric_mean, ratio

_NOTES = (
    "÷ its best: our minimum, untuned and at its best, ÷ its minimum, all from their turns in this run; below 1 we "
    "are faster",
    "as fast after: from the beginning of our tuning jobs to the first run that made the operator as fast as its "
    "best, each run as it was read then; with the default as fast, the time of compiling it",
    "its best after: until the end of the batch of trials with its best",
    "seconds of tuning are without starting processes and importing packages, of both",
)


def race(title: str, results: Sequence[Result], peer: str, label: str) -> Table:
    """One row a case: trials, seconds and rates of both, the ratio of latencies, and the times to get there."""
    columns = (
        "operator", "our trials", "seconds", "trials/s", f"{label} trials", "seconds", "trials/s",
        "our trials/s ÷ its", "default ÷ its best", "latency ÷ its best",
        "its best after", "as fast after", "our time ÷ its",
    )  # fmt: skip
    rows = [_row(result, peer) for result in results]
    reads = (_rates, _default, _best, _times)
    rates, default, best, times = (geometric_mean(read(r, peer) for r in results) for read in reads)
    blank = ("",) * 6
    last = ("geometric mean", *blank, ratio(rates), ratio(default), ratio(best), "", "", ratio(times, 3))
    return Table(title, columns, (*rows, last), _NOTES)


def _row(result: Result, peer: str) -> tuple[str, ...]:
    ours, theirs = result.history, _tuned(result, peer)
    return (
        f"{result.case.family} {result.case.name}",
        *(_effort(ours.trials, ours.seconds) if ours else (NOTHING,) * 3),
        *(_effort(theirs.trials, theirs.seconds) if theirs else (NOTHING,) * 3),
        ratio(_rates(result, peer)),
        ratio(_default(result, peer)),
        ratio(_best(result, peer)),
        _seconds(theirs.until_best_s if theirs else None),
        _seconds(reached(result, peer)),
        ratio(_times(result, peer), 3),
    )


def reached(result: Result, peer: str) -> float | None:
    """Seconds until we were as fast as the peer's best is in this run; None if we never were."""
    best, default = result.min_ns(peer), result.min_ns(UNTUNED_NAME)
    if best is None or result.own is None:
        return None
    if default is not None and default <= best:
        return result.own.compile_s
    found = result.history.reached(best) if result.history else None
    return None if found is None else result.own.compile_s + found


def _tuned(result: Result, peer: str) -> Tuned | None:
    reading = result.readings.get(peer)
    return reading.tuned if reading else None


def _effort(trials: int, seconds: float) -> tuple[str, str, str]:
    return str(trials), _seconds(seconds), ratio(trials / seconds if seconds else None)


def _seconds(seconds: float | None) -> str:
    return NOTHING if seconds is None else f"{seconds:.1f} s"


def _rates(result: Result, peer: str) -> float | None:
    """Our trials a second ÷ the peer's."""
    ours, theirs = result.history, _tuned(result, peer)
    if ours is None or theirs is None or not (ours.seconds and theirs.seconds and theirs.trials):
        return None
    return (ours.trials / ours.seconds) / (theirs.trials / theirs.seconds)


def _default(result: Result, peer: str) -> float | None:
    return result.latency_ratio(UNTUNED_NAME, peer)


def _best(result: Result, peer: str) -> float | None:
    return result.latency_ratio(result.ours_name, peer)


def _times(result: Result, peer: str) -> float | None:
    """Our seconds until we were as fast ÷ the peer's until its best."""
    ours, theirs = reached(result, peer), _tuned(result, peer)
    return ours / theirs.until_best_s if ours is not None and theirs and theirs.until_best_s else None


__all__ = ["race", "reached"]
