"""The promotion of a new cost model in the place of the one in use: only for a statistically significant gain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cost_models.evaluate import BATCH, Judgement
from cost_models.interval import ConfidenceInterval

WORKLOADS = 20
"""So few held-out workloads at least; of fewer, an interval says little of others."""
CONFIDENCE = 0.99
"""Models are retrained every night: at 95 % one in forty of those that are no better would be promoted."""


@dataclass(frozen=True)
class Verdict:
    """The decision about a model and its reason; ``gain``: how much faster the best of its first candidates is."""

    promoted: bool
    reason: str
    gain: ConfidenceInterval | None = None


def verdict(new: Judgement, serving: Judgement, name: str) -> Verdict:
    """Compare a new model with the one in use, called ``name``, workload by workload, both on ones not seen.

    The gain is log(latency of the best of the first k of the one in use over that of the new one), the mean over k up
    to a batch. The model is promoted where the lower end of its interval over workloads is above zero, and its first
    choice is no slower on average.
    """
    if len(new) < WORKLOADS:
        return Verdict(
            False, f"too few workloads to tell: {len(new)} have two runs to compare, needed {WORKLOADS}"
        )
    gain = ConfidenceInterval.of(new.of("batch") - serving.of("batch"), CONFIDENCE).map(np.expm1)
    first = float(new.of("top1").mean() - serving.of("top1").mean())
    facts = (
        f"the best of its first {BATCH} candidates is {100 * gain.mean:+.1f} % faster than by {name} "
        f"({100 * gain.low:+.1f} to {100 * gain.high:+.1f}, {CONFIDENCE:.0%} interval over {len(new)} held-out "
        "workloads), "
        f"top-1 {new.of('top1').mean():.3f} against {serving.of('top1').mean():.3f}"
    )
    if gain.low <= 0:
        return Verdict(False, f"no statistically significant gain: {facts}", gain)
    if first < 0:
        return Verdict(False, f"its first choice is worse: {facts}", gain)
    return Verdict(True, f"significantly better: {facts}", gain)


__all__ = ["CONFIDENCE", "WORKLOADS", "Verdict", "verdict"]
