"""Made-up jobs with a known truth: ten sites, a gain at one of them or none at all."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from autotune.bench.jobs.recording import (
    ActionSeconds,
    NoiseQuantiles,
    RecordedCandidates,
    RecordedChoice,
    RecordedJob,
    RecordedPlace,
)
from autotune.target import Target

SITES, SITE_NS = 10, 2e5
GAIN = math.log(0.95)
SECONDS = ActionSeconds(start=4.0, build=0.1, time=0.05, check=0.05, process=0.9, assemble=0.03, load=0.03)
"""About those of squeezenet on two cores. (results/replay/squeezenet.job.json)"""
NORMAL = tuple(NormalDist().inv_cdf((n + 0.5) / 101) for n in range(101))
SAME = 16
"""Candidates of each workload, all as fast as its default."""


def normal_noise(deviation: float) -> NoiseQuantiles:
    """Return normal noise of which a process draws so much, and a round half of it."""
    process, round_ = (tuple(part * deviation * one for one in NORMAL) for part in (1.0, 0.5))
    return NoiseQuantiles(process, round_, session=0.2 * deviation, alone=0.1)


def ten_sites(noise: NoiseQuantiles, seed: int, gain: float = GAIN) -> RecordedJob:
    """Return ten sites of equal shares with three options: one of one site takes ``gain`` (a log) over the default, all
    others as long as it or longer. No estimate tells which. Candidates are no better than the defaults."""
    rng = np.random.default_rng(1000 + seed)
    choices = [[0.0, rng.uniform(0.0, 0.1), rng.uniform(0.0, 0.3)] for _ in range(SITES)]
    choices[seed % SITES][1 + seed % 2] = gain
    return _job(f"ten-sites-{seed}", noise, choices, [float(rng.uniform(0.0, 0.1)) for _ in range(SAME)])


def nothing_to_gain(noise: NoiseQuantiles) -> RecordedJob:
    """Return ten sites of which all options and candidates take as long as the defaults."""
    return _job("nothing", noise, [[0.0, 0.0, 0.0]] * SITES, [0.0] * SAME)


def _job(name: str, noise: NoiseQuantiles, logs: list[list[float]], candidates: list[float]) -> RecordedJob:
    names = ("direct", "one", "other")
    places = tuple(
        RecordedPlace(
            (f"{site:03}",),
            f"{site}-direct",
            SITE_NS,
            tuple(
                RecordedChoice(option, (f"{site}-{option}",), SITE_NS, log, 0.0)
                for option, log in zip(names, mine, strict=True)
            ),
        )
        for site, mine in enumerate(logs)
    )
    found = tuple((math.exp(log), log, 0.0) for log in candidates)
    workloads = tuple(
        RecordedCandidates(f"{site}-{option}", "made", 0.3 * SITE_NS, 0.7 * SITE_NS, found)
        for site in range(len(logs))
        for option in names
    )
    target = Target.parse("x86-64-v3", threads=2).to_json()
    return RecordedJob(name, target, {}, 0, SECONDS, noise, places, workloads)


__all__ = ["GAIN", "SITES", "normal_noise", "nothing_to_gain", "ten_sites"]
