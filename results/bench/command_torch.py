"""``python -m results.bench torch``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from autotune.cli import options_bench as shared

ABOUT = (
    'Models of torchvision, timm and transformers with random weights by `torch.compile(model, backend="autotune")`, '
    "untuned, beside inductor (max-autotune, weights frozen) and eager PyTorch, in inference mode and float32: each in "
    "a process of its own, in turns. A model counts only where every graph of it is compiled."
)


@click.command(epilog="Example: python -m results.bench torch bert mixer --rounds 4 -o results/torch.md")
@click.argument("names", nargs=-1)
@shared.number_option("--threads", 2, "Threads of each.")
@shared.number_option("--rounds", 8, "Turns that each gets.")
@shared.with_output
def command(output: shared.Output, names: Sequence[str], threads: int, rounds: int) -> None:
    """torch.compile by us beside inductor; NAMES are architectures of `bench held-out` (ten by default)."""
    from autotune.bench.side_by_side import Pace
    from autotune.errors import UsageError
    from autotune.hardware import check_threads
    from autotune.suggest import counted
    from results.bench import torch_compile
    from results.bench.held_out import measure

    check_threads(threads, allow_oversubscription=False)
    wrong = measure.check_names(names)
    if wrong:
        raise UsageError(wrong)
    measure.chosen(names)
    rows: list[torch_compile.Row] = []
    document = output.document("torch.compile", ABOUT, data=[])
    pace = Pace(rounds, 1)
    for row in torch_compile.measure(names or torch_compile.MODELS, threads, pace, shared.say):
        rows.append(row)
        made = torch_compile.tables(rows, counted(threads, "thread"))
        document = output.document("torch.compile", ABOUT, made, [asdict(each) for each in rows])
        output.save(document)
    output.finish(document)


__all__ = ["command"]
