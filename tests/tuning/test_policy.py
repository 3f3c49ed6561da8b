"""The policy in simulated jobs: what it measures, and what is used in the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from autotune.database.posterior import CERTAIN, Posterior, decided, scatter, standings, variance_of
from autotune.database.records import Comparison, Latency, Ratio
from autotune.tuning.compare.interleaved import PROCESSES
from autotune.tuning.jobs.policy import (
    CHALLENGERS,
    PROCESS_S,
    SPENT,
    VERSION_S,
    worth_measuring,
)

SITES, ROUNDS = 10, 3
BUDGET_S = 300.0
GAIN = math.log(0.95)


@dataclass
class Seat:
    """A machine that measures versions of a model with ten sites of equal shares, by a clock of its own.

    Each process draws for each site of each version an error with a standard deviation of ``noise``, each round one of
    half of that; drift moves what is measured from one comparison to the next; half of the time it has half the speed.
    """

    truth: Sequence[Sequence[float]]
    """The logs of the ratios of each site's options over its default, which is the first."""
    noise: float
    seed: int
    seconds: float = 0.0
    _rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def measure(self, versions: Sequence[Sequence[int]], processes: int) -> np.ndarray:
        """Return latencies [version, round, site] of versions, each with the number of an option of every site."""
        slow = 2.0 if (self.seconds // 20) % 2 else 1.0
        self.seconds += slow * (PROCESS_S * processes + VERSION_S * (len(versions) + 1))
        drift = 0.5 * self.noise * math.sin(self.seconds / 40.0)
        shape = (len(versions), processes, ROUNDS, SITES)
        logs = np.array([[self.truth[site][option] for site, option in enumerate(v)] for v in versions])
        logs = logs + drift * 0.2 * self._rng.standard_normal((len(versions), 1))
        drawn = self._rng.normal(0, self.noise, (*shape[:2], 1, SITES))
        rounds = self._rng.normal(0, self.noise / 2, shape)
        found = np.exp(logs[:, None, None, :] + drawn + rounds) * slow
        return found.reshape(len(versions), processes * ROUNDS, SITES)


def rows_of(site: int, options: Sequence[int], ns: np.ndarray, created: float) -> list[Comparison]:
    """The rows of a comparison of a site, as a job stores them."""
    found = list[Comparison]()
    for number, option in enumerate(options):
        mine = ns[number, :, site]
        by_process = np.median((mine / ns[0, :, site]).reshape(-1, ROUNDS), axis=1)
        latency = Latency(len(mine), float(mine.min()), float(np.median(mine)), 0.0)
        ratio = Ratio(float(np.median(by_process))) if number else None
        found.append(Comparison(f"o{option}", "k", latency, ratio=ratio, created=created))
    return found


def by_the_policy(seat: Seat, budget_s: float) -> list[int]:
    """Measure what the policy's knowledge gradients say for so long; return the number of each site's option."""
    history: dict[str, list[Comparison]] = {str(site): [] for site in range(SITES)}
    used = [0] * SITES
    while seat.seconds < budget_s:
        known = [{one.name: one.posterior for one in found.order} for found in standings(history).values()]
        picked, noise = list[list[int]](), scatter(history)
        for site in range(SITES):
            prior = {f"o{n}": Posterior(0.0, 0.3) for n in range(1, len(seat.truth[site]))} | {"o0": CERTAIN}
            here = prior | known[site]
            values = worth_measuring(
                here, f"o{used[site]}", noise * variance_of(ROUNDS * PROCESSES, PROCESSES)
            )
            best = [int(name[1:]) for name, value in values.items() if value / SITES >= SPENT]
            picked.append(list(dict.fromkeys([0, used[site], *best[:CHALLENGERS]])))
        count = max(map(len, picked))
        if count == 1:
            break
        versions = [[p[n] if n < len(p) else 0 for p in picked] for n in range(count)]
        ns = seat.measure(versions, PROCESSES)
        for site, options in enumerate(picked):
            if len(options) > 1:
                history[str(site)] += rows_of(site, options, ns, seat.seconds)
        for site in range(SITES):
            order = {one.name: one.posterior for one in standings(history)[str(site)].order}
            if order:
                used[site] = int(decided(order, f"o{used[site]}")[1:])
    return used


def one_gain(seed: int) -> list[list[float]]:
    """A true gain of 5 % at one of ten sites; all others are as fast or slower."""
    rng = np.random.default_rng(1000 + seed)
    truth = [[0.0, float(rng.uniform(0.0, 0.1)), float(rng.uniform(0.0, 0.3))] for _ in range(SITES)]
    truth[seed % SITES][1 + seed % 2] = GAIN
    return truth


def outcomes(rule: Callable[[Seat, float], list[int]], noise: float, jobs: int) -> tuple[float, float]:
    """Return in how many jobs of five minutes the gain is used, and in how many anything that is 1 % slower."""
    used, worse = 0, 0
    for seed in range(jobs):
        seat = Seat(one_gain(seed), noise, seed)
        chosen = rule(seat, BUDGET_S)
        used += seat.truth[seed % SITES][chosen[seed % SITES]] == GAIN
        worse += any(seat.truth[site][option] > 0.01 for site, option in enumerate(chosen))
    return used / jobs, worse / jobs


@pytest.mark.parametrize("noise", [0.03, 0.06])
def test_a_true_gain_is_used_after_five_minutes_and_nothing_slower(noise: float) -> None:
    jobs = 20
    used, worse = outcomes(by_the_policy, noise, jobs)
    assert used >= 0.9
    assert worse <= 0.05
