"""The worth of measuring and of searching, and all constants of the policy that spends a job's budget.

What measuring promises is its knowledge gradient: by how much the expected latency of what is used afterwards is
smaller (Frazier, Powell, Dayanik, The knowledge-gradient policy for correlated normal beliefs, INFORMS J. Comput. 21,
2009). What a search promises follows from records: among n candidates of one population the next one is the best with
probability 1 ÷ (n + 1), and by about the spread over what is left of its tail; the default is as good as the best of
several.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from functools import partial

from autotune.database.posterior import CAUTION, INERTIA, SCHEDULE, Posterior

WORTH = 2e-4
"""The least expected gain, as a part of the model's latency, for which something is measured again."""
SPENT = 1e-9
"""The same where a time budget is to be spent anyway."""
BESIDE = 0.01
"""The part of the largest promise that what is compared beside it must promise: each takes code to be built."""
REPEATED = (1, 2, 4, 8, 16, 32, 64)
"""Measurements of the same that are thought of together."""
TRIAL_S, VERSION_S, PROCESS_S = 0.15, 0.12, 0.9
"""Seconds to build and time a candidate, to make a version of the model, and of a process that measures a few: first
guesses, corrected by what each kind of action has taken."""
BATCH = 8
"""Candidates that a search gets at once."""
DEFAULT_AS = 8
"""The default is as good as the best of so many candidates: the first four of a search make a workload 0.5 % faster in
the mean, and half of the workloads not at all. (results/replay/squeezenet.job.json, mobilenetv2.job.json)"""
ALIKE = 0.5
"""The part of the best action's gain a second that others promise which are begun at the same time, where there is room
for several: to choose each anew takes as long as to measure a candidate."""
CHALLENGERS = 4
"""The most options of a site in a comparison beside those in use."""
TOP = 4
"""The same of schedules: most of the time of a comparison goes to its processes, not to one more version."""
_CLEAR = 5.0
"""Standard deviations beyond which even certainty promises less than a millionth of one."""
DRAWS = 256
"""Draws by which the probability that an option is the fastest is worked out."""
LISTED = 3
"""Actions beside the next one that are shown."""
LEARNT = 0.3
"""The weight of what an action took against what was expected of its kind."""


def worth_repeating(behind: float, spread: float, variance: Callable[[int], float]) -> float:
    """Return the expected gain for each of as many measurements as are worth most; ``variance`` is that of so many.

    One alone may never change what is used where several would (Frazier, Powell, Paradoxes in learning and the marginal
    value of information, Decision Analysis 7, 2010). What cannot become as certain as it must be promises nothing.
    """
    if is_clear(behind, spread):
        return 0.0
    left = spread**2 - _moves(spread, variance(REPEATED[-1])) ** 2
    needed = INERTIA + CAUTION * math.sqrt(max(0.0, left))
    return max(knowledge_gradient(behind, spread, variance(many), needed) / many for many in REPEATED)


def is_clear(behind: float, spread: float) -> bool:
    """Return whether no measurement would have something used that is so far behind."""
    return behind + INERTIA > _CLEAR * spread


def knowledge_gradient(behind: float, spread: float, variance: float, needed: float = INERTIA) -> float:
    """Return the expected gain of a measurement with this variance of something that is ``behind`` what is used, in
    logs of the ratio, the difference being known with a standard deviation of ``spread``: it is used if it is then
    ahead by what is ``needed``.

    What is expected to be ahead is not used until it was compared: that alone is then worth as much.
    """
    if spread <= 0.0:
        return 0.0
    moves = _moves(spread, variance)
    z = -(behind + needed) / moves
    return moves * math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi) - behind * 0.5 * math.erfc(
        -z / math.sqrt(2)
    )


def _moves(spread: float, variance: float) -> float:
    """Return the standard deviation by which a measurement with this variance moves what is expected."""
    return spread**2 / math.sqrt(spread**2 + variance) if spread > 0.0 else 0.0


def records(known: int, more: int) -> float:
    """Return the expected gain by ``more`` candidates after so many beside the default, in logs of the ratio.

    >>> [round(records(known, 8), 4) for known in (0, 8, 64)]
    [0.0061, 0.003, 0.0005]
    """
    before = known + DEFAULT_AS
    chance = sum(1.0 / (before + 1 + n) for n in range(more))
    return chance * SCHEDULE / (1.0 + 2.0 * math.log1p(before))


def worth_measuring(
    known: Mapping[str, Posterior],
    used: str,
    variance: Callable[[str, int], float],
    names: Collection[str] | None = None,
) -> dict[str, float]:
    """Return what a measurement of alternatives to what is used promises, the largest first; ``variance`` is that of
    so many more measurements of an alternative, as far as they tell something new."""
    mine = known[used]
    found = {
        name: worth_repeating(
            other.mean - mine.mean, math.hypot(other.error, mine.error), partial(variance, name)
        )
        for name, other in known.items()
        if name != used and (names is None or name in names)
    }
    return dict(sorted(found.items(), key=lambda entry: (-entry[1], entry[0])))


__all__ = [
    "ALIKE",
    "BATCH",
    "BESIDE",
    "CHALLENGERS",
    "DEFAULT_AS",
    "DRAWS",
    "LEARNT",
    "LISTED",
    "PROCESS_S",
    "SPENT",
    "TOP",
    "TRIAL_S",
    "VERSION_S",
    "WORTH",
    "is_clear",
    "knowledge_gradient",
    "records",
    "worth_measuring",
    "worth_repeating",
]
