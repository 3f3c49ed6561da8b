"""The policy in simulated jobs: what it measures, and what is used in the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pytest
from scipy.stats import binom

from autotune.database.posterior import Posterior, standings
from autotune.database.records import Comparison, Latency, Ratio
from autotune.tuning.compare.interleaved import PROCESSES
from autotune.tuning.compare.sites import Site, Sites
from autotune.tuning.jobs.actions import Action, ActionKind
from autotune.tuning.jobs.beliefs import Beliefs
from autotune.tuning.jobs.policy import Policy
from autotune.tuning.jobs.worth import (
    PROCESS_S,
    SPENT,
    VERSION_S,
    knowledge_gradient,
    worth_measuring,
    worth_repeating,
)
from tests.tuning.synthetic import FakeWorkload
from tests.tuning.test_sites import Other, W, task

SITES, ROUNDS = 10, 3
BUDGET_S = 300.0
GAIN = math.log(0.95)
ALONE = 0.15
"""The standard deviation of an isolated timing."""


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
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def measure(self, versions: Sequence[Sequence[int]], processes: int) -> np.ndarray:
        """Return latencies [version, round, site] of versions, each with the number of an option of every site."""
        slow = 2.0 if (self.seconds // 20) % 2 else 1.0
        self.seconds += slow * (PROCESS_S * processes + VERSION_S * (len(versions) + 1))
        drift = 0.5 * self.noise * math.sin(self.seconds / 40.0)
        shape = (len(versions), processes, ROUNDS, SITES)
        logs = np.array([[self.truth[site][option] for site, option in enumerate(v)] for v in versions])
        logs = logs + drift * 0.2 * self.rng.standard_normal((len(versions), 1))
        drawn = self.rng.normal(0, self.noise, (*shape[:2], 1, SITES))
        rounds = self.rng.normal(0, self.noise / 2, shape)
        found = np.exp(logs[:, None, None, :] + drawn + rounds) * slow
        return found.reshape(len(versions), processes * ROUNDS, SITES)


class Searched(set[object]):
    """A search that has nothing left to propose; the default was measured."""

    exhausted = True


def timed(name: str, ns: float) -> Any:
    """A task whose default takes so long alone."""
    made: Any = task(name, 1, ns)
    made.default, made.search = "default", Searched({"default"})
    return made


def sites_of(seat: Seat) -> Sites:
    """Sites whose options are each a workload, timed alone; of a name of their own, as their gains have nothing in
    common."""
    tasks, found = [], []
    for site, options in enumerate(seat.truth):
        names = [f"{site}.{option}" for option in range(len(options))]
        W.update({name: FakeWorkload(name, name) for name in names})
        alone = np.exp(np.array(options) + seat.rng.normal(0, ALONE, len(options)))
        tasks += [timed(name, 1e5 * float(ns)) for name, ns in zip(names, alone, strict=True)]
        several = cast(Any, tuple(Other(name, name) for name in names))
        found.append(Site((f"s{site}",), cast(Any, W[names[0]]), several))
    return Sites(tasks, found)


def rows_of(seat: Seat, action: Action, policy: Policy) -> None:
    """Measure what an action compares, and keep its rows as a job does."""
    keys = list(action.options)
    numbers = {key: [int(option.name.partition(".")[2]) for option in action.options[key]] for key in keys}
    count = max(map(len, numbers.values()))
    picked = [numbers.get(f"{site}.0", [0]) for site in range(SITES)]
    versions = [[p[n] if n < len(p) else p[0] for p in picked] for n in range(count)]
    ns = seat.measure(versions, PROCESSES)
    policy.beliefs.recent[:] = []
    for key in keys:
        site = int(key.partition(".")[0])
        for number, option in enumerate(action.options[key]):
            ratios = ns[number, :, site] / ns[0, :, site]
            spread = 1e5 * float(np.subtract(*np.percentile(ratios, (75, 25))))
            by_process = float(np.median(np.median(ratios.reshape(-1, ROUNDS), axis=1)))
            took = Latency(len(ratios), 1e5 * float(ratios.min()), 1e5 * float(np.median(ratios)), spread)
            row = Comparison(option.name, "k", took, ratio=Ratio(by_process) if number else None)
            policy.beliefs.recent.append(replace(row, created=seat.seconds))
            policy.beliefs.history.setdefault(key, []).append(policy.beliefs.recent[-1])


def use(policy: Policy) -> None:
    """Have the policy know what is used, as a job does."""
    found = standings(policy.beliefs.history)
    for site in policy.sites.several:
        if (order := found[site.workload.key].order if site.workload.key in found else ()) != ():
            policy.sites.used[site.workload.key] = next(o for o in site.options if o.name == order[0].name)


def job(seat: Seat, budget_s: float = BUDGET_S) -> Policy:
    """Do what the policy says for so long; nothing is left to search."""
    policy = Policy(Beliefs(sites_of(seat)), least=SPENT)
    nothing = [task.workload.key for task in policy.sites.tasks]
    while action := policy.next({}, nothing, budget_s - seat.seconds):
        assert action.work is ActionKind.OPTIONS
        begin = seat.seconds
        rows_of(seat, action, policy)
        policy.took(action, seat.seconds - begin)
        use(policy)
    return policy


def used_by(policy: Policy) -> list[int]:
    """Return the numbers of the options in use."""
    used = (policy.sites.used.get(site.workload.key, site.default).name for site in policy.sites.all)
    return [int(name.partition(".")[2]) for name in used]


def one_gain(seed: int) -> list[list[float]]:
    """A true gain of 5 % at one of ten sites; all others are as fast or slower."""
    rng = np.random.default_rng(1000 + seed)
    truth = [[0.0, float(rng.uniform(0.0, 0.1)), float(rng.uniform(0.0, 0.3))] for _ in range(SITES)]
    truth[seed % SITES][1 + seed % 2] = GAIN
    return truth


def outcomes(noise: float, jobs: int) -> tuple[float, float]:
    """Return in how many jobs of five minutes the gain is used, and in how many anything that is 1 % slower."""
    used, worse = 0, 0
    for seed in range(jobs):
        seat = Seat(one_gain(seed), noise, seed)
        chosen = used_by(job(seat))
        used += seat.truth[seed % SITES][chosen[seed % SITES]] == GAIN
        worse += any(seat.truth[site][option] > 0.01 for site, option in enumerate(chosen))
    return used / jobs, worse / jobs


@pytest.mark.parametrize("jobs", [4, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize("noise", [0.03, 0.06])
def test_a_true_gain_is_used_after_five_minutes_and_nothing_slower(noise: float, jobs: int) -> None:
    used, worse = outcomes(noise, jobs)
    assert used >= 0.9
    assert worse <= 1 / jobs  # one of them


def test_little_is_claimed_where_all_options_are_the_same() -> None:
    """Of the sites at most one in twenty may claim a change, in the long run."""
    jobs, claimed = 5, 0
    for seed in range(jobs):
        policy = job(Seat([[0.0] * 3] * SITES, 0.06, seed), budget_s=120.0)
        for found in standings(policy.beliefs.history).values():
            claimed += any(one.claim is not None and one.claim.changed for one in found.order)
    assert claimed <= binom.ppf(0.999, jobs * SITES, 0.05)


def test_what_is_known_promises_less_and_less() -> None:
    """Also where each comparison says little, and where what disturbs it is the same every time."""
    policy = job(Seat([[0.0] * 3] * SITES, 0.06, seed=1), budget_s=30.0)
    nothing = [task.workload.key for task in policy.sites.tasks]
    early = policy.next({}, nothing)
    assert early is not None
    rng = np.random.default_rng(0)
    for at in range(60):
        policy.beliefs.recent = []
        for key, options in ((s.workload.key, s.options) for s in policy.sites.several):
            for n, option in enumerate(options):
                ratio = Ratio(float(np.exp(rng.normal(0, 0.03)))) if n else None
                row = Comparison(option.name, "k", Latency(9, 1e5, 1e5, 3e4), ratio=ratio, load=1.5)
                policy.beliefs.recent.append(replace(row, created=1000.0 + at))
                policy.beliefs.history.setdefault(key, []).append(policy.beliefs.recent[-1])
    late = policy.next({}, nothing)
    assert late is None or late.gain < 0.2 * early.gain


def test_measuring_again_promises_nothing_where_it_tells_nothing() -> None:
    known = {"a": Posterior(0.0, 0.0), "b": Posterior(0.0, 0.03)}
    new, old = (worth_measuring(known, "a", lambda name, many, v=v: v)["b"] for v in (0.03**2, 1e6))
    assert old < 1e-6 < 0.3 * knowledge_gradient(0.0, 0.03, 0.03**2) < new


def test_what_is_expected_to_be_far_ahead_and_was_never_compared_is_worth_a_comparison() -> None:
    assert knowledge_gradient(-1.1, 0.15, 0.03**2) == pytest.approx(1.1, abs=0.01)
    assert worth_repeating(-1.1, 0.15, lambda many: 0.03**2 / many) == pytest.approx(1.1, abs=0.01)
    assert worth_repeating(1.1, 0.15, lambda many: 0.03**2 / many) == 0.0


__all__ = ["Seat", "job", "one_gain", "outcomes"]
