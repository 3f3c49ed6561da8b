"""The decisions at the sites of a whole model: the options that a compilation uses, and why."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from autotune.compiler.dividing import imported
from autotune.compiler.lock import AGAIN
from autotune.compiler.sites import KINDS, SiteKind
from autotune.database.posterior import standings
from autotune.database.records import DEVICES, MODEL, Comparison, WorkloadRow
from autotune.errors import LockError, UsageError
from autotune.graph.devices import is_annotated, without_devices
from autotune.graph.text import print_graph
from autotune.suggest import listing

if TYPE_CHECKING:
    from autotune.compiler.request import CompileRequest
    from autotune.database.store import Database
    from autotune.graph.ir import Graph

DECIDED = "decisions"
"""The name of the decisions in the metadata of an image: a JSON object of options by kinds of sites."""
PLACED = "placement"
"""The same of the devices of its parts: by patterns, empty where none is named."""


class ShownDecision(Protocol):
    """A decision of the whole model as it is shown: a line, and plain values."""

    def to_json(self) -> dict[str, Any]:
        """Return all of it, as plain values."""


@dataclass(frozen=True)
class Decision:
    """The option that is used at a site of a whole model: by all comparisons, of which ``rows`` has the newest of each
    option with the pooled ratio, or without any that of the request."""

    kind: str
    chosen: str
    rows: tuple[Comparison, ...] = ()

    def __str__(self) -> str:
        if not self.rows:
            return f"{self.kind}: {self.chosen}, as requested"
        return f"{self.kind}: {self.chosen} ({'; '.join(map(_measured, self.rows))})"

    def to_json(self) -> dict[str, Any]:
        """Return all of it, as plain values."""
        return {
            "kind": self.kind,
            "chosen": self.chosen,
            "options": [
                {
                    "name": row.name,
                    "latency_ns": None if row.latency is None else row.latency.median_ns,
                    "gain": None if row.ratio is None else row.ratio.to_json(),
                    "message": row.message,
                }
                for row in self.rows
            ],
        }


def _measured(row: Comparison) -> str:
    if row.latency is None:
        return f"{row.name}: {row.message}"
    gain = "" if row.ratio is None else f", {row.ratio}"
    return f"{row.name}: {row.latency.median_ns / 1e3:.1f} µs{gain}"


def model_row(graph: Graph) -> WorkloadRow:
    """Return a whole model as a database has it: without its name, its devices and the values of its constants."""
    text = print_graph(without_devices(graph).replace(name="model"))
    return WorkloadRow(hashlib.sha256(text.encode()).hexdigest(), text, MODEL, 0, 0)


def option_key(kind: SiteKind, option: str) -> str:
    """Return SHA-256 (hex) of what gives a measured option its meaning."""
    return hashlib.sha256(json.dumps([kind.name, option]).encode()).hexdigest()


def is_open(kind: SiteKind, request: CompileRequest, graph: Graph) -> bool:
    """Return whether there is something to decide that the request has not decided."""
    given = kind.name in (request.decisions or {}) or kind.is_given(request)
    return not given and len(kind.options(request, graph)) > 1


def decided(
    request: CompileRequest,
    graph: Graph,
    database: Database | None,
    before: Callable[[SiteKind, CompileRequest], None] = lambda kind, request: None,
) -> tuple[CompileRequest, tuple[Decision, ...]]:
    """Return the request with a decision for each site of the whole model: its own, else the database's.

    A site that was never compared is as in an untuned model, and no decision is made of it. Comparisons are of
    latencies: for memory and size nothing but the request decides. ``before`` is called with each kind of site that
    is looked up, and the request as decided so far. Raises UsageError for decisions that there are not.
    """
    given = _checked(request.decisions or {})
    if not request.preference.goal.is_latency or request.decisions == {}:
        database = None
    model = "" if database is None else model_row(graph).key
    decisions = list[Decision]()
    for kind in KINDS:
        if kind.name in given:
            found: Decision | None = Decision(kind.name, _option(kind, given[kind.name], request, graph))
        elif database is None or not is_open(kind, request, graph):
            continue
        else:
            before(kind, request)
            found = compared(kind, model, request, graph, database)
        if found is not None:
            decisions.append(found)
            named = {each.kind: each.chosen for each in decisions}
            request = replace(kind.applied(request, found.chosen), decisions={**given, **named})
    return request, tuple(decisions)


def decided_of_model(
    request: CompileRequest, graph: Graph | None, database: Database | None
) -> tuple[CompileRequest, Graph | None, tuple[Decision, ...]]:
    """Return :func:`decided`, and the model if that took importing it; nothing is decided of one on several devices.

    Raises LockError where a lock does not fit.
    """
    if request.lock is not None and request.placement:
        placed = ", ".join(f"{pattern}={device}" for pattern, device in request.placement.items())
        return request, graph, (Decision(DEVICES, placed),)
    if database is None and not request.decisions:
        return request, graph, ()
    graph = imported(request.model, request.shapes) if graph is None else graph
    if request.lock is None and (request.placement or is_annotated(graph)):
        return request, graph, ()
    try:
        request, decisions = decided(request, graph, database)
    except UsageError as error:
        if request.lock is None:
            raise
        raise LockError(f"the lock does not fit: {error}; {AGAIN}") from error
    return request, graph, decisions


def compared(
    kind: SiteKind, model: str, request: CompileRequest, graph: Graph, database: Database
) -> Decision | None:
    """Return what is used at a site of a model by all of its comparisons; None without any of today's options."""
    rows = database.comparison_history(model, request.one_target().key, kind.name)
    options = kind.options(request, graph)
    known = [row for row in rows if row.name in options and row.key == option_key(kind, row.name)]
    found = standings({kind.name: known})[kind.name]
    if not found.order:
        return None
    newest = {row.name: row for row in known}
    pooled = {one.name: one.claim for one in found.order}
    shown = (replace(newest[name], ratio=pooled.get(name)) for name in options if name in newest)
    return Decision(kind.name, found.order[0].name, tuple(shown))


def _checked(given: Mapping[str, str]) -> Mapping[str, str]:
    names = [kind.name for kind in KINDS]
    for name in given:
        if name not in names:
            raise UsageError(f"there is no site {name!r} of a model; sites: {listing(name, names)}")
    return given


def _option(kind: SiteKind, option: str, request: CompileRequest, graph: Graph) -> str:
    options = kind.options(request, graph)
    if option not in options:
        among = ", ".join(options) or "none, there is nothing to decide"
        raise UsageError(f"{kind.name} {option!r} was decided for {graph.name!r}; its options: {among}")
    return option


__all__ = [
    "DECIDED",
    "PLACED",
    "Decision",
    "ShownDecision",
    "compared",
    "decided",
    "decided_of_model",
    "is_open",
    "model_row",
    "option_key",
]
