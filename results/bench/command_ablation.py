"""``python -m results.bench ablation``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from autotune.cli import options_bench as shared

ABOUT = (
    "What each part of the graph compiler is worth: untuned models with everything on beside the same with one part "
    "switched off, their dispatches, the bytes that these move, memory between them, and latency. Both versions of a "
    "model take turns in fresh processes."
)


@click.command(epilog="Example: python -m results.bench ablation squeezenet encoder -o results/ablation.md")
@click.argument("names", nargs=-1)
@click.option(
    "--without", "only", multiple=True, metavar="PART", help="Switch off this part only; may be repeated."
)
@shared.number_option("--threads", 2, "Workers.")
@shared.number_option("--processes", 6, "Fresh processes.", least=1)
@shared.with_output
def command(
    output: shared.Output, names: Sequence[str], only: Sequence[str], threads: int, processes: int
) -> None:
    """Models with parts of the graph compiler switched off; NAMES are zoo models or ONNX files."""
    from autotune.bench.suites.models import DEFAULT
    from autotune.errors import UsageError
    from autotune.hardware import check_threads
    from autotune.suggest import counted, listing
    from results.bench import ablation

    check_threads(threads, allow_oversubscription=False)
    known = [switch.name for switch in ablation.SWITCHES]
    for name in only:
        if name not in known:
            raise UsageError(
                f"--without {name!r} is no part that can be switched off\n  one of {listing(name, known)}"
            )
    switches = [switch for switch in ablation.SWITCHES if not only or switch.name in only]
    found = ablation.measure(names or DEFAULT, switches, threads, processes, shared.say)
    tables = ablation.tables(found, switches, counted(threads, "thread"))
    output.finish(
        output.document(
            "Parts of the graph compiler switched off", ABOUT, tables, [asdict(each) for each in found]
        )
    )


__all__ = ["command"]
