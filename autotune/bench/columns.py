"""Columns and views of benchmarks with peers: latencies of every contender, ratios to peers, where our time goes.

The frame has a row for each contender at a case (:func:`autotune.bench.compare.compare`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from autotune.bench.experiment import Column, FrameRows, TableView, Value, at, mean_over, over, value_of
from autotune.bench.tables import (
    NOTHING,
    duration,
    geometric_mean,
    number,
    percent,
    plain,
    quotient,
    ratio,
    scientific,
)

UNTUNED, TUNED = OWN = ("default", "tuned")
"""Our contenders."""
CASE = ("family", "case")
GAIN_NOTE = (
    "default speed ÷ tuned: the median over fresh processes in which both are interleaved, as jobs report it, without "
    "Python's share"
)
RATIO_NOTE = "÷ best: our latency (tuned where it is known) ÷ the fastest peer's; below 1 we are faster"
CELL_NOTE = "cells: minimum (median) over all rounds, in several fresh processes, calls from Python"
TOLERANCE = 1e-4
"""A larger relative difference of outputs is said below the table."""


def ours(rows: FrameRows) -> FrameRows:
    """Return our best contender's row of a case: tuned where there is one."""
    tuned = rows.where(contender=TUNED)
    return tuned if tuned.get("min_ns") is not None else rows.where(contender=UNTUNED)


def own(column: str) -> Callable[[FrameRows], Any]:
    """Return what reads a column of our best contender."""
    return lambda rows: ours(rows).get(column)


def best_peer(rows: FrameRows, column: str = "min_ns") -> float | None:
    """Return the best peer's minimum, or the least of the peers' medians."""
    return min(rows.where(kind="peer").all(column), default=None)


def to_best(rows: FrameRows, column: str = "min_ns") -> float | None:
    """Return our latency ÷ the best peer's; below 1 we are faster."""
    return quotient(ours(rows).get(column), best_peer(rows, column))


def to_peer(name: str, column: str = "min_ns") -> Callable[[FrameRows], float | None]:
    """Return what divides our latency by a contender's."""
    return over(own(column), at(column, contender=name))


def share_of(name: str) -> Callable[[FrameRows], float | None]:
    """Return what divides our speed by a contender's."""
    return over(at("min_ns", contender=name), own("min_ns"))


def rate(
    contender: Callable[[FrameRows], FrameRows] = ours, column: str = "flops"
) -> Callable[[FrameRows], float | None]:
    """Return what computes a contender's GFLOP/s, or GB/s for bytes; None where there is nothing to do."""
    return lambda rows: quotient(contender(rows).get(column) or None, contender(rows).get("min_ns"))


def of(name: str) -> Callable[[FrameRows], FrameRows]:
    """Return what selects a contender's row."""
    return lambda rows: rows.where(contender=name)


def side_by_side(
    title: str,
    first: str,
    extras: Sequence[Column] = (),
    where: Callable[[FrameRows], object] = lambda _: True,
) -> TableView:
    """Return the table with a row a case: every contender's latency, our ratios, and the difference of outputs.

    The first column is the case's name, with its family where ``first`` is "operator" or "case".
    """
    family = first in ("operator", "case")

    def name(rows: FrameRows) -> str:
        return f"{rows.get('family')} {rows.get('case')}" if family else str(rows.get("case"))

    def columns(rows: FrameRows) -> list[Column]:
        tuned = bool(rows.where(contender=TUNED))
        peers = bool(rows.where(kind="peer"))
        found = [Column(first, name)]
        found += [Column(who, reading_of(who), latency_text) for who in OWN[: 1 + tuned]]
        found += [Column(label, reading_of(who), latency_text) for who, label in labels(rows).items()]
        if peers:
            found.append(Column("÷ best", to_best, ratio, geometric_mean))
            found.append(
                Column("÷ best (medians)", lambda one: to_best(one, "median_ns"), ratio, geometric_mean)
            )
        if tuned:
            found.append(Column("default speed ÷ tuned", "default_to_tuned", ratio, geometric_mean))
        found += extras
        return [*found, *([Column("max. rel. error", _error, scientific, _largest)] if peers else [])]

    def notes(rows: FrameRows) -> Iterator[str]:
        yield CELL_NOTE
        if rows.where(kind="peer"):
            yield RATIO_NOTE
        if rows.where(contender=TUNED):
            yield GAIN_NOTE
        for one in rows.by(*CASE).values():
            yield from _remarks(one)

    return TableView(title, CASE, columns, each=("threads",), where=where, last="geometric mean", notes=notes)


def labels(rows: FrameRows) -> dict[str, str]:
    """Return the others' labels by name, in order."""
    return {row["contender"]: row["label"] for row in rows if row.get("label") is not None}


def reading_of(name: str) -> Callable[[FrameRows], tuple[float | None, float | None] | str | None]:
    """Return what reads a contender's minimum and median; a text where it failed, None where it took no part."""

    def read(rows: FrameRows) -> tuple[float | None, float | None] | str | None:
        mine = rows.where(contender=name)
        if not mine:
            return "failed" if name in OWN and rows.where(kind="own").get("failure") else None
        if mine.get("min_ns") is None:
            return "failed"
        return mine.get("min_ns"), mine.get("median_ns")

    return read


def latency_text(value: Any) -> str:
    """Return a minimum with its median, or why there is none."""
    if not isinstance(value, tuple):
        return plain(value)
    return f"{duration(value[0])} ({duration(value[1])})"


def _error(rows: FrameRows) -> float | None:
    return max(rows.all("error"), default=None)


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _least(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _remarks(rows: FrameRows) -> Iterator[str]:
    """Say what a reader must know of a case: who failed, and whose outputs differ."""
    for row in rows:
        who = "autotune" if row.get("kind") == "own" and row.get("runs") is None else row["contender"]
        for name, why in ((who, row.get("failure")), (f"{who}'s tuner", row.get("tuner_failure"))):
            if why:
                yield f"{row['case']}, {name}: {why.strip().splitlines()[0][:200]}"
                break
    for row in rows:
        error = row.get("error")
        if error is not None and not error <= TOLERANCE:
            yield f"{row['case']}: our output and that of {row['contender']} differ by {error:.1e}"


def families(title: str, where: Callable[[FrameRows], object] = lambda _: True) -> TableView:
    """Return the geometric means a family: our latency ÷ each peer's and the best one's."""

    def columns(rows: FrameRows) -> list[Column]:
        tuned = bool(rows.where(contender=TUNED))
        found = [Column("family", "family"), _cases()]
        found += [
            Column(f"÷ {label}", mean_over(CASE, to_peer(name)), ratio)
            for name, label in labels(rows).items()
        ]
        found.append(Column("÷ best peer", mean_over(CASE, to_best), ratio))
        mean = Column("default speed ÷ tuned", mean_over(CASE, "default_to_tuned"), ratio)
        return [*found, *([mean] if tuned else [])]

    note = "latency ratios by the minima; below 1 we are faster"
    return TableView(title, ("family",), columns, ("threads",), where, overall="all", notes=(note,))


def _cases() -> Column:
    return Column("cases", lambda rows: len(rows.by(*CASE)))


def means(
    title: str,
    head: str,
    value: Value,
    text: Callable[[Any], str],
    extreme: tuple[str, Callable[[Iterable[Any]], Any]],
    notes: Sequence[str] = (),
) -> TableView:
    """Return the geometric means a family of a value of cases, and its extreme."""
    name, choose = extreme

    def worst(rows: FrameRows) -> Any:
        return choose(value_of(value, one) for one in rows.by(*CASE).values())

    columns = (
        Column("family", "family"),
        _cases(),
        Column(head, mean_over(CASE, value), text),
        Column(name, worst, text),
    )
    return TableView(title, ("family",), columns, ("threads",), overall="all", notes=notes)


def native_families(title: str, peer: str) -> TableView:
    """Return the geometric means a family of latency ratios without Python's share, and the largest."""
    return means(
        title,
        "latency ratio, geometric mean",
        to_peer(peer, "native_ns"),
        ratio,
        ("largest", _largest),
        ("calls from compiled loops; below 1 we are faster",),
    )


def floor_families(title: str, floor: str) -> TableView:
    """Return the geometric means a family of our speed in percent of a floor's, and the least."""
    return means(title, f"% of {floor}, geometric mean", share_of(floor), percent(unit=""), ("least", _least))


def kernel_families(title: str) -> TableView:
    """Return which kind of dispatch our time goes to, with the best schedules known."""

    def columns(rows: FrameRows) -> list[Column]:
        kinds = sorted({kind for found in rows.where(kind="own").all("kinds_ns") for kind in found})
        return [Column("model", "case"), *(Column(kind, _share(kind), _percent) for kind in kinds)]

    return TableView(
        title,
        CASE,
        columns,
        ("threads",),
        own("kinds_ns"),
        notes=("percent of the sum over dispatches, each at its fastest of ten profiled runs",),
    )


def _share(kind: str) -> Callable[[FrameRows], float]:
    def share(rows: FrameRows) -> float:
        profile: Mapping[str, float] = own("kinds_ns")(rows) or {}
        return profile.get(kind, 0.0) / (sum(profile.values()) or 1.0)

    return share


def _percent(share: float) -> str:
    return f"{100 * share:.1f}" if share > 0 else NOTHING


def family_gains(title: str) -> TableView:
    """Return what tuning changed, by kind of dispatch: milliseconds untuned → tuned."""

    def profiles(rows: FrameRows, name: str) -> Counter[str]:
        total: Counter[str] = Counter()
        for found in rows.where(contender=name).all("kinds_ns"):
            total.update(found)
        return total

    def change(kind: str | None) -> Callable[[FrameRows], tuple[float, float]]:
        def read(rows: FrameRows) -> tuple[float, float]:
            before, after = (profiles(rows, name) for name in OWN)
            return (before.total(), after.total()) if kind is None else (before[kind], after[kind])

        return read

    def columns(rows: FrameRows) -> list[Column]:
        kinds = sorted({*profiles(rows, UNTUNED), *profiles(rows, TUNED)})
        found = [Column(kind, change(kind), _change) for kind in kinds]
        return [Column("model", "case"), *found, Column("all", change(None), _change)]

    notes = (
        "milliseconds untuned → tuned; sums over dispatches, each at its fastest of ten profiled runs: where time "
        "goes, and no measure of what the model gains",
        "another algorithm moves time between families: Winograd's products are contractions",
    )
    return TableView(
        title,
        CASE,
        columns,
        ("threads",),
        lambda one: one.where(contender=TUNED).get("kinds_ns"),
        overall="all",
        notes=notes,
    )


def _change(pair: tuple[float, float]) -> str:
    return f"{pair[0] / 1e6:.2f} → {pair[1] / 1e6:.2f}" if any(pair) else NOTHING


_RACE_NOTES = (
    "÷ its best: our minimum, untuned and at its best, ÷ its minimum, all from their turns in this run; below 1 we "
    "are faster",
    "as fast after: from the beginning of our tuning jobs to the first run that made the operator as fast as its "
    "best, each run as it was read then; with the default as fast, the time of compiling it",
    "its best after: until the end of the batch of trials with its best",
    "seconds of tuning are without starting processes and importing packages, of both",
)


def race(title: str, peer: str, label: str) -> TableView:
    """Return how long we and a peer that tunes took, what each reached, and when we were as fast as the peer became."""
    mine, its = {"contender": UNTUNED}, {"contender": peer}
    seconds = number(1, " s")
    rates = tuple(over(at("trials", **who), at("tune_s", **who)) for who in (mine, its))
    as_fast = at("as_fast_s", **its)
    default = over(at("min_ns", **mine), at("min_ns", **its))
    columns = (
        Column("operator", lambda rows: f"{rows.get('family')} {rows.get('case')}"),
        Column("our trials", at("trials", **mine)),
        Column("seconds", at("tune_s", **mine), seconds),
        Column("trials/s", rates[0], ratio),
        Column(f"{label} trials", at("trials", **its)),
        Column("seconds", at("tune_s", **its), seconds),
        Column("trials/s", rates[1], ratio),
        Column("our trials/s ÷ its", over(*rates), ratio, geometric_mean),
        Column("default ÷ its best", default, ratio, geometric_mean),
        Column("latency ÷ its best", to_peer(peer), ratio, geometric_mean),
        Column("its best after", at("best_after_s", **its), seconds),
        Column("as fast after", as_fast, seconds),
        Column(
            "our time ÷ its",
            over(as_fast, at("best_after_s", **its)),
            lambda value: ratio(value, 3),
            geometric_mean,
        ),
    )
    return TableView(
        title,
        CASE,
        columns,
        ("threads",),
        lambda one: one.where(**its),
        last="geometric mean",
        notes=_RACE_NOTES,
    )


__all__ = [
    "CASE",
    "OWN",
    "TUNED",
    "UNTUNED",
    "best_peer",
    "families",
    "family_gains",
    "floor_families",
    "kernel_families",
    "labels",
    "latency_text",
    "native_families",
    "of",
    "ours",
    "own",
    "race",
    "rate",
    "reading_of",
    "share_of",
    "side_by_side",
    "to_best",
    "to_peer",
]
