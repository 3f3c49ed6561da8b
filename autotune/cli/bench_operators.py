"""``autotune bench operators``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from autotune.cli.side_by_side import Asked, side_by_side

if TYPE_CHECKING:
    from autotune.bench.result import Result
    from autotune.bench.tables import Table

ABOUT = (
    "Single operators, float32. Weights are constants for everybody; our tensors lie channels last, the "
    "peers' as they want them. PyTorch runs op by op, without folding a batch norm into a convolution."
)

METASCHEDULE = "metaschedule"
ABOUT_METASCHEDULE = (
    "MetaSchedule gets each operator as one function in our layout, in the form of its own suite (a capsule "
    "convolution as one between two transpositions); its weights are arguments, and it chooses no other layout for "
    "them. Its builder does not import the instructions of accelerators, which takes longer than the trials."
)


@click.command(
    epilog="Example: autotune bench operators C2D GMM:1,512,512,512 --db ops.db --trials 200 "
    "--peers torch,metaschedule --peer-folder kept -o results/operators.md"
)
@click.argument("names", nargs=-1)
@side_by_side(threads="2", peers="onnxruntime,openvino", rounds=10, of_what="operator")
@click.option("--smallest", is_flag=True, help="Only the smallest operator of each family.")
def command(asked: Asked, names: Sequence[str], smallest: bool) -> None:
    """Measure the Ansor operator suite, interleaved with peers.

    NAMES are families such as C2D (all of them by default) or single operators such as GMM:1,512,512,512.
    Weights are constants for everybody. Our tensors lie channels last, the peers' as they want them.

    metaschedule is TVM's tuner: it gets --peer-trials trials of each operator, in our layout.
    """
    from autotune.bench.suites import operators

    cases = [case for name in names or operators.FAMILIES for case in operators.named(name)]
    legend = [f"{family}: {operators.FAMILIES[family]}" for family in dict.fromkeys(c.family for c in cases)]
    chosen = operators.smallest(cases) if smallest else cases
    about = [ABOUT, *([ABOUT_METASCHEDULE] if METASCHEDULE in asked.peers else [])]
    asked.run("Operators", " ".join(about), chosen, _tables, notes=legend)


def _tables(threads: str, results: Sequence[Result], labels: Mapping[str, str]) -> list[Table]:
    from autotune.bench import report, report_tuning

    rate = [("GFLOP/s", report.gigaflops)]
    each = report.side_by_side(f"Operators, {threads}", results, labels, rate, first="operator")
    made = [each, report.families(f"Families, {threads}", results, labels)]
    if METASCHEDULE in labels:
        title = f"Tuning beside {labels[METASCHEDULE]}, {threads}"
        made.append(report_tuning.race(title, results, METASCHEDULE, labels[METASCHEDULE]))
    return made


__all__ = ["command"]
