"""The operators of Ansor's suite with peers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from autotune.bench import options
from autotune.bench.columns import families, race, rate, side_by_side
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say
from autotune.bench.tables import number

METASCHEDULE = "metaschedule"
ABOUT = (
    "Single operators, float32. Weights are constants for everybody; our tensors lie channels last, the "
    "peers' as they want them. PyTorch runs op by op, without folding a batch norm into a convolution."
)
ABOUT_METASCHEDULE = (
    "MetaSchedule gets each operator as one function in our layout, in the form of its own suite (a capsule "
    "convolution as one between two transpositions); its weights are arguments, and it chooses no other layout for "
    "them. Its builder does not import the instructions of accelerators, which takes longer than the trials."
)


def measure(say: Say, names: Sequence[str], smallest: bool, **given: Any) -> Iterator[Sequence[Record]]:
    """Compare operators of the suite, all of them by default."""
    from autotune.bench.compare import compare, plan_of
    from autotune.bench.suites import operators

    cases = [case for name in names or operators.FAMILIES for case in operators.named(name)]
    return compare(operators.smallest(cases) if smallest else cases, plan_of(given), say)


def _about(given: Mapping[str, Any]) -> str:
    return f"{ABOUT} {ABOUT_METASCHEDULE}" if METASCHEDULE in given["peers"] else ABOUT


def _legend(rows: FrameRows) -> Iterator[str]:
    from autotune.bench.suites import operators

    for family in dict.fromkeys(rows.all("family")):
        yield f"{family}: {operators.FAMILIES[family]}"


EXPERIMENT = Experiment(
    title="Operators",
    about=_about,
    summary="""Measure the Ansor operator suite, interleaved with peers.

    NAMES are families such as C2D (all of them by default) or single operators such as GMM:1,512,512,512.
    Weights are constants for everybody. Our tensors lie channels last, the peers' as they want them.

    metaschedule is TVM's tuner: it gets --peer-trials trials of each operator, in our layout.""",
    example="C2D GMM:1,512,512,512 --db ops.db --trials 200 --peers torch,metaschedule --peer-folder kept "
    "-o results/operators.md",
    options=(
        options.words(),
        *options.side_by_side("2", "onnxruntime,openvino", 10, "operator"),
        click.Option(["--smallest"], is_flag=True, help="Only the smallest operator of each family."),
    ),
    measure=measure,
    views=(
        side_by_side("Operators, {threads}", "operator", (Column("GFLOP/s", rate(), number(1)),)),
        families("Families, {threads}"),
        race("Tuning beside MetaSchedule, {threads}", METASCHEDULE, "MetaSchedule"),
    ),
    notes=_legend,
)

__all__ = ["EXPERIMENT"]
