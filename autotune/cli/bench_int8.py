"""``autotune bench int8``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from autotune.cli.side_by_side import Asked, side_by_side
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.bench.result import Result
    from autotune.bench.tables import Table

ABOUT = (
    "Quantised matrix products (MatMulInteger) and convolutions (QLinearConv, channels first) with constant "
    "weights, as an ONNX model that everybody gets. `float32` is our time of the same product in float32."
)


@click.command(
    epilog="Example: autotune bench int8 matmul --threads 1,2 --peers onnxruntime -o results/int8.md"
)
@click.argument("words", nargs=-1)
@side_by_side(threads="1", peers="onnxruntime", rounds=10, of_what="problem")
def command(asked: Asked, words: Sequence[str]) -> None:
    """Quantised operators beside peers and beside float32; WORDS choose those whose names have one of them."""
    from autotune.bench.suites import quantised

    chosen = [c for c in quantised.cases() if not words or any(word in c.name for word in words)]
    if not chosen:
        names = ", ".join(c.name for c in quantised.cases() if c.family == quantised.INTEGER)
        raise UsageError(f"no problem's name has {' or '.join(map(repr, words))}; there are: {names}")
    asked.run("Quantised operators", ABOUT, chosen, _tables)


def _tables(threads: str, results: Sequence[Result], labels: Mapping[str, str]) -> list[Table]:
    from autotune.bench import report
    from autotune.bench.suites import quantised
    from autotune.bench.tables import NOTHING, quotient, ratio

    floats = {r.case.name: r for r in results if r.case.family == quantised.FLOAT}

    def float_cell(result: Result) -> str:
        plain = floats.get(result.case.name)
        return NOTHING if plain is None else report.cell(plain, plain.ours_name)

    def to_float(result: Result) -> str:
        plain = floats.get(result.case.name)
        other = None if plain is None else plain.min_ns(plain.ours_name)
        return ratio(quotient(result.min_ns(result.ours_name), other))

    extras = [("Gop/s", report.gigaflops), ("float32", float_cell), ("÷ float32", to_float)]
    quantities = [r for r in results if r.case.family == quantised.INTEGER]
    title = f"Quantised operators, {threads}"
    return [report.side_by_side(title, quantities, labels, extras, first="problem", with_family=False)]


__all__ = ["command"]
