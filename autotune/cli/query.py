"""``autotune query``."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from autotune.cli.options import EPILOG_DATABASE, database_option, json_option, machine_options, print_json

if TYPE_CHECKING:
    from autotune.database import Run
    from autotune.tuning.api import Answer


@click.command(epilog=f"Example: autotune query zoo:squeezenet --db tuning.db. {EPILOG_DATABASE}")
@click.argument("what", metavar="MODEL|WORKLOAD")
@database_option
@machine_options
@click.option(
    "--top", type=click.IntRange(1), default=1, metavar="K", help="Show the K fastest runs of each."
)
@click.option("--explain", is_flag=True, help="Show the workload, its search space and the schedule.")
@json_option
def command(
    what: str,
    database: str | None,
    target: str,
    threads: int | None,
    top: int,
    explain: bool,
    as_json: bool,
) -> None:
    """The best schedule known for each workload of a MODEL, or for a WORKLOAD by its key.

    A key may be shortened to its first digits. Where nothing is known it says why, and what to run.
    """
    from autotune.tuning.api import query

    answers = query(what, database=database, target=target, threads=threads, top=top)
    if as_json:
        print_json([to_json(answer) for answer in answers])
        return
    for answer in answers:
        for line in lines_of(answer, top, explain):
            click.echo(line)


def lines_of(answer: Answer, top: int, explain: bool) -> list[str]:
    """What is known of one workload."""
    from autotune.database import Miss
    from autotune.tuning.report import nanoseconds, times

    workload, found = answer.workload, answer.answer
    count = f" ×{len(answer.names)}" if len(answer.names) > 1 else ""
    name = (answer.names[0] if answer.names else workload.kind) + count
    lines = [f"{workload.key[:12]}  {name}"]
    if isinstance(found, Miss):
        lines.append(f"  {found}")
    else:
        default, best = found.latencies
        lines.append(
            f"  {nanoseconds(best)} (default {nanoseconds(default)}, {times(found.speedup)}), "
            f"{found.ok} of {found.runs} runs worked, measured {_when(found.best)}"
        )
        lines.append(f"  {found.best.config_json}")
        for run in answer.top if top > 1 else ():
            lines.append(f"    {nanoseconds(run.latency_ns):>10}  {run.config_json}")
    return lines + (_explained(answer) if explain else [])


def _when(run: Run) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(run.created))


def _explained(answer: Answer) -> list[str]:
    from autotune.database import Miss
    from autotune.schedule.trace import Trace
    from autotune.target import Target
    from search_spaces.spaces import space_for

    lines = answer.workload.text.splitlines()
    lines += str(space_for(answer.workload, Target.detect()).explain()).splitlines()
    if not isinstance(answer.answer, Miss):
        lines += Trace.from_json(answer.answer.best.trace_json).to_python().splitlines()
    return ["    " + line for line in lines]


def to_json(answer: Answer) -> dict[str, Any]:
    """One answer as JSON values."""
    from autotune.database import Miss

    found = answer.answer
    base: dict[str, Any] = {
        "workload": answer.workload.key,
        "kind": answer.workload.kind,
        "dispatches": list(answer.names),
        "hit": not isinstance(found, Miss),
    }
    if isinstance(found, Miss):
        return base | {"reason": found.reason.value, "message": str(found)}
    default, best = found.latencies
    return base | {
        "latency_ns": best,
        "default_ns": default,
        "speedup": found.speedup,
        "runs": found.runs,
        "ok": found.ok,
        "best": asdict(found.best),
        "top": [asdict(run) for run in answer.top],
    }


__all__ = ["command", "lines_of", "to_json"]
