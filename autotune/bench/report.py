"""Tables of side-by-side results: a row a case, a mean a family, and where our time goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from autotune.bench.own import TUNED_NAME, UNTUNED_NAME
from autotune.bench.result import FLOORS, OWN_NAMES, Result
from autotune.bench.side_by_side import CompetitorResult
from autotune.bench.tables import NOTHING, Table, duration, geometric_mean, ratio, scientific

RATIO_NOTE = "÷ best: our latency (tuned where it is known) ÷ the fastest peer's; below 1 we are faster"
CELL_NOTE = "cells: minimum (median) over all rounds, in several fresh processes, calls from Python"
GAIN_NOTE = (
    "default speed ÷ tuned: the median over fresh processes in which both take turns, as jobs report it, without "
    "Python's share"
)

TOLERANCE = 1e-4
"""A larger relative difference of outputs is said below the table."""

Extra = tuple[str, Callable[[Result], str]]
"""A column of its own: its head, and a result's cell."""


def side_by_side(
    title: str,
    results: Sequence[Result],
    labels: Mapping[str, str],
    extras: Sequence[Extra] = (),
    *,
    first: str = "case",
    with_family: bool = True,
) -> Table:
    """One row a case: every competitor's latency, our ratios, and the difference of outputs.

    ``labels`` are the peers' by name, in order. The last row has geometric means.
    """
    tuned = any(result.min_ns(TUNED_NAME) is not None for result in results)
    ours = [UNTUNED_NAME, *([TUNED_NAME] if tuned else [])]
    peers = any(name not in FLOORS for name in labels)
    columns = [first, *ours, *labels.values()]
    columns += ["÷ best", "÷ best (medians)"] if peers else []
    columns += ["default speed ÷ tuned"] if tuned else []
    columns += [head for head, _ in extras] + (["max. rel. error"] if peers else [])
    rows = []
    for result in results:
        name = f"{result.case.family} {result.case.name}" if with_family else result.case.name
        cells = [name, *(cell(result, competitor) for competitor in [*ours, *labels])]
        cells += [ratio(result.ratio()), ratio(result.ratio(median=True))] if peers else []
        cells += [ratio(result.default_to_tuned)] if tuned else []
        cells += [of(result) for _, of in extras]
        cells += [scientific(max(result.errors.values(), default=None))] if peers else []
        rows.append(tuple(cells))
    rows.append(tuple(_means(results, len(ours) + len(labels), peers, tuned, len(extras))))
    notes = [
        CELL_NOTE,
        *([RATIO_NOTE] if peers else []),
        *([GAIN_NOTE] if tuned else []),
        *_failures(results),
    ]
    return Table(title, tuple(columns), tuple(rows), tuple(notes))


def cell(result: Result, name: str) -> str:
    """A competitor's latency, or why there is none."""
    reading = result.readings.get(name)
    if reading is None:
        return "failed" if result.failure and name in OWN_NAMES else NOTHING
    if reading.latency is None:
        return "failed"
    return f"{duration(reading.latency.min_ns)} ({duration(reading.latency.median_ns)})"


def _means(results: Sequence[Result], competitors: int, peers: bool, tuned: bool, extras: int) -> list[str]:
    cells = ["geometric mean", *[""] * competitors]
    if peers:
        cells.append(ratio(geometric_mean(r.ratio() for r in results)))
        cells.append(ratio(geometric_mean(r.ratio(median=True) for r in results)))
    if tuned:
        cells.append(ratio(geometric_mean(r.default_to_tuned for r in results)))
    cells += [""] * extras
    return [*cells, scientific(_worst(results))] if peers else cells


def _worst(results: Iterable[Result]) -> float | None:
    return max((error for r in results for error in r.errors.values()), default=None)


def _failures(results: Iterable[Result]) -> list[str]:
    """What a reader must know: who failed, and whose outputs differ."""
    found = []
    for result in results:
        causes = [("autotune", result.failure)]
        causes += [_failure(name, reading) for name, reading in result.readings.items()]
        found += [
            f"{result.case.name}, {who}: {why.strip().splitlines()[0][:200]}" for who, why in causes if why
        ]
        found += [
            f"{result.case.name}: our output and that of {who} differ by {error:.1e}"
            for who, error in result.errors.items()
            if not error <= TOLERANCE
        ]
    return found


def _failure(name: str, reading: CompetitorResult) -> tuple[str, str]:
    """Who failed and why: a competitor, or else its tuner; no reason if neither did."""
    if reading.failure or reading.tuned is None:
        return name, reading.failure
    return f"{name}'s tuner", reading.tuned.failure


def families(title: str, results: Sequence[Result], labels: Mapping[str, str]) -> Table:
    """Geometric means a family: our latency ÷ each peer's and the best one's."""
    order = list(dict.fromkeys(result.case.family for result in results))
    tuned = any(result.min_ns(TUNED_NAME) is not None for result in results)
    columns = ["family", "cases", *(f"÷ {label}" for label in labels.values()), "÷ best peer"]
    columns += ["default speed ÷ tuned"] if tuned else []
    rows = []
    for family in [*order, "all"]:
        mine = [r for r in results if family in ("all", r.case.family)]
        cells = [family, str(len(mine))]
        cells += [ratio(geometric_mean(r.latency_ratio(r.ours_name, name) for r in mine)) for name in labels]
        cells.append(ratio(geometric_mean(r.ratio() for r in mine)))
        cells += [ratio(geometric_mean(r.default_to_tuned for r in mine))] if tuned else []
        rows.append(tuple(cells))
    return Table(title, tuple(columns), tuple(rows), ("latency ratios by the minima; below 1 we are faster",))


def gigaflops(result: Result) -> str:
    """Our best entry's rate."""
    return gigaflops_of(result.ours_name)(result)


def gigaflops_of(name: str) -> Callable[[Result], str]:
    """A competitor's rate."""

    def rate(result: Result) -> str:
        ns = result.min_ns(name)
        return NOTHING if not ns or not result.flops else f"{result.flops / ns:.1f}"

    return rate


def percent_of(floor: str) -> Callable[[Result], str]:
    """Our speed in percent of a floor's."""
    return lambda result: _percents(result.latency_ratio(floor, result.ours_name))


def native_of(name: str | None = None) -> Callable[[Result], str]:
    """A competitor's fastest run without Python's share; our best entry's for None."""

    def native(result: Result) -> str:
        reading = result.readings.get(name or result.ours_name)
        return duration(reading.native_ns if reading else None)

    return native


def native_ratio_to(peer: str) -> Callable[[Result], str]:
    """Our latency ÷ a peer's, both without Python's share."""
    return lambda result: ratio(result.native_ratio(peer))


def coverage(result: Result) -> str:
    """How many dispatches have a tuned schedule."""
    return NOTHING if result.own is None else f"{result.own.hits}/{result.own.dispatches}"


def compile_time(result: Result) -> str:
    """How long compiling took, untuned."""
    return NOTHING if result.own is None else f"{result.own.compile_s:.1f} s"


def gigabytes(result: Result) -> str:
    """Bytes that have to move ÷ our best time, in GB/s."""
    ns = result.min_ns(result.ours_name)
    return NOTHING if not ns else f"{result.bytes / ns:.1f}"


def native_families(title: str, results: Sequence[Result], peer: str) -> Table:
    """Geometric means a family of latency ratios without Python's share, and the largest."""
    rows = [
        (family, str(len(ratios)), ratio(geometric_mean(ratios)), ratio(max(_known(ratios), default=None)))
        for family, ratios in _by_family(results, lambda result: result.native_ratio(peer))
    ]
    columns = ("family", "cases", "latency ratio, geometric mean", "largest")
    return Table(title, columns, tuple(rows), ("calls from compiled loops; below 1 we are faster",))


def floor_families(title: str, results: Sequence[Result], floor: str) -> Table:
    """Geometric means a family of our speed in percent of a floor's, and the least."""
    rows = [
        (
            family,
            str(len(shares)),
            _percents(geometric_mean(shares)),
            _percents(min(_known(shares), default=None)),
        )
        for family, shares in _by_family(results, lambda r: r.latency_ratio(floor, r.ours_name))
    ]
    return Table(title, ("family", "cases", f"% of {floor}, geometric mean", "least"), tuple(rows))


def _by_family(
    results: Sequence[Result], value: Callable[[Result], float | None]
) -> Iterator[tuple[str, list[float | None]]]:
    """The values of each family, then of all."""
    for family in [*dict.fromkeys(result.case.family for result in results), "all"]:
        yield family, [value(r) for r in results if family in ("all", r.case.family)]


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _percents(share: float | None) -> str:
    return NOTHING if share is None else f"{100 * share:.0f}"


def kernel_families(title: str, results: Sequence[Result]) -> Table:
    """Which kind of dispatch our time goes to, with the best schedules known."""
    profiles = {
        r.case.name: r.readings[r.ours_name].kinds or {} for r in results if r.ours_name in r.readings
    }
    kinds = sorted({kind for profile in profiles.values() for kind in profile})
    rows = []
    for name, profile in profiles.items():
        total = sum(profile.values()) or 1.0
        rows.append((name, *(_percent(profile.get(kind, 0.0) / total) for kind in kinds)))
    return Table(
        title,
        ("model", *kinds),
        tuple(rows),
        ("percent of the sum over dispatches, each at its fastest of ten profiled runs",),
    )


def family_gains(title: str, results: Sequence[Result]) -> Table | None:
    """What tuning changed, by kind of dispatch: milliseconds untuned → tuned; None if nothing is tuned."""
    pairs = {
        r.case.name: (r.readings[UNTUNED_NAME].kinds or {}, r.readings[TUNED_NAME].kinds or {})
        for r in results
        if UNTUNED_NAME in r.readings and TUNED_NAME in r.readings
    }
    if not pairs:
        return None
    kinds = sorted({kind for pair in pairs.values() for profile in pair for kind in profile})
    rows = [(name, *_gains(*pair, kinds)) for name, pair in pairs.items()]
    before, after = (_sums(pair[side] for pair in pairs.values()) for side in (0, 1))
    notes = (
        "milliseconds untuned → tuned; sums over dispatches, each at its fastest of ten profiled runs: where time "
        "goes, and no measure of what the model gains",
        "another algorithm moves time between families: Winograd's products are contractions",
    )
    rows.append(("all", *_gains(before, after, kinds)))
    return Table(title, ("model", *kinds, "all"), tuple(rows), notes)


def _sums(profiles: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: Counter[str] = Counter()
    for profile in profiles:
        total.update(profile)
    return dict(total)


def _gains(before: Mapping[str, float], after: Mapping[str, float], kinds: Sequence[str]) -> list[str]:
    pairs = [(before.get(kind, 0.0), after.get(kind, 0.0)) for kind in kinds]
    pairs.append((sum(before.values()), sum(after.values())))
    return [_gain(*pair) for pair in pairs]


def _gain(before: float, after: float) -> str:
    if not before and not after:
        return NOTHING
    return f"{before / 1e6:.2f} → {after / 1e6:.2f}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}" if share > 0 else NOTHING


__all__ = [
    "CELL_NOTE",
    "RATIO_NOTE",
    "Extra",
    "cell",
    "compile_time",
    "coverage",
    "families",
    "family_gains",
    "floor_families",
    "gigabytes",
    "gigaflops",
    "gigaflops_of",
    "kernel_families",
    "native_families",
    "native_of",
    "native_ratio_to",
    "percent_of",
    "side_by_side",
]
