"""``python -m results.bench retraining``."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autotune.cli import options_bench as shared
from autotune.cli.options import seed_option
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.bench.tables import Table
    from cost_models.interval import ConfidenceInterval
    from results.bench.retraining import Resampled, Step, Year

ABOUT = (
    "Recorded runs go into a database month by month, and the cost model is retrained after each, by the same path as "
    "`autotune retrain`. After one month the runs of the rest of the year are tried with their latencies shuffled "
    "within each workload, after another all runs so far once more: neither may be promoted. Gain: how much faster the "
    "best of the first k candidates of the new model is than of what was in use, the mean over k up to 8 and over "
    "workloads; held out as the gate measures it, with its 99 % interval; unseen on workloads that no model has learnt "
    "from (a fifth in the year, 40 % of each resampled order), with its 95 % interval. Resampled: a model of a fifth "
    "of the workloads is in use, whatever it is worth, and is retrained with more of them; it has learnt from their "
    "readings (few workloads: a young database), or from the same ones shuffled within each workload (spoilt readings: "
    "a machine never at rest), so that there is something to gain. Worse: the mean gain on unseen workloads is below "
    "zero, by however little; clearly: its whole interval is."
)


@click.command(epilog="Example: python -m results.bench retraining --recordings results/replay --orders 50")
@click.option(
    "--recordings",
    "folders",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    multiple=True,
    required=True,
    help="Of `autotune replay record`, one folder or several.",
)
@shared.number_option("--runs", 96, "Of each workload at most.", least=8)
@shared.number_option("--orders", 50, "Random orders of the workloads, each with four retrainings.", least=0)
@shared.number_option("--rounds", 60, "Trees of each member.")
@seed_option
@shared.with_output
def command(
    output: shared.Output, folders: Sequence[Path], runs: int, orders: int, rounds: int, seed: int
) -> None:
    """Retrain the cost model month by month and with resampled workloads: which promotions hold on unseen ones?"""
    from autotune.bench.replay.recording import read_all
    from autotune.hardware import usable_cores
    from cost_models.feature_cache import FeatureCache
    from cost_models.gate import WORKLOADS
    from results.bench import retraining
    from results.bench.recorded_runs import RecordedRuns

    recordings = [recording for folder in folders for recording in read_all(folder)]
    recorded = RecordedRuns(recordings, runs)
    if len(recorded) < 2 * WORKLOADS:
        raise UsageError(
            f"{len(recorded)} recorded workloads are too few: the gate needs {WORKLOADS} to promote a model"
        )
    effort = retraining.Effort(rounds, usable_cores(), FeatureCache.of_user())
    whole = retraining.year(recorded, effort, seed, shared.say)
    resampled = retraining.resampled(recorded, effort, orders, seed, shared.say)
    tables = (_year(whole), *([_resampled(resampled)] if resampled else ()))
    data = {
        "year": [_plain(step) for step in whole.steps],
        "resampled": [{"earlier": r.earlier, "share": r.share, **_plain(r.step)} for r in resampled],
    }
    output.finish(output.document("Retraining, month by month and resampled", ABOUT, tables, data))


def _year(found: Year) -> Table:
    from autotune.bench.tables import NOTHING, Table

    rows = []
    for step in found.steps:
        report = step.report
        judged = [report.judged.get(name) for name in ("new", "in use", "analytic")]
        rows.append(
            (
                step.batch,
                str(report.runs),
                str(report.workloads),
                "promoted" if report.replaced else "refused",
                _gain(report.gain),
                _gain(step.unseen),
                *(f"{one.interval('top1').mean:.3f}" if one else NOTHING for one in judged),
                step.in_use or "analytic",
            )
        )
    head = ("batch", "runs", "workloads", "new model", "gain held out", "gain unseen", *_TOP1, "in use after")
    rolled = ", ".join(name or "the analytic model alone" for name in found.rollbacks)
    notes = (*found.manifests, *([f"rolled back to {rolled}"] if rolled else ()))
    return Table("A year in miniature", head, tuple(rows), notes)


_TOP1 = ("top-1 new", "in use", "analytic")


def _resampled(found: Sequence[Resampled]) -> Table:
    from autotune.bench.tables import Table
    from results.bench.retraining import RETRAINED, Earlier

    rows = [
        _counts(earlier, f"{share:.0%} of the workloads", [r for r in found if (r.earlier, r.share) == key])
        for key in itertools.product(Earlier, RETRAINED)
        for earlier, share in [key]
    ]
    return Table("Resampled", _COUNTED, (*rows, _counts("all", "", found)))


_COUNTED = (
    "in use learnt from",
    "learns from",
    "retrainings",
    "promoted",
    "worse on unseen",
    "clearly worse",
    "gain on unseen, least",
    "median",
)


def _counts(earlier: str, name: str, found: Sequence[Resampled]) -> tuple[str, ...]:
    from autotune.bench.tables import NOTHING
    from results.bench.retraining import clearly_worse, worse

    steps = [one.step for one in found]
    gains = sorted(step.unseen.mean for step in steps if step.unseen is not None)
    shown = (
        (f"{100 * gains[0]:+.1f} %", f"{100 * gains[len(gains) // 2]:+.1f} %")
        if gains
        else (NOTHING, NOTHING)
    )
    return (
        earlier,
        name,
        str(len(steps)),
        str(len(gains)),
        str(worse(steps)),
        str(clearly_worse(steps)),
        *shown,
    )


def _gain(found: ConfidenceInterval | None) -> str:
    from autotune.bench.tables import NOTHING

    if found is None:
        return NOTHING
    return f"{100 * found.mean:+.1f} % ({100 * found.low:+.1f} to {100 * found.high:+.1f})"


def _plain(step: Step) -> dict[str, Any]:
    unseen = step.unseen and [step.unseen.mean, step.unseen.low, step.unseen.high]
    return {"batch": step.batch, "in_use": step.in_use, "unseen": unseen, **step.report.to_dict()}


__all__ = ["command"]
