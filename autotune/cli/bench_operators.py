"""``autotune bench operators``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from autotune.cli.side_by_side import Asked, side_by_side
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.bench.compare import Result
    from autotune.bench.tables import Table

ABOUT = (
    "Single operators, float32. Weights are constants for everybody; our tensors lie channels last, the "
    "peers' as they want them. PyTorch runs op by op, without folding a batch norm into a convolution."
)


@click.command(
    epilog="Example: autotune bench operators C2D GMM --threads 2 --db ops.db --trials 200 "
    "--peers onnxruntime,torch -o results/operators.md"
)
@click.argument("names", nargs=-1)
@side_by_side(threads="2", peers="onnxruntime,openvino", rounds=10, of_what="operator")
@click.option("--smallest", is_flag=True, help="Only the smallest operator of each family.")
def command(asked: Asked, names: Sequence[str], smallest: bool) -> None:
    """The Ansor operator suite beside peers; NAMES are families such as C2D (all of them by default).

    Weights are constants for everybody. Our tensors lie channels last, the peers' as they want them.
    """
    from autotune.bench.suites import operators

    unknown = sorted(set(names) - set(operators.FAMILIES))
    if unknown:
        raise UsageError(f"unknown family {unknown[0]!r}; there are: {', '.join(operators.FAMILIES)}")
    chosen = operators.cases(names or tuple(operators.FAMILIES))
    cases = operators.smallest(chosen) if smallest else list(chosen)
    legend = [f"{family}: {operators.FAMILIES[family]}" for family in names or operators.FAMILIES]
    asked.run("Operators", ABOUT, cases, _tables, notes=legend)


def _tables(threads: str, results: Sequence[Result], labels: Mapping[str, str]) -> list[Table]:
    from autotune.bench import report

    rate = [("GFLOP/s", report.gigaflops)]
    each = report.side_by_side(f"Operators, {threads}", results, labels, rate, first="operator")
    return [each, report.families(f"Families, {threads}", results, labels)]


__all__ = ["command"]
