"""``autotune query``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

import click

from autotune.cli.echo import echo
from autotune.cli.options import (
    EPILOG_DATABASE,
    announce,
    compile_options,
    database_option,
    devices_option,
    json_option,
    objective_options,
    print_json,
    shape_options,
)

if TYPE_CHECKING:
    from autotune.compiler.dividing import Shapes
    from autotune.compiler.driver import CompileOptions
    from autotune.target import Target
    from autotune.tuning.api import Answer


@click.command(epilog=f"Example: autotune query zoo:squeezenet --db tuning.db. {EPILOG_DATABASE}")
@click.argument("what", metavar="MODEL|WORKLOAD")
@database_option
@compile_options
@objective_options
@click.option(
    "--top",
    type=click.IntRange(1),
    default=1,
    metavar="K",
    help="The K fastest runs of each, those read inside a model first.",
)
@click.option(
    "--front",
    "with_front",
    is_flag=True,
    help="The Pareto front of each: the runs that none beats in latency, memory and bytes of the artifact.",
)
@click.option("--only", metavar="TEXT", help="Only what has the text in the name of a dispatch or node.")
@click.option(
    "--explain",
    is_flag=True,
    help="Show the workload, its search space, what is near where nothing was measured, and the schedule.",
)
@devices_option
@json_option
def command(
    what: str,
    database: str | None,
    top: int,
    with_front: bool,
    only: str | None,
    explain: bool,
    devices: tuple[str, ...],
    as_json: bool,
    **options: Unpack[CompileOptions],
) -> None:
    """Show the best schedule for each workload of a MODEL, or for a WORKLOAD by its key.

    A line a dispatch says what runs, how fast, how sure that is, and what is possible. Where nothing was measured it
    is what was found for another target or for other sizes, or the default. A key may be shortened to its first digits:
    of one workload all is shown that is known, or why nothing is, and what to run. With --devices it is the placement
    of MODEL on them, and those that were searched.
    """
    announce(f"looking up {what}")
    from autotune.cli import answer_lines
    from autotune.cli.answer_json import to_json
    from autotune.target import Target
    from autotune.tuning.api import is_key, query

    if devices:
        _placement(what, devices, database, options["shapes"], as_json=as_json)
        return
    details = explain or with_front or top > 1 or is_key(what)
    found = query(
        what, database=database, top=top, with_front=with_front, with_near=details, only=only, **options
    )
    target, threads = options["target"], options["threads"]
    chosen = Target.parse(target, threads)
    sizes = shape_options(options["shapes"])
    answers = [_advised(answer, chosen, target, threads, sizes) for answer in found]
    if as_json:
        print_json([to_json(answer, explain=explain) for answer in answers])
        return
    lines = []
    if not is_key(what):
        lines = [*answer_lines.table(answers, chosen), *_missing(answers, what, database, details=details)]
    for answer in answers if details else ():
        lines += answer_lines.lines_of(answer, top)
        lines += [f"  {line}" for line in answer_lines.front_lines(answer)] if with_front else []
        lines += [f"    {line}" for line in answer_lines.explained(answer, chosen)] if explain else []
    for line in lines:
        echo(line)


def _placement(
    model: str, devices: tuple[str, ...], database: str | None, shapes: Shapes | None, *, as_json: bool
) -> None:
    """Print the placement of a model on devices, and what was searched beside it."""
    from autotune.tuning.placing import by_database

    _, answer = by_database(model, shapes, devices, database)
    if as_json:
        print_json(answer.to_json())
        return
    echo(str(answer))
    for line in answer.lines():
        echo(f"  {line}")


def _missing(answers: Sequence[Answer], what: str, database: str | None, *, details: bool) -> list[str]:
    """Return the number of dispatches not measured here, and the command that measures them."""
    from autotune.database import Miss
    from autotune.suggest import counted
    from autotune.tuning.api import NEAREST

    missing = [(a, a.answer) for a in answers if isinstance(a.answer, Miss) and not a.divided]
    if not missing:
        return []
    where = "" if database is None else f" --db {shlex.quote(database)}"
    advice = missing[0][1].advice.replace("`autotune tune", f"`autotune tune {shlex.quote(what)}{where}", 1)
    advice = advice.replace(" with this model and this --db", "")
    number = sum(len(answer.names) for answer, _ in missing)
    more = "" if details else f"; --explain has the {NEAREST} nearest of each"
    return [f"{counted(number, 'dispatch')} not measured for this target: {advice}{more}"]


def _advised(answer: Answer, chosen: Target, target: Target | str, threads: int | None, sizes: str) -> Answer:
    """Return a miss advises to tune for the target that was asked for, not for the default one."""
    from autotune.database import Miss
    from autotune.errors import UsageError
    from autotune.tuning.api import runnable

    miss = answer.answer
    if not isinstance(miss, Miss):
        return answer
    options = "" if target == "host" else f" --target {target}"
    options += "" if threads is None else f" --threads {threads}"
    options += sizes
    advice = miss.advice.replace("`autotune tune`", f"`autotune tune{options}`")
    try:
        runnable(chosen)
    except UsageError:
        advice = advice.removesuffix(" on this machine") + f", on a machine that runs code for {chosen.cpu}"
    return replace(answer, answer=replace(miss, advice=advice))


__all__ = ["command"]
