"""Answers of a query as text: a line a dispatch, and all that is known of one."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from autotune.suggest import counted

if TYPE_CHECKING:
    from autotune.compiler.tiers import Transfer
    from autotune.database import Run
    from autotune.database.front import FrontPoint
    from autotune.database.near import Neighbour
    from autotune.target import Target
    from autotune.tuning.api import Answer


NAMES = 34
"""The column at which the names of dispatches begin."""
_MOST_NODES = (6, 3, 2, 1)


def table(answers: Sequence[Answer], target: Target, columns: int | None = None) -> list[str]:
    """Return a line for each workload that is dispatched: its latency, that of the default, the least that is
    possible, its dispatches and ONNX nodes, and how sure it is. What was not measured here has a ``~``. In ``columns``
    fewer nodes are named."""
    from autotune.compiler.tiers import listed_tiers
    from autotune.database.evidence import tally
    from autotune.tuning.report.units import listed

    used = [answer for answer in answers if not answer.divided]
    tiers = listed_tiers(answer.tier for answer in used for _ in answer.names)
    count = tally(answer.evidence.state for answer in used for _ in answer.names)
    lines = [f"{target.name}; {count}; schedules: {tiers}"]
    lines.append(f"{'latency':>10} {'default':>10} {'roofline':>10}  dispatch (nodes)  evidence")
    for answer in used:
        figures = " ".join(_figure(answer, ns) for ns in (answer.latency_ns, answer.default_ns))
        for most in _MOST_NODES:
            nodes = f" ({listed(answer.nodes, most)})" if answer.nodes else ""
            line = f"{figures} {_figure(None, answer.floor_ns)}  {answer.title}{nodes}  {answer.sure}"
            if columns is None or len(line) <= columns:
                break
        lines.append(line)
    return lines


def _figure(answer: Answer | None, value: float | None) -> str:
    from autotune.tuning.report.units import nanoseconds

    rough = answer is not None and answer.measured is None and value is not None
    return f"{('~' if rough else '') + nanoseconds(value):>10}"


def lines_of(answer: Answer, top: int) -> list[str]:
    """Return the lines about one workload."""
    from autotune.database import Miss
    from autotune.tuning.report.units import listed

    found = answer.answer
    lines = [f"{answer.workload.key[:12]}  {answer.title}"]
    if answer.nodes:
        lines.append(f"  from {listed(answer.nodes)}")
    if answer.ranking is not None:
        lines.append(f"  {answer.ranking}")
    if answer.divided:
        return lines
    if isinstance(found, Miss):
        lines.append(f"  {answer.summary}")
        lines += [] if answer.transfer is None else _transferred(answer.transfer)
        lines += [f"  near: {_near(neighbour)}" for neighbour in answer.near]
    else:
        lines.append(f"  {answer.summary}, {provenance(found.best)}")
        lines.append(f"  {found.best.config_json}")
        lines += [_line(run) for run in fastest(answer)] if top > 1 else []
    return lines


def _transferred(transfer: Transfer) -> list[str]:
    from autotune.schedule.knob import config_to_json
    from autotune.tuning.report.units import nanoseconds

    low, high = transfer.interval_ns
    latency = f"{nanoseconds(transfer.latency_ns)} ({nanoseconds(low)} to {nanoseconds(high)})"
    best, runs = transfer.hit.best, transfer.hit.runs
    return [
        f"  expected {latency}, from {nanoseconds(transfer.hit.latencies[1])} there, "
        f"the best of {counted(runs, 'run')}, {provenance(best)}",
        f"  {config_to_json(transfer.config)}",
    ]


def _near(neighbour: Neighbour) -> str:
    use = "" if neighbour.compatible else ", of no use here"
    return f"{counted(neighbour.runs, 'run')}{use}; {neighbour.what}"


def fastest(answer: Answer) -> list[Run]:
    """Return the best run, then those that were measured inside a model, then those measured in isolation only.

    Readings alone are optimistic, as each is the smallest of many: they do not compare with the others. What crashed
    inside a model is the last.
    """
    from autotune.database import Hit

    return fastest_of(answer.answer.best, answer.top) if isinstance(answer.answer, Hit) else list(answer.top)


def fastest_of(best: Run, top: Sequence[Run]) -> list[Run]:
    """Return the best run and the others of ``top`` in that order."""
    others = [run for run in top if run.trace_key != best.trace_key]
    others.sort(
        key=lambda run: (bool(run.crashed), run.confirmed_ns is None, run.confirmed_ns or run.latency_ns)
    )
    return [best, *others][: max(1, len(top))]


def timed(run: Run) -> tuple[str, str]:
    """Return the latency of a run, and where it was measured."""
    from autotune.tuning.report.units import nanoseconds

    known = run.confirmed_ns is not None
    latency = nanoseconds(run.confirmed_ns if known else run.latency_ns)
    return latency, "in a model" if known else f"isolated, {run.crashed}" if run.crashed else "isolated"


def _line(run: Run) -> str:
    latency, where = timed(run)
    return f"    {latency:>10} {where:<14}  {run.config_json}"


def front_lines(answer: Answer) -> list[str]:
    """Return the Pareto front of one workload, a line a run, that in use marked."""
    from autotune.database import Miss
    from autotune.tuning.report.units import size

    if not answer.front:
        return [] if isinstance(answer.answer, Miss) else ["no run has a known footprint: tune it again"]
    lines = [f"  {'latency ÷ default':<20} {'memory':>9} {'artifact':>9}  (* in use)"]
    for point in answer.front:
        sizes = (size(nbytes) for nbytes in (point.footprint.memory_bytes, point.footprint.artifact_bytes))
        mark = "*" if in_use(answer, point) else " "
        where = f"{point.ratio.median:.3f} {point.read}"
        lines.append(
            f"{mark} {where:<20} {' '.join(f'{text:>9}' for text in sizes)}  {point.run.config_json}"
        )
    return lines


def in_use(answer: Answer, point: FrontPoint) -> bool:
    """Return whether a point is the run that is used."""
    from autotune.database import Miss

    return not isinstance(answer.answer, Miss) and answer.answer.best.trace_key == point.run.trace_key


def provenance(run: Run) -> str:
    """Return the time and place of a run's measurement, and the version that made it."""
    from autotune.database import Origin

    try:
        version = json.loads(run.versions)["autotune"]
    except (ValueError, KeyError, TypeError):
        version = ""
    days = int((time.time() - run.created) / 86_400)
    age = "" if days < 1 else f" ({counted(days, 'day')} ago)"
    where = f" on {run.host}" if run.host else ""
    by = f" by version {version}" if version else ""
    first = ", found for a near workload first" if run.origin is Origin.NEAR else ""
    return f"measured {time.strftime('%Y-%m-%d %H:%M', time.localtime(run.created))}{age}{where}{by}{first}"


def explained(answer: Answer, target: Target) -> list[str]:
    """Return the workload, its search space, and the schedule as Python."""
    from autotune.database import Miss
    from autotune.graph.region import Workload
    from autotune.schedule.trace import Trace
    from search_spaces.spaces import space_for

    found = answer.answer
    lines = answer.workload.text.splitlines()
    if isinstance(answer.workload, Workload):  # the space of a user's program is known to its function only
        lines += str(space_for(answer.workload, target).explain()).splitlines()
    if not isinstance(found, Miss):
        lines += [f"{counted(n, 'candidate')} {how}" for how, n in Counter(found.crashes).items()]
    if answer.planned is not None:
        return lines + answer.planned.trace.to_python().splitlines()
    if not isinstance(found, Miss) and not answer.divided:
        lines += Trace.from_json(found.best.trace_json).to_python().splitlines()
    return lines


__all__ = [
    "explained",
    "fastest",
    "fastest_of",
    "front_lines",
    "in_use",
    "lines_of",
    "provenance",
    "table",
    "timed",
]
