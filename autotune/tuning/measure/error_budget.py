"""The error that a whole model may have: what is compared, and the most that is allowed, as a text or a function.

Errors are those of outputs against a reference, for inputs that stand for a model's use. Each input set, the inputs of
one run, has an error; either the worst of them counts, or their mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from autotune.errors import InputError, UsageError
from autotune.suggest import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Outputs: TypeAlias = Mapping[str, NDArray[Any]]
    Distance: TypeAlias = Callable[[Outputs, Outputs], float]
    AccuracyLike: TypeAlias = "Accuracy | str | float | tuple[Distance, float] | tuple[Distance, float, str]"

CONFIDENCE = 0.95
CHOICES = 4
"""Choices that are judged by held-back inputs, at most, where a mean counts: each gets as large a part of the doubt
that confidence leaves (Bonferroni)."""
_DOUBT = (1 - CONFIDENCE) / CHOICES
_MEAN = "mean"
"""The kind of a function the mean of which counts."""
NOTED = "accuracy"
"""The name of the error in the metadata of an image: JSON, with the budget that it was compiled within."""


def relative(reference: Outputs, outputs: Outputs) -> float:
    """Return the norm of the difference over the norm of the reference, of the output where that is largest.

    Infinite where one of both is not finite, or a reference of zeros has another result.

    >>> relative({"y": np.array([3.0, 4.0])}, {"y": np.array([3.0, 4.5])})
    0.1
    """
    return max((_relative(*pair) for pair in _pairs(reference, outputs)), default=0.0)


def cosine(reference: Outputs, outputs: Outputs) -> float:
    """Return 1 - cosine of the angle between result and reference, of the output where that is largest."""
    return max((_cosine(*pair) for pair in _pairs(reference, outputs)), default=0.0)


def _pairs(reference: Outputs, outputs: Outputs) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    return [
        (array.astype(np.float64).ravel(), outputs[name].astype(np.float64).ravel())
        for name, array in reference.items()
    ]


def _relative(wanted: NDArray[Any], found: NDArray[Any]) -> float:
    if np.array_equal(wanted, found):
        return 0.0
    if not (np.isfinite(wanted).all() and np.isfinite(found).all() and wanted.any()):
        return float("inf")
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def _cosine(wanted: NDArray[Any], found: NDArray[Any]) -> float:
    if np.array_equal(wanted, found):
        return 0.0
    if not (np.isfinite(wanted).all() and np.isfinite(found).all() and wanted.any() and found.any()):
        return float("inf")
    one, other = (array / np.linalg.norm(array) for array in (wanted, found))
    return float(0.5 * ((one - other) ** 2).sum())  # 1 - one·other without its cancellation


def lost_labels(reference: Outputs, outputs: Outputs, labels: NDArray[Any] | None = None) -> float:
    """Return the share of rows of the first output that lose their label; its last axis has the classes.

    With labels it is the share that is right by the reference, less the share that is right by the outputs; without,
    the share whose greatest element is elsewhere. Raises InputError for other than one label a row.
    """
    first = next(iter(reference))
    wanted, found = (np.atleast_1d(each[first]).argmax(-1).ravel() for each in (reference, outputs))
    if labels is None:
        return float((wanted != found).mean())
    if labels.size != wanted.size:
        raise InputError(
            f"{labels.size} labels were given for the {wanted.size} rows of output {first!r} of an input set"
        )
    return float((wanted == labels.ravel()).mean() - (found == labels.ravel()).mean())


@dataclass(frozen=True)
class MeasuredError:
    """An error over input sets, with its 95 % interval.

    Of a mean it is that of the mean, which is at most ``bound`` with 95 % confidence, though ``CHOICES`` were judged by
    these sets. Where the worst set counts, no interval follows from these sets alone: it is that of the median error of
    a set; ``within`` is the share of such sets, at least, that keep the budget, with 95 % confidence.
    """

    error: float
    limit: float
    interval: tuple[float, float] | None
    within: float | None
    sets: int
    bound: float | None = None

    def __str__(self) -> str:
        """Return a line such as ``0.0042 of 0.01 allowed (median 0.002 to 0.003; 32 input sets ...)``."""
        interval = ""
        if self.interval is not None:
            what = "95 % interval" if self.within is None else "median"
            interval = f"{what} {self.interval[0]:.2g} to {self.interval[1]:.2g}; "
        within = "" if self.within is None else f", at least {100 * self.within:.0f} % of such within"
        bound = "" if self.bound is None else f", which show at most {self.bound:.2g}"
        sets = counted(self.sets, "input set")
        return f"{self.error:.2g} of {self.limit:.2g} allowed ({interval}{sets}{within}{bound})"

    @property
    def holds(self) -> bool:
        """Return whether the error, of a mean its bound, is at most what is allowed."""
        return (self.error if self.bound is None else self.bound) <= self.limit

    def to_json(self) -> dict[str, Any]:
        """Return all of it, as plain values."""
        return vars(self) | {"holds": self.holds}


@dataclass(frozen=True)
class Accuracy:
    """The largest allowed error of a model's outputs.

    ``1e-2`` is the largest :func:`relative` error of an input set; ``cosine=0.999`` the least cosine of one;
    ``top1=0.5%`` the mean loss of labels (:func:`lost_labels`). A function of the reference's outputs and the outputs,
    both by name, returns the error of an input set, of which the worst is compared with ``limit``, or with "mean"
    behind the limit their mean.
    """

    kind: str
    limit: float
    distance: Distance | None = None

    @classmethod
    def of(cls, budget: AccuracyLike) -> Accuracy:
        """Return the budget that a text, a number, or a function with its limit says; raises UsageError.

        >>> Accuracy.of("top1=0.5%")
        Accuracy(kind='top1', limit=0.005, distance=None)
        """
        if isinstance(budget, Accuracy):
            return budget
        if isinstance(budget, tuple):
            function, limit, *how = budget
            if how not in ([], [_MEAN]):
                raise _unknown(budget)
            return cls(_MEAN if how else "function", _number(str(limit), budget), function)
        kind, equals, number = str(budget).rpartition("=")
        found = _number(number, budget)
        if kind == "cosine" and found <= 1:
            return cls(kind, 1 - found)
        if (not equals and found > 0) or (kind == "top1" and found < 1):
            return cls(kind or "relative", found)
        raise _unknown(budget)

    def __str__(self) -> str:
        """Return it as text, which reads as the same."""
        if self.kind == "cosine":
            return f"cosine={1 - self.limit:.10g}"
        return f"top1={100 * self.limit:.10g}%" if self.kind == "top1" else f"{self.limit:g}"

    @property
    def is_mean(self) -> bool:
        """Return whether the mean over input sets counts, and not the worst of them."""
        return self.kind in ("top1", _MEAN)

    def each(
        self,
        references: Sequence[Outputs],
        outputs: Sequence[Outputs],
        labels: Sequence[NDArray[Any]] | None = None,
    ) -> NDArray[Any]:
        """Return the error of each input set. Labels are for ``top1``, one array an input set."""
        pairs = zip(references, outputs, strict=True)
        if self.kind == "top1":
            return np.array(
                [lost_labels(*pair, None if labels is None else labels[i]) for i, pair in enumerate(pairs)]
            )
        distance = self.distance or {"relative": relative, "cosine": cosine}[self.kind]
        found = np.array([float(distance(*pair)) for pair in pairs])
        return np.where(np.isnan(found), np.inf, found)

    def judged(self, errors: NDArray[Any]) -> MeasuredError:
        """Return the error over input sets of the given errors."""
        from scipy.stats import beta

        count, good = len(errors), int((errors <= self.limit).sum())
        if self.is_mean:
            interval = self.mean_bounds(errors, (1 - CONFIDENCE) / 2)
            _, bound = self.mean_bounds(errors, _DOUBT)
            return MeasuredError(float(errors.mean()), self.limit, interval, None, count, bound)
        within = float(beta.ppf(1 - CONFIDENCE, good, count - good + 1)) if good else 0.0
        return MeasuredError(float(errors.max()), self.limit, _median_interval(errors), within, count)

    def mean_bounds(self, errors: NDArray[Any], doubt: float) -> tuple[float, float]:
        """Return what the mean over all input sets is at least and at most, each wrong with probability ``doubt``.

        They are Clopper and Pearson's of a share, of losses and of gains: exact where each set has lost, kept or won
        its only label. Other errors count as parts of the largest of them, of ``top1`` as parts of a set, which varies
        more than they do.
        """
        most = self._largest(errors)
        if not np.isfinite(most):
            return 0.0, float("inf")
        lost, won = (float(np.maximum(sign * errors, 0).sum() / most) for sign in (1, -1))
        doubt = doubt / 2 if won else doubt  # both are to hold at once
        low, high = _share_bounds(lost, len(errors), doubt)
        least, greatest = _share_bounds(won, len(errors), doubt) if won else (0.0, 0.0)
        return most * (low - greatest), most * (high - least)

    def _largest(self, errors: NDArray[Any]) -> float:
        return 1.0 if self.kind == "top1" else float(np.abs(errors).max()) or 1.0

    def check_enough(self, errors: NDArray[Any], held: int) -> None:
        """Raise InputError if so many held-back input sets cannot show that a mean is within the budget, even without
        any error among them; ``errors`` are those of a choice, which say how large errors of a set are."""
        most = self._largest(errors)
        bound = most * _share_bounds(0, held, _DOUBT)[1]
        if bound <= self.limit or not np.isfinite(most):
            return
        enough = np.ceil(np.log(_DOUBT) / np.log1p(-self.limit / most)) if self.limit else float("inf")
        give = f"give at least {2 * enough:.0f} input sets, or " if self.limit else ""
        raise InputError(
            f"{held} held-back input sets cannot show a mean error of at most {self.limit:.4g}: without any error "
            f"among them that of others may be up to {bound:.2g}, with {CONFIDENCE:.0%} confidence\n  {give}allow "
            f"{np.ceil(1000 * bound) / 1000:.4g}; half of the input sets are held back"
        )


def noted_line(found: Mapping[str, Any]) -> str:
    """Return a line about the error that an image was compiled within, by its metadata."""
    error = {name: value for name, value in found["held_back"].items() if name != "holds"}
    where = "random inputs" if found["random_inputs"] else "held-back inputs"
    return f"accuracy {found['budget']}: error on {where} {MeasuredError(**error)}"


def expected(accuracy: Accuracy, errors: NDArray[Any], further: int) -> float:
    """Return the error to expect on so many further input sets like those of the given errors.

    A mean is expected again. Of the worst of further sets it is the median, by the prediction distribution of normal
    logarithms (Student's t), and not below the worst that was seen.
    """
    from scipy.stats import t

    if accuracy.is_mean:
        return float(errors.mean())
    worst, count = float(errors.max()), len(errors)
    if count < 2 or worst == 0 or not np.isfinite(worst):
        return worst
    logs = np.log(np.maximum(errors, 1e-12))
    apart = t.ppf(0.5 ** (1 / further), count - 1) * np.sqrt(1 + 1 / count)
    return max(worst, float(np.exp(logs.mean() + apart * logs.std(ddof=1))))


def assured(accuracy: Accuracy, errors: NDArray[Any], further: int) -> float:
    """Return the error that has to be within the budget for a choice that was made by the given errors: of a mean the
    bound that held-back inputs are judged by, else what is :func:`expected` on so many further input sets."""
    if accuracy.is_mean:
        return accuracy.mean_bounds(errors, _DOUBT)[1]
    return expected(accuracy, errors, further)


def _number(text: str, budget: Any) -> float:
    """Return a number that is not negative, or a percentage as such."""
    try:
        found = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise _unknown(budget) from None
    if not 0 <= found < float("inf"):
        raise _unknown(budget)
    return found


def _unknown(budget: Any) -> UsageError:
    return UsageError(
        f"accuracy {budget!r} is no error budget\n  one of 1e-2 (the largest relative error of outputs), "
        "cosine=0.999 (the least cosine) and top1=0.5% (the share of labels that may be lost)"
    )


def _median_interval(errors: NDArray[Any]) -> tuple[float, float] | None:
    """Return the order statistics between which the median is; None for too few."""
    from scipy.stats import quantile_test

    low, high = quantile_test(errors, p=0.5).confidence_interval(CONFIDENCE)
    return (float(low), float(high)) if np.isfinite([low, high]).all() else None


def _share_bounds(hits: float, count: int, doubt: float) -> tuple[float, float]:
    """Return Clopper and Pearson's bounds (Biometrika 26, 1934) of a share of which so many of ``count`` were hits."""
    from scipy.stats import beta

    low = float(beta.ppf(doubt, hits, count - hits + 1)) if hits else 0.0
    return low, float(beta.ppf(1 - doubt, hits + 1, count - hits)) if hits < count else 1.0


__all__ = [
    "CHOICES",
    "CONFIDENCE",
    "NOTED",
    "Accuracy",
    "MeasuredError",
    "assured",
    "cosine",
    "expected",
    "lost_labels",
    "noted_line",
    "relative",
]
