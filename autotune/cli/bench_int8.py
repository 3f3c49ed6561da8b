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
    "Models quantised by `autotune quantize` and by ONNX Runtime's static quantiser (QDQ, per channel), from the same "
    "samples: how far they are from float32, and how fast they are. Runtimes round in other places, so that their "
    "outputs are some steps apart. Then quantised matrix products (MatMulInteger) and convolutions (QLinearConv, "
    "channels first) with constant weights, as an ONNX model that everybody gets. `float32` is our time of the same "
    "in float32."
)


@click.command(
    epilog="Example: autotune bench int8 mobilenetv2 matmul --threads 1,2 --peers onnxruntime -o results/int8.md"
)
@click.argument("words", nargs=-1)
@side_by_side(threads="1", peers="onnxruntime", rounds=10, of_what="problem")
def command(asked: Asked, words: Sequence[str]) -> None:
    """Quantised models and operators beside peers and float32; WORDS choose those whose names have one of them."""
    from autotune.bench.quantised import cases
    from autotune.bench.quantised.accuracy import table
    from autotune.bench.suites import quantised
    from autotune.bench.systems import find_peers
    from autotune.cli.options_bench import say

    names = cases.chosen(words)
    operators = [c for c in quantised.cases() if not words or any(word in c.name for word in words)]
    if not names and not operators:
        known = [*cases.NAMES, *(c.name for c in quantised.cases() if c.family == quantised.INTEGER)]
        raise UsageError(
            f"no problem's name has {' or '.join(map(repr, words))}; there are: {', '.join(known)}"
        )
    peers = [p for p in find_peers(asked.peers, asked.peer_pythons) if p.name == "onnxruntime"]
    prepared = cases.prepare(names, peers[0] if peers else None, asked.threads[0], say)
    first = [table(prepared.accuracies)] if prepared.accuracies else []
    data = [each.to_json() for each in prepared.accuracies]
    asked.run(
        "Quantised models and operators",
        ABOUT,
        [*prepared.cases, *operators],
        _tables,
        before=first,
        data=data,
    )


def _tables(threads: str, results: Sequence[Result], labels: Mapping[str, str]) -> list[Table]:
    from autotune.bench.quantised import cases
    from autotune.bench.suites import quantised

    groups = (
        (f"Quantised models, {threads}", "model", cases.INTEGER, cases.FLOAT),
        (f"Quantised operators, {threads}", "problem", quantised.INTEGER, quantised.FLOAT),
    )
    return [
        _beside_float(title, first, [r for r in results if r.case.family == integer], floats, labels)
        for title, first, integer, plain in groups
        if (floats := {r.case.name: r for r in results if r.case.family == plain})
        or any(r.case.family == integer for r in results)
    ]


def _beside_float(
    title: str,
    first: str,
    quantities: Sequence[Result],
    floats: Mapping[str, Result],
    labels: Mapping[str, str],
) -> Table:
    from autotune.bench import report
    from autotune.bench.quantised.cases import model_of
    from autotune.bench.tables import NOTHING, quotient, ratio

    def float_cell(result: Result) -> str:
        plain = floats.get(model_of(result.case.name))
        return NOTHING if plain is None else report.cell(plain, plain.ours_name)

    def to_float(result: Result) -> str:
        plain = floats.get(model_of(result.case.name))
        other = None if plain is None else plain.min_ns(plain.ours_name)
        return ratio(quotient(result.min_ns(result.ours_name), other))

    extras = [("Gop/s", report.gigaflops), ("float32", float_cell), ("÷ float32", to_float)]
    return report.side_by_side(title, quantities, labels, extras, first=first, with_family=False)


__all__ = ["command"]
