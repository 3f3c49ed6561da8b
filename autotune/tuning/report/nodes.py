"""The nodes of a fleet, as a job says of them: what each does, and what it has measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from autotune.tuning.report.units import listed

if TYPE_CHECKING:
    from autotune.tuning.report.result import Report


def node_lines(said: Mapping[str, Any], report: Report | None = None) -> Iterator[str]:
    """Yield a line for each node of what a job has said; with a report it names the dispatches whose schedules in use
    the node has timed."""
    rows = [] if report is None else report.dispatches
    for node in said.get("nodes") or ():
        used = [row.name for row in rows if row.host == node["name"]]
        yield _line(node) + (f"; of what is used it has timed {listed(used)}" if used else "")


def _line(node: Mapping[str, Any]) -> str:
    """Return what is known of a node that measures."""
    why = f" ({node['reason']})" if node["reason"] else ""
    noise = "" if node["noise"] is None else f", noise {node['noise']:.1%}"
    aside = f", {node['set_aside']} set aside" if node["set_aside"] else ""
    return (
        f"{node['name']}: {node['state']}{why}, {node['measurements']} measured{_pace(node)}{aside}{noise}, "
        f"stolen {node['stolen_s']:.0f} s"
    )


def _pace(node: Mapping[str, Any]) -> str:
    """Return how many measurements a second a node makes, and how busy it is; empty where it was never there."""
    there = node.get("served_s")  # jobs of earlier versions did not say
    if not there:
        return ""
    return f" ({node['measurements'] / there:.2g} a second, busy for {node['busy_s'] / there:.0%})"


__all__ = ["node_lines"]
