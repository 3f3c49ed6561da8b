"""The quality of what is expected of schedules from other sizes, over recorded candidates of both sizes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.bench.experiment import Column, Record, TableView
from autotune.bench.replay.recording import CandidateRecording
from autotune.bench.tables import number
from autotune.compiler.tiers import ERRORS, EXPECTED, LIKED, Tier
from autotune.database.near import sizes_of
from autotune.schedule.knob import config_to_json
from cost_models import analytic
from cost_models.interval import around
from search_spaces.projection import projected

TRANSFER = "transfer"
"""The kind of a record."""
NEAR = 1.2
"""Candidates that take up to this much of the default's time at one size count: few that are faster were recorded
for both."""


@dataclass(frozen=True)
class Transferred:
    """A candidate's latencies for one workload, and for another of its structure, over the default's.

    ``known`` was read of the first, ``ratio`` of the other; ``predicted`` is by the analytic model, for the other.
    """

    known: float
    predicted: float
    ratio: float

    @property
    def expected(self) -> float:
        """The expectation of the other one before it is read."""
        return self.known * self.predicted

    @property
    def error(self) -> float:
        """The logarithm of what was read over what was expected."""
        return math.log(self.ratio / self.expected)


def transferred(recordings: Sequence[CandidateRecording]) -> Iterator[Transferred]:
    """All candidates that were recorded for two workloads of the same structure on one target, and are near the default
    or faster for one of them."""
    alike: dict[tuple[str, str], list[_Read]] = {}
    for recording in recordings:
        structure = sizes_of(recording.facts.workload).structure
        alike.setdefault((structure, recording.facts.target), []).append(_Read.of(recording))
    for group in alike.values():
        for source, other in itertools.permutations(group, 2):
            yield from _between(source, other)


@dataclass(frozen=True)
class _Read:
    """A recording, and the ratio of each candidate by the JSON of its configuration."""

    recording: CandidateRecording
    ratios: dict[str, float]

    @staticmethod
    def of(recording: CandidateRecording) -> _Read:
        configs, rows = recording.today
        found = zip(configs, rows.ratio, strict=True)
        return _Read(recording, {config_to_json(c): float(r) for c, r in found if not math.isnan(r)})


def _between(source: _Read, other: _Read) -> Iterator[Transferred]:
    space = other.recording.space
    default = other.recording.today[0][0]
    (default_s,) = analytic.predict(space, [default])
    configs, rows = source.recording.today
    for config, known in zip(configs, rows.ratio, strict=True):
        if not known <= NEAR:  # nor where it failed
            continue
        here = projected(space, config, default)
        ratio = other.ratios.get(config_to_json(here))
        if ratio is not None and here != default:
            predicted = float(analytic.predict(space, [here])[0] / default_s)
            yield Transferred(float(known), predicted, ratio)


def summaries(found: Sequence[Transferred]) -> list[Record]:
    """Return errors of what is expected, of the faster ones and by what the model predicts."""
    named = {
        "faster there": [one for one in found if one.known <= EXPECTED],
        f"predicted up to {LIKED} of the default": [one for one in found if one.predicted <= LIKED],
        f"predicted above {LIKED}": [one for one in found if one.predicted > LIKED],
    }
    return [{"of": TRANSFER, "candidates": name, **_figures(some)} for name, some in named.items()]


def _figures(found: Sequence[Transferred]) -> Record:
    from scipy.stats import chi2

    stated, count = ERRORS[Tier.SHAPE], len(found)
    if not found:
        return {"pairs": 0, "stated": stated}
    errors = np.array([one.error for one in found])
    inside = sum(low <= one.ratio <= high for one in found for low, high in [around(one.expected, stated)])
    error = math.sqrt(float((errors**2).mean()))
    return {
        "pairs": count,
        "read": math.exp(float(np.mean([math.log(one.ratio) for one in found]))),
        "bias": float(errors.mean()),
        "error": error,
        "most": error * math.sqrt(count / float(chi2.ppf(0.025, count))),
        "stated": stated,
        "covered": f"{inside} of {count}",
    }


VIEW = TableView(
    "Schedules of other sizes",
    ("candidates",),
    (
        Column("candidates", "candidates"),
        Column("pairs", "pairs"),
        Column("read ÷ default", "read", number(2)),
        Column("bias", "bias", number(2)),
        Column("error", "error", number(2)),
        Column("up to", "most", number(2)),
        Column("error that is stated", "stated", number(2)),
        Column("covered", "covered"),
    ),
    of=TRANSFER,
    notes=(
        f"candidates that take up to {NEAR} of the default's time for one size, recorded for another too; faster: up "
        f"to {EXPECTED}; read ÷ default: of that other one, the geometric mean",
        "bias and error: the mean and the root mean square of the logarithm of what was read over what was expected; "
        "up to: the upper end of its 95 % interval",
    ),
)

__all__ = ["VIEW", "Transferred", "summaries", "transferred"]
