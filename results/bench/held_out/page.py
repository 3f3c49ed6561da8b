"""The table of what the architectures came to."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.bench.tables import NOTHING, Table, duration, geometric_mean, ratio, scientific
from results.bench.held_out.measure import TOLERANCE, Outcome

_COLUMNS = (
    "model, exporter",
    "task",
    "right",
    "max. error",
    "compile",
    "peak memory",
    "arena",
    "constants",
    "dispatches",
    "autotune",
    "ONNX Runtime",
    "ratio",
)
_SHOWN = 300
"""Characters of a failure."""


def tables(outcomes: Sequence[Outcome], threads: str) -> list[Table]:
    """A row an outcome, and why those failed that did."""
    compared = [each for each in outcomes if each.error is not None]
    right = [each for each in compared if each.right]
    mean = geometric_mean(each.ratio for each in right)
    notes = (
        f"right: {len(right)} of {len(outcomes)}; at most {TOLERANCE:g} from the peer, relative to the largest value "
        "of an output",
        f"geometric mean of the ratios of those that are right: {ratio(mean)}; slower than 1.1: "
        + (", ".join(_label(each) for each in right if (each.ratio or 0.0) > 1.1) or "none"),
        "peak memory: of the process that compiles and its workers, at most",
        *_in_words(compared),
    )
    made = [Table(f"Held-out models, {threads}", _COLUMNS, tuple(map(_row, outcomes)), notes)]
    failed = [each for each in outcomes if each.failure]
    if failed:
        rows = tuple((_label(each), _short(each.failure)) for each in failed)
        made.append(Table("Not compared", ("model, exporter", "why"), rows))
    return made


def _in_words(outcomes: Sequence[Outcome]) -> list[str]:
    """What is said of models that are not compiled as others are, or are apart from the peer."""
    said = [
        f"{_label(each)}: compiled with a tolerance of {each.tolerance:g}"
        for each in outcomes
        if each.tolerance is not None
    ]
    for each in outcomes:
        if each.off is not None:
            said.append(
                f"{_label(each)}: {scientific(each.error)} from the peer; from the model in float64, by PyTorch, "
                f"autotune is {scientific(each.off)} and the peer {scientific(each.peer_off)}"
            )
    return said


def _label(outcome: Outcome) -> str:
    return f"{outcome.name}, {outcome.exporter}"


def _row(outcome: Outcome) -> tuple[str, ...]:
    done = outcome.compiled
    made = done is not None and not done.failure
    return (
        _label(outcome),
        outcome.family,
        _verdict(outcome),
        scientific(outcome.error),
        f"{done.seconds:.1f} s" if done and made else NOTHING,
        f"{done.peak_bytes / 2**20:.0f} MiB" if done else NOTHING,
        f"{done.arena_bytes / 2**20:.2f} MiB" if done and made else NOTHING,
        f"{done.constant_bytes / 2**20:.1f} MiB" if done and made else NOTHING,
        str(done.dispatches) if done and made else NOTHING,
        duration(outcome.ours_ns),
        duration(outcome.peer_ns),
        ratio(outcome.ratio),
    )


def _verdict(outcome: Outcome) -> str:
    if outcome.failure:
        return "no: see below"
    if outcome.error is None:
        return NOTHING
    return "yes" if outcome.right else "WRONG"


def _short(failure: str) -> str:
    """A failure on one line; without the list of what is supported."""
    text = " ".join(failure.split("\n  supported:")[0].split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."


__all__ = ["tables"]
