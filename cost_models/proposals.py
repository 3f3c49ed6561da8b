"""Candidates to try together: the best scored, as far as they are not all wrong for the same reason.

A model errs alike on candidates that share most of their choices, so the best of several such readings is hardly better
than one. Candidates are picked one after the other for their score and for what is uncertain of them given those
picked before: GP-BUCB (Desautels et al., JMLR 2014), a Gaussian process of the errors and an upper confidence bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

ERROR = 0.4
"""The standard deviation of the errors among the 40 best scored candidates, over that of all scores: the median of
131 recorded pools, of the analytic model and of rankers that had not seen the workload alike."""
REACH = 0.16
"""Errors of candidates that differ in a share s of their choices correlate by exp(-(s / REACH)² / 2): 0.67 at a tenth,
0.46 at two, 0.18 at three and 0.06 at four of the same pools."""
NOISE = 0.1
"""The variance of a reading over that of an error: what a reading says of its like is not all of it."""


def first(scores: NDArray[Any], choices: NDArray[Any], count: int) -> NDArray[np.intp]:
    """Return the rows of the ``count`` candidates to try first, of all that have ``scores`` [n] (the
    higher, the faster).

    Equal values in a column of ``choices`` [n, K] are the same choice. The first row is the best scored, the first of
    equals.
    """
    unsure = ERROR * float(np.std(scores, dtype=np.float64)) if len(scores) else 0.0
    worth, variance = np.array(scores, np.float64), np.ones(len(scores))
    known = np.zeros(
        (0, len(scores))
    )  # rows of a Cholesky factor: what the picked ones say of each candidate
    picked: list[int] = []
    for _ in range(min(count, len(scores))):
        row = int(np.argmax(worth + unsure * np.sqrt(variance)))
        picked.append(row)
        worth[row] = -np.inf
        differ = (choices != choices[row]).sum(axis=1) / max(1, choices.shape[1])
        alike = np.exp(-((differ / REACH) ** 2) / 2)
        said = (alike - known[:, row] @ known) / np.sqrt(variance[row] + NOISE)
        known, variance = np.vstack([known, said]), np.maximum(variance - said**2, 0.0)
    return np.asarray(picked, np.intp)


__all__ = ["ERROR", "NOISE", "REACH", "first"]
