"""``python -m results.bench predictions``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli import options_bench as shared
from autotune.suggest import counted

if TYPE_CHECKING:
    from autotune.bench.tables import Table
    from results.bench.predictions import Sample
    from results.bench.whole_models import Foreseen

ABOUT = (
    "How well the analytic cost model ranks random candidates of each family of search spaces, measured in turns; "
    "minima count. Correlation is Spearman's, of ranks: 1 for the same order, 0 for none. Scale: predicted over "
    "measured time, the median. Regret: the measured time of the candidate that the model likes best, over the best. "
    "Error: the factor that the expected time of that candidate is off by, which has the family's known scale "
    "(e to the root mean square of the logarithms). Whole models run their default schedules in fresh processes."
)


@click.command(
    epilog="Example: python -m results.bench predictions pool depthwise --candidates 60 --json > runs.json"
)
@click.argument("names", nargs=-1)
@shared.number_option("--candidates", 40, "Of each workload.", least=3)
@shared.number_option("--turns", 3, "Of each one.")
@click.option(
    "--from",
    "earlier",
    type=click.Path(exists=True, path_type=Path),
    multiple=True,
    metavar="FILE.json|FOLDER",
    help="Measure nothing: compare the model with times of an earlier run (its JSON) or of a folder of recordings "
    "(several may be given).",
)
@shared.threads_option("1")
@click.option(
    "--models",
    default="none",
    show_default=True,
    metavar="NAME,NAME|all|none",
    help="Whole models whose latency and memory are predicted, measured and compared: zoo models, all of them or none.",
)
@shared.threads_option("1", "--model-threads", "Numbers of threads of whole models.")
@shared.number_option(
    "--rounds", 9, "Turns of each whole model, a third of them in each of three processes.", least=3
)
@shared.with_output
def command(
    output: shared.Output,
    names: Sequence[str],
    candidates: int,
    turns: int,
    earlier: Sequence[Path],
    threads: Sequence[int],
    models: str,
    model_threads: Sequence[int],
    rounds: int,
) -> None:
    """Rank correlation of the analytic cost model with measured times, and its error; NAMES are families of search
    spaces."""
    from autotune.bench.replay.recording import read_all
    from autotune.bench.side_by_side import Pace
    from autotune.target import Target
    from results.bench import predictions, recorded_transfers
    from results.bench.predictions import Sample
    from results.bench.recorded_transfers import transferred
    from results.bench.whole_models import Foreseen, foresee

    shared.check_known(names, (family for family, _, _ in predictions.cases()), "family")
    chosen = _models(models)
    found, whole = list[Sample](), list[Foreseen]()
    for path in earlier:
        samples, foreseen = predictions.read(path)
        found, whole = found + samples, whole + foreseen
    for number in threads if not earlier else ():
        for family, name, workload in predictions.cases(names):
            shared.say(f"{family} {name}: {candidates} candidates, {counted(number, 'thread')}")
            target = Target.detect(number)
            found.append(
                predictions.measured(family, name, workload, target, candidates=candidates, turns=turns)
            )
    for number in model_threads if not earlier else ():
        whole += foresee(chosen, number, Pace(rounds=rounds), shared.say)
    wanted = [sample for sample in found if not names or sample.family in names]
    data = {"regions": [asdict(sample) for sample in wanted], "models": [asdict(one) for one in whole]}
    recorded = [recording for path in earlier if path.is_dir() for recording in read_all(path)]
    tables = (
        _families(wanted),
        *([_whole(whole)] if whole else []),
        *([_constants(wanted), recorded_transfers.table([*transferred(recorded)])] if recorded else []),
        _workloads(wanted),
    )
    output.finish(output.document("Predictions of the cost model", ABOUT, tables, data))


def _models(text: str) -> Sequence[str]:
    """Return the zoo models of ``--models``."""
    from autotune.bench.suites.models import DEFAULT

    if text in ("all", "none"):
        return DEFAULT if text == "all" else ()
    names = text.split(",")
    shared.check_known(names, DEFAULT, "model")
    return names


def _whole(found: Sequence[Foreseen]) -> Table:
    from autotune.bench.tables import Table, duration
    from autotune.tuning.units import size
    from results.bench.whole_models import geometric_error

    rows = tuple(
        (
            f"{one.model}, {counted(one.threads, 'thread')}",
            duration(one.predicted_ns),
            f"{duration(one.interval_ns[0])} to {duration(one.interval_ns[1])}",
            duration(one.measured_ns),
            f"{one.ratio:.2f}",
            size(one.predicted_peak + one.predicted_constants),
            size(one.peak + one.constants),
            f"{one.memory_ratio:.3f}",
        )
        for one in found
    )
    inside = sum(one.holds for one in found)
    notes = (
        f"latency is off by a factor of {geometric_error(one.ratio for one in found):.2f} (geometric)",
        f"{inside} of {len(found)} measured latencies lie in their 95 % interval",
        f"memory is off by a factor of {geometric_error(one.memory_ratio for one in found):.4f} (geometric)",
    )
    head = ("model", "expected", "95 %", "measured", "ratio", "expected memory", "real", "memory ratio")
    return Table("Whole models", head, rows, notes)


def _families(samples: Sequence[Sample]) -> Table:
    from autotune.bench.tables import Table
    from results.bench.predictions import by_group

    correlation = by_group(samples, lambda sample: sample.correlation)
    scale = by_group(samples, lambda sample: sample.scale)
    regret = by_group(samples, lambda sample: sample.regret)
    square = by_group(samples, lambda sample: math.log(sample.ratio) ** 2)
    rows = tuple(
        (
            family,
            f"{value:.2f}",
            f"{scale[family]:.2f}",
            f"{regret[family]:.2f}",
            f"{math.exp(math.sqrt(square[family])):.2f}",
        )
        for family, value in correlation.items()
    )
    return Table(
        "Families and targets, means", ("family, target", "correlation", "scale", "regret", "error"), rows
    )


def _constants(samples: Sequence[Sample]) -> Table:
    """What `cost_models.known_error` would have by these samples, beside what it has."""
    from autotune.bench.tables import Table
    from cost_models.known_error import LEVEL, known_error
    from results.bench.predictions import fitted, fitted_level

    found = [(name, *of, known_error(name)) for name, of in fitted(samples).items()]
    found += [("a level", *fitted_level(samples), LEVEL)]
    rows = tuple(
        (name, str(count), f"{e.scale:.2f}", f"{e.spread:.2f}", f"{now.scale:.2f}", f"{now.spread:.2f}")
        for name, e, count, now in found
        if count
    )
    head = ("family", "workloads", "scale", "spread", "scale that is known", "spread that is known")
    notes = (
        "of the candidates that the model likes best: predicted over measured, geometric mean and standard deviation "
        "of the logarithm; a level: code for x86-64-v3, after the known scale of its family",
    )
    return Table("Known errors", head, rows, notes)


def _workloads(samples: Sequence[Sample]) -> Table:
    from autotune.bench.tables import Table, duration

    rows = tuple(
        (
            f"{sample.family} {sample.name}",
            str(len(sample.configs)),
            duration(min(sample.nanoseconds)),
            duration(max(sample.nanoseconds)),
            f"{sample.correlation:.2f}",
            f"{sample.scale:.2f}",
            f"{sample.regret:.2f}",
        )
        for sample in samples
    )
    head = ("workload", "candidates", "fastest", "slowest", "correlation", "scale", "regret")
    return Table("Workloads", head, rows)


__all__ = ["command"]
