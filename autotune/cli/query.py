"""``autotune query``."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Unpack

import click

from autotune.cli.options import (
    EPILOG_DATABASE,
    announce,
    compile_options,
    database_option,
    json_option,
    objective_options,
    print_json,
)

if TYPE_CHECKING:
    from autotune.compiler.driver import CompileOptions
    from autotune.database import Run
    from autotune.database.front import Point
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
@click.option("--explain", is_flag=True, help="Show the workload, its search space and the schedule.")
@json_option
def command(
    what: str,
    database: str | None,
    top: int,
    with_front: bool,
    explain: bool,
    as_json: bool,
    **options: Unpack[CompileOptions],
) -> None:
    """The best schedule known for each workload of a MODEL, or for a WORKLOAD by its key.

    A key may be shortened to its first digits. Where nothing is known it says why, and what to run.
    """
    announce(f"looking up {what}")
    from autotune.target import Target
    from autotune.tuning.api import query

    found = query(what, database=database, top=top, with_front=with_front, **options)
    target, threads = options["target"], options["threads"]
    chosen = Target.parse(target, threads)
    answers = [_advised(answer, chosen, target, threads) for answer in found]
    if as_json:
        print_json([to_json(answer) for answer in answers])
        return
    for answer in answers:
        for line in lines_of(answer, top):
            click.echo(line)
        for line in front_lines(answer) if with_front else ():
            click.echo(f"  {line}")
        for line in _explained(answer, chosen) if explain else ():
            click.echo(f"    {line}")


def _advised(answer: Answer, chosen: Target, target: Target | str, threads: int | None) -> Answer:
    """A miss advises to tune for the target that was asked for, not for the default one."""
    from autotune.database import Miss
    from autotune.errors import UsageError
    from autotune.tuning.api import runnable

    miss = answer.answer
    if not isinstance(miss, Miss):
        return answer
    options = "" if target == "host" else f" --target {target}"
    options += "" if threads is None else f" --threads {threads}"
    advice = miss.advice.replace("`autotune tune`", f"`autotune tune{options}`")
    try:
        runnable(chosen)
    except UsageError:
        advice = advice.removesuffix(" on this machine") + f", on a machine that runs code for {chosen.cpu}"
    return replace(answer, answer=replace(miss, advice=advice))


def lines_of(answer: Answer, top: int) -> list[str]:
    """What is known of one workload."""
    from autotune.database import Miss
    from autotune.tuning.report import listed

    found = answer.answer
    lines = [f"{answer.workload.key[:12]}  {answer.title}"]
    if answer.nodes:
        lines.append(f"  from {listed(answer.nodes)}")
    if answer.ranking is not None:
        lines.append(f"  {answer.ranking}")
    if isinstance(found, Miss):
        lines += [] if answer.divided else [f"  {answer.summary}"]
    else:
        lines.append(f"  {answer.summary}, measured {_when(found.best)}")
        lines.append(f"  {found.best.config_json}")
        lines += [_line(run) for run in _fastest(answer)] if top > 1 else []
    return lines


def _fastest(answer: Answer) -> list[Run]:
    """The best run, then those that were read inside a model, then those that were read alone only.

    Readings alone are optimistic, as each is the smallest of many: they do not compare with the others. What crashed
    inside a model is the last.
    """
    from autotune.database import Hit

    if not isinstance(answer.answer, Hit):
        return list(answer.top)
    best = answer.answer.best
    others = [run for run in answer.top if run.trace_key != best.trace_key]
    others.sort(
        key=lambda run: (bool(run.crashed), run.confirmed_ns is None, run.confirmed_ns or run.latency_ns)
    )
    return [best, *others][: max(1, len(answer.top))]


def _line(run: Run) -> str:
    from autotune.tuning.units import nanoseconds

    known = run.confirmed_ns is not None
    latency = nanoseconds(run.confirmed_ns if known else run.latency_ns)
    where = "inside a model" if known else f"alone, {run.crashed}" if run.crashed else "alone"
    return f"    {latency:>10} {where:<14}  {run.config_json}"


def front_lines(answer: Answer) -> list[str]:
    """The Pareto front of one workload, a line a run, that in use marked."""
    from autotune.database import Miss
    from autotune.tuning.units import size

    if not answer.front:
        return [] if isinstance(answer.answer, Miss) else ["no run has a known footprint: tune it again"]
    lines = [f"  {'latency ÷ default':<20} {'memory':>9} {'artifact':>9}  (* in use)"]
    for point in answer.front:
        sizes = (size(nbytes) for nbytes in (point.footprint.memory_bytes, point.footprint.artifact_bytes))
        mark = "*" if _in_use(answer, point) else " "
        where = f"{point.ratio.median:.3f} {point.read}"
        lines.append(
            f"{mark} {where:<20} {' '.join(f'{text:>9}' for text in sizes)}  {point.run.config_json}"
        )
    return lines


def _in_use(answer: Answer, point: Point) -> bool:
    from autotune.database import Miss

    return not isinstance(answer.answer, Miss) and answer.answer.best.trace_key == point.run.trace_key


def _when(run: Run) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(run.created))


def _explained(answer: Answer, target: Target) -> list[str]:
    from autotune.database import Miss
    from autotune.graph.region import Workload
    from autotune.schedule.trace import Trace
    from autotune.suggest import counted
    from search_spaces.spaces import space_for

    lines = answer.workload.text.splitlines()
    if isinstance(answer.workload, Workload):  # the space of a user's program is known to its function only
        lines += str(space_for(answer.workload, target).explain()).splitlines()
    if not isinstance(answer.answer, Miss):
        lines += [f"{counted(n, 'candidate')} {how}" for how, n in Counter(answer.answer.crashes).items()]
        lines += Trace.from_json(answer.answer.best.trace_json).to_python().splitlines()
    return lines


def to_json(answer: Answer) -> dict[str, Any]:
    """One answer as JSON values."""
    from autotune.database import Miss

    found = answer.answer
    base: dict[str, Any] = {
        "workload": answer.workload.key,
        "kind": answer.workload.kind,
        "dispatches": list(answer.names),
        "nodes": list(answer.nodes),
        "ranking": None if answer.ranking is None else answer.ranking.to_json(),
        "used": not answer.divided,
        "hit": not isinstance(found, Miss),
    }
    if isinstance(found, Miss):
        return base | {"reason": found.reason.value, "message": str(found)}
    default, best = found.latencies
    return base | {
        "latency_ns": best,
        "default_ns": default,
        **answer.evidence.to_json(),
        "runs": found.runs,
        "ok": found.ok,
        "best": asdict(found.best),
        "top": [asdict(run) for run in _fastest(answer)],
        "front": [point.to_json() | {"used": _in_use(answer, point)} for point in answer.front],
    }


__all__ = ["command", "front_lines", "lines_of", "to_json"]
