"""One model of the evidence: everything known of a latency, as a normal distribution of the log of its ratio.

An option or a schedule is known by measurements inside models, each with its error, and by how others like it turned
out. They are pooled as in a linear model with normal errors (Gelman et al., Bayesian Data Analysis, 3rd ed., chapters 5
and 14): nothing measured is replaced by what is measured later. What is used has the smallest posterior mean, where
each alternative counts as slower by :data:`CAUTION` of its errors: the best of many is also the luckiest of them
(Smith, Winkler, The optimizer's curse, Management Science 52, 2006).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from autotune.database.pooled import NOTHING, Pooled
from autotune.database.records import SAME_CODE, Comparison, Ratio, Reading

PROCESS, ROUND, SESSION = 0.04, 0.05, 0.01
"""Standard deviations of the log of what the same code takes inside a model, over that of the same code beside it: what
a process draws once, what a round draws, and what moves between two comparisons. (docs/tuning.md, "Compare")"""
ROUNDS = 3
"""Rounds of a process in a comparison."""
LOADED = 4.5
"""By how much of itself a variance grows for each processor that other processes take. (results/other-work.md)"""
WHOLE, TOGETHER = 0.005, 0.02
"""Standard deviations of the log of a model's ratio over what follows from those of its dispatches, as timed one by one
they take a little more; and of what all choices of a job may have in common, such as the luck by which they were picked
or what each does to its neighbours."""
SLOWER, SCHEDULE, SLOW, TAIL = 0.05, 0.05, 0.5, 2.0
"""The mode of the log ratios of the schedules of a workload, over the default's, their spread below and above it, and
the degrees of freedom of both sides, Student's t distributions. Of the candidates that jobs measured in a model a tenth
took less than 1.01 to 1.19 times the default's latency, one in fifty less than 0.97 to 1.02 times, half of them more
than 1.2 to 1.7 times, and one in ten more than twice as long. (results/replay/squeezenet.job.json,
mobilenetv2.job.json)"""
OUTLIERS = 3.0
"""Degrees of freedom of what a process draws: one in forty draws more than five times what most do.
(results/replay/squeezenet.job.json, mobilenetv2.job.json)"""
OPTION, KIN = 0.1, 0.2
"""The same of the options of a site, beyond what the option of that name has in common at all sites; and of that."""
INERTIA = 0.005
"""By how much the log ratio of another one must be smaller than that of the one in use."""
CAUTION = 1.0
"""Standard deviations of its error by which an alternative counts as slower than expected. With 0, 1 and 2 of them 83,
15 and 10 % of made-up jobs end with anything slower by 1 % (``python -m results.bench decisions``), and simulated jobs
of two minutes 1.7, 1.9 and 2.5 % above the best plan (``autotune replay compare``). Plans with 1 take 0.995 (0.98 to
1.01) times what those with 0 of the same 14 databases of real jobs take (results/caution-zen3.md)."""
ALONE, ALONE_ERROR = 0.4, 0.15
"""The log of a ratio inside a model over that of the ratio alone, and its standard deviation. (docs/tuning.md,
"Isolated measurements say little about the model")"""
UNLIKELY = 0.02
"""The least probability of being faster in a model with which a candidate is measured there."""
_USUAL = 4.0
"""Degrees of freedom that the usual variances count beside those of repeated comparisons."""
_Z = 1.96
_QUARTILES = 1.349
"""Standard deviations between the quartiles of a normal distribution."""
_MEDIANS = 1.8
"""The variance of a median of medians of three over that of the mean."""
_NORMAL = 1e3
"""Degrees of freedom of what follows from the whole model by a linear model, whose errors are normal."""
_POINTS, _MARGIN = 401, 0.4
"""The grid of a schedule's posterior, and how far it goes beyond the logs that were measured."""
_SAME = 1e-12
"""The variance of the ratio of machine code to itself, which nobody has to measure."""


@dataclass(frozen=True)
class Posterior:
    """The expected log of a ratio, and its standard deviation, with the degrees of freedom of what was measured."""

    mean: float
    error: float
    freedom: float = math.inf

    @property
    def ratio(self) -> Ratio:
        """Return the ratio and its 95 % interval."""
        return self.claim()

    @property
    def cautious(self) -> float:
        """Return the log of the ratio by which it is decided what is used."""
        return self.mean + CAUTION * self.error

    def claim(self, looks: int = 1) -> Ratio:
        """Return the ratio and a 95 % interval that holds for all of so many ``looks`` that it was picked from
        (Bonferroni): candidates, and the times that each was measured and looked at again. What moves between sessions
        is not averaged out by the comparisons of one."""
        error = math.hypot(self.error, math.sqrt(2) * SESSION) if self.error else 0.0
        wide = error * _quantile(1 - 0.025 / max(1, looks), self.freedom)
        return Ratio(math.exp(self.mean), (math.exp(self.mean - wide), math.exp(self.mean + wide)))

    def __str__(self) -> str:
        return str(self.ratio)


def _quantile(chance: float, freedom: float) -> float:
    """Return the quantile of Student's t distribution, which is the normal one for infinitely many degrees of
    freedom."""
    if freedom == math.inf:
        return NormalDist().inv_cdf(chance)
    from scipy.special import stdtrit

    return float(stdtrit(freedom, chance))


CERTAIN = Posterior(0.0, 0.0)
"""Of what everything is compared with."""


def variance_of(
    rounds: int, processes: float = 1.0, round_variance: float = ROUND**2, load: float = 0.0
) -> float:
    """Return the variance of the log of a ratio measured in so many rounds in all of some fresh processes, beside other
    ones that took ``load`` processors; without what is added to all ratios there."""
    own = SESSION**2 + PROCESS**2 / processes + round_variance / max(1, rounds)
    return own * (1 + LOADED * load)


def variance_of_row(row: Comparison) -> float:
    """Return the variance of the log of a compared candidate's ratio: as known of the machine in general, or as large
    as its own rounds and processes say, which other work may have disturbed."""
    if row.ratio == SAME_CODE:
        return _SAME
    if row.part is not None:
        return row.part.error**2
    count, drawn = 1, ROUND**2
    if row.latency is not None:
        spread = row.latency.spread_ns / row.latency.median_ns / _QUARTILES
        count = row.latency.n
        drawn = max(drawn, _MEDIANS * spread**2)
    processes = max(1.0, count / ROUNDS)
    usual = max(variance_of(count, processes, load=row.load), variance_of(count, processes, drawn))
    if row.ratio is None or row.ratio.interval is None:
        return usual
    return max(usual, _error_of(row.ratio.interval) ** 2)


def freedom_of(row: Comparison) -> float:
    """Return the degrees of freedom of the error of a compared candidate's ratio: those of each of its processes."""
    return 0.0 if row.latency is None else OUTLIERS * max(1.0, row.latency.n / ROUNDS)


def variance_of_whole(ratio: Ratio, load: float) -> float:
    """Return the variance of the log of a whole model's ratio."""
    known = 0.0 if ratio.interval is None else _error_of(ratio.interval)
    return (WHOLE**2 + max(SESSION / 2, known) ** 2) * (1 + LOADED * load)


def _error_of(interval: tuple[float, float]) -> float:
    low, high = interval
    return math.log(high / low) / (2 * _Z)


def _log_of(row: Comparison) -> float:
    """Return the log of a compared candidate's ratio; where the whole model was measured what follows if all of its
    choices are as far from what was expected."""
    assert row.ratio is not None
    if row.part is None:
        return math.log(row.ratio.median)
    return row.part.expected + (math.log(row.ratio.median) - row.part.whole) / row.part.share


def chance_inside(alone: float) -> float:
    """Return the probability that what takes this multiple of the default's latency alone is faster in a model.

    >>> round(chance_inside(1.0), 2), round(chance_inside(1.5), 2), round(chance_inside(3.0), 3)
    (0.5, 0.14, 0.002)
    """
    return 0.5 * math.erfc(ALONE * math.log(alone) / ALONE_ERROR / math.sqrt(2))


@dataclass(frozen=True)
class Seen:
    """A measured log of a ratio, with its variance, the degrees of freedom of its error, and the load that shifts it:
    none where the whole model was measured, as that is not the same for all of its parts."""

    log: float
    variance: float
    freedom: float
    load: float = 0.0

    @staticmethod
    def of(seen: Reading | Comparison) -> Seen | None:
        """Return what a measurement says; None of an incumbent and of what failed."""
        if isinstance(seen, Reading):
            variance = variance_of(seen.rounds, load=seen.load)
            return Seen(math.log(seen.ratio), variance, OUTLIERS, seen.load)
        if seen.ratio is None or seen.latency is None:
            return None
        if seen.part is not None:
            return Seen(_log_of(seen), variance_of_row(seen), _NORMAL)
        return Seen(_log_of(seen), variance_of_row(seen), freedom_of(seen), seen.load)

    def pooled_with(self, pool: Pooled) -> Pooled:
        """Return a pool and this measurement."""
        return pool.add(self.log, self.variance, self.load)


def schedule_posterior(seen: Sequence[Seen]) -> Posterior:
    """Return the posterior of the log of a schedule's latency over the default's.

    Prior and errors are Student's t, by which small differences shrink and one measurement that is far from all others
    of its kind counts as disturbed until it is repeated (Gelman et al., chapter 17). The prior lies above the
    default's, so that the luckiest of many slower candidates is not taken for a faster one, and is wider on that side,
    where nothing is strange about one that takes three times as long. It is worked out on a grid.

    >>> one = Seen(math.log(0.8), 0.05**2, OUTLIERS)
    >>> [round(math.exp(schedule_posterior([one] * n).mean), 2) for n in (0, 1, 2, 4)]
    [1.22, 0.91, 0.82, 0.8]
    """
    logs = [one.log for one in seen]
    grid = np.linspace(min([*logs, SLOWER]) - _MARGIN, max([*logs, SLOWER]) + _MARGIN, _POINTS)
    density = _log_density(grid - SLOWER, np.where(grid < SLOWER, SCHEDULE, SLOW) ** 2, TAIL)
    for one in seen:
        density = density + _log_density(grid - one.log, one.variance, one.freedom)
    weights = np.exp(density - density.max())
    weights /= weights.sum()
    mean = float(weights @ grid)
    error = math.sqrt(float(weights @ (grid - mean) ** 2))
    return Posterior(mean, error, sum(one.freedom for one in seen) or math.inf)


def _log_density(
    off: NDArray[np.float64], variance: float | NDArray[np.float64], freedom: float
) -> NDArray[np.float64]:
    """Return the log of the density of Student's t distribution, up to a constant."""
    return -0.5 * (freedom + 1) * np.log1p(off * off / (variance * freedom))


def decided(known: Mapping[str, Posterior], incumbent: str) -> str:
    """Return the name of what is used: the smallest cautious log, if that is less than the incumbent's by
    :data:`INERTIA`.

    >>> decided({"a": CERTAIN, "b": Posterior(-0.05, 0.02)}, "a")
    'b'
    >>> decided({"a": CERTAIN, "b": Posterior(-0.05, 0.05)}, "a")
    'a'
    """
    best = min(known, key=lambda name: (known[name].cautious, name))
    if incumbent not in known or known[best].cautious < known[incumbent].cautious - INERTIA:
        return best
    return incumbent


@dataclass(frozen=True)
class LogDifference:
    """A measured log of the latency of one of several unknowns over that of another, by their numbers."""

    mine: int
    other: int
    value: float
    variance: float


def posterior(
    means: Sequence[float], covariance: NDArray[np.float64], seen: Sequence[LogDifference]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and covariance of unknowns with a normal prior, after differences between them were measured."""
    prior = np.asarray(means, np.float64)
    if not seen:
        return prior, covariance
    design = np.zeros((len(seen), len(prior)))
    for row, one in enumerate(seen):
        design[row, one.mine] += 1.0
        design[row, one.other] -= 1.0
    noise = np.diag([one.variance for one in seen])
    gain = np.linalg.solve(design @ covariance @ design.T + noise, design @ covariance).T
    surprise = np.array([one.value for one in seen]) - design @ prior
    return prior + gain @ surprise, covariance - gain @ design @ covariance


@dataclass(frozen=True)
class Standing:
    """One option of a site, over the reference of its comparisons: that with which the newest began.

    ``key`` covers its regions and search spaces, ``latency_ns`` is expected, ``compared`` is when it was measured last.
    ``claim`` is what may be said of it: by comparisons alone, as what follows from a whole model may be the doing of
    others, and for all looks at the site; None of the reference.
    """

    name: str
    key: str
    posterior: Posterior
    latency_ns: float
    compared: float
    claim: Ratio | None = None

    @property
    def is_reference(self) -> bool:
        """Return whether the others are compared with it."""
        return self.claim is None


@dataclass(frozen=True)
class Standings:
    """The options of a site that were compared: the one that is used, the others by their means, and those that
    failed."""

    order: tuple[Standing, ...] = ()
    failed: tuple[Comparison, ...] = ()


def standings(
    history: Mapping[str, Sequence[Comparison]], expected_ns: Mapping[str, Mapping[str, float]] | None = None
) -> dict[str, Standings]:
    """Return the standings of the options of several sites by all of their comparisons, each site's the oldest first.

    ``expected_ns``: estimates of the latencies, as of :func:`beliefs`; without them all may be as fast.
    An option of the same name at several sites tells about itself: their log latencies have a part in common.
    """
    by_all = _Logs.of(history, expected_ns or {})
    alone = {site: [row for row in _today(rows) if row.part is None] for site, rows in history.items()}
    of_whole = any(row.part is not None for rows in history.values() for row in rows)
    by_comparisons = _Logs.of(alone, expected_ns or {}) if of_whole else by_all
    return {site: _standings(site, rows, by_all, by_comparisons) for site, rows in alone.items()}


def beliefs(
    history: Mapping[str, Sequence[Comparison]],
    expected_ns: Mapping[str, Mapping[str, float]],
    references: Mapping[str, str],
    pooled: PooledHistory | None = None,
) -> dict[str, dict[str, Posterior]]:
    """Return what is known of all options of sites over their references, also of those that were never compared: of
    these the latency is ``expected_ns``, by estimates or by timings alone, with the error of the prior.

    What failed the last time it was compared is left out. ``pooled`` is the ``history``'s, where that is known.
    """
    logs = _Logs.of(history, expected_ns, pooled)
    failed = {
        (site, row.name)
        for site, rows in history.items()
        for row in {row.name: row for row in _today(rows)}.values()
        if row.latency is None
    }
    return {
        site: {
            name: logs.over(site, name, references[site])
            for name in expected
            if (site, name) not in failed and (site, references[site]) in logs.number
        }
        for site, expected in expected_ns.items()
    }


@dataclass(frozen=True)
class _Logs:
    """The logs of the latencies of all options at all sites, by their numbers: means and covariance."""

    number: Mapping[tuple[str, str], int]
    mean: NDArray[np.float64]
    covariance: NDArray[np.float64]

    @staticmethod
    def of(
        history: Mapping[str, Sequence[Comparison]],
        expected_ns: Mapping[str, Mapping[str, float]],
        pooled: PooledHistory | None = None,
    ) -> _Logs:
        """Return what all comparisons make of what is expected; ``pooled`` is the history's, where that is known."""
        pooled = pooled or PooledHistory.of(history)
        compared = [(site, row.name) for site, rows in history.items() for row in _today(rows)]
        estimated = [(site, name) for site, named in expected_ns.items() for name in named]
        arms = list(dict.fromkeys([*compared, *estimated]))
        number = {arm: at for at, arm in enumerate(arms)}
        names = np.array([name for _, name in arms])
        covariance = KIN**2 * (names[:, None] == names[None, :]) + OPTION**2 * np.eye(len(arms))
        seen = [
            LogDifference(number[site, mine], number[site, other], pool.mean, pooled.noise / pool.weight)
            for (site, mine, other), pool in pooled.pools.items()
        ]
        means = [_expected_log(expected_ns.get(site, {}), name) for site, name in arms]
        return _Logs(number, *posterior(means, covariance, seen))

    def over(self, site: str, name: str, base: str) -> Posterior:
        """Return the posterior of an option over another one of its site."""
        mine, other = self.number[site, name], self.number[site, base]
        covariance = self.covariance
        variance = covariance[mine, mine] + covariance[other, other] - 2 * covariance[mine, other]
        return Posterior(float(self.mean[mine] - self.mean[other]), float(np.sqrt(max(0.0, variance))))


@dataclass(frozen=True)
class PooledHistory:
    """All comparisons pooled (:func:`pools`), and the variance of repeated ones over the usual (:func:`scatter`)."""

    pools: Mapping[tuple[str, str, str], Pooled]
    noise: float

    @staticmethod
    def of(history: Mapping[str, Sequence[Comparison]]) -> PooledHistory:
        """Return that of some sites."""
        return PooledHistory(pools(history), scatter(history))


def pools(history: Mapping[str, Sequence[Comparison]]) -> dict[tuple[str, str, str], Pooled]:
    """Return of each site, option and incumbent beside which it was compared all that was measured."""
    found = dict[tuple[str, str, str], Pooled]()
    for site, rows in history.items():
        for beside, row in pairs(_today(rows)):
            pair, seen = (site, row.name, beside), Seen.of(row)
            if seen is not None:
                found[pair] = seen.pooled_with(found.get(pair, NOTHING))
    return found


def scatter(history: Mapping[str, Sequence[Comparison]]) -> float:
    """Return the variance of repeated comparisons over what is usual (Birge ratio): more where something disturbs them
    that is not seen as load. A measurement of the whole model repeats none of them."""
    every = pools(
        {site: [row for row in rows if row.part is None] for site, rows in history.items()}
    ).values()
    return scatter_of(every)


def scatter_of(every: Collection[Pooled]) -> float:
    """Return the same of ratios that were measured several times, each pooled."""
    squares, freedom = sum(pool.misfit for pool in every), sum(pool.count - 1 for pool in every)
    return (_USUAL + squares) / (_USUAL + freedom)


def _expected_log(expected_ns: Mapping[str, float], name: str) -> float:
    """Return the prior mean of an option: that of the slowest at its site where nothing is expected of it."""
    ns = expected_ns.get(name) or max(expected_ns.values(), default=1.0)
    return math.log(max(ns, 1e-9))


def _today(rows: Sequence[Comparison]) -> list[Comparison]:
    """Return the rows that are of the same regions and spaces as the newest of their name."""
    newest = {row.name: row.key for row in rows}
    return [row for row in rows if row.key == newest[row.name]]


def pairs(rows: Sequence[Comparison]) -> Iterable[tuple[str, Comparison]]:
    """Yield each candidate that was measured, with the name of the incumbent of its comparison: the first without a
    ratio. Where older versions stored no ratios they are those of the latencies."""
    incumbents = dict[float, Comparison]()
    for row in rows:
        if row.ratio is None and row.latency is not None:
            incumbents.setdefault(row.created, row)
    for row in rows:
        incumbent = incumbents.get(row.created)
        beside = (incumbent.name if incumbent else None) if row.part is None else row.part.beside
        if row.latency is not None and beside is not None and row is not incumbent:
            yield beside, row if row.ratio is not None else _with_ratio(row, incumbent)


def _with_ratio(row: Comparison, incumbent: Comparison | None) -> Comparison:
    assert row.latency is not None
    assert incumbent is not None
    assert incumbent.latency is not None
    return replace(row, ratio=Ratio(row.latency.median_ns / incumbent.latency.median_ns))


def _standings(site: str, rows: Sequence[Comparison], by_all: _Logs, by_comparisons: _Logs) -> Standings:
    """Return the standings of a site by the rows of its comparisons."""
    last = {row.name: row for row in rows}
    worked = {name: row for name, row in last.items() if row.latency is not None}
    failed = tuple(row for row in last.values() if row.latency is None)
    if not worked:
        return Standings((), failed)
    newest = max(row.created for row in worked.values())
    here = [row for row in worked.values() if row.created == newest]
    base = next((row for row in here if row.ratio is None), here[0])

    def over_base(logs: _Logs) -> dict[str, Posterior]:
        return {
            name: replace(logs.over(site, name, base.name), freedom=_freedom(rows, name))
            for name in worked
            if name != base.name
        }

    known = {base.name: CERTAIN} | over_base(by_all)
    looks = sum(row.ratio is not None for row in rows)
    claims = {name: one.claim(looks) for name, one in over_base(by_comparisons).items()}
    won = next((row.name for row in reversed(rows) if row.won and row.name in worked), base.name)
    used = decided(known, won)
    order = sorted(known, key=lambda name: (name != used, known[name].mean, name))
    assert base.latency is not None
    base_ns = base.latency.median_ns
    found = [
        Standing(
            name,
            worked[name].key,
            known[name],
            base_ns * math.exp(known[name].mean),
            worked[name].created,
            claims.get(name),
        )
        for name in order
    ]
    return Standings(tuple(found), failed)


def _freedom(rows: Sequence[Comparison], name: str) -> float:
    """Return the degrees of freedom of all comparisons of an option."""
    return sum(freedom_of(row) for row in rows if row.name == name)


__all__ = [
    "CAUTION",
    "CERTAIN",
    "INERTIA",
    "ROUNDS",
    "TOGETHER",
    "UNLIKELY",
    "LogDifference",
    "PooledHistory",
    "Posterior",
    "Seen",
    "Standing",
    "Standings",
    "beliefs",
    "chance_inside",
    "decided",
    "pairs",
    "pools",
    "posterior",
    "scatter",
    "scatter_of",
    "schedule_posterior",
    "standings",
    "variance_of",
    "variance_of_row",
    "variance_of_whole",
]
