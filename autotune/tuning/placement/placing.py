"""Models that run on several devices: which devices there are, and compiling for those that are named."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.compiler.devices.known import known_devices, target_of
from autotune.errors import UsageError
from autotune.foreign import parse_json, printable
from autotune.graph.devices import is_annotated
from autotune.graph.ir import Graph
from autotune.passes.placement.affinity import Affinities, affinities
from autotune.passes.placement.both_branches import without_choices
from autotune.passes.placement.device_rules import DeviceRules
from autotune.tuning.requested import open_database, with_database

if TYPE_CHECKING:
    from autotune.compiler.request import CompileRequest
    from autotune.tuning.placement.answer import PlacementAnswer

_LOG = logging.getLogger("autotune.tuning")


def placed_by(request: CompileRequest, answer: PlacementAnswer) -> CompileRequest:
    """Return the request with the placement that was looked up for its devices, measured with nothing else decided."""
    return replace(request, devices=(), placement=answer.placement, decisions={})


def by_database(request: CompileRequest, graph: Graph | None = None) -> tuple[Graph, PlacementAnswer]:
    """Return the graph of a model without the devices that it names, and its placement on the requested devices.

    The placement is a database's; a warning says that there is none. ``graph`` is the model where it was imported
    already.

    Raises UsageError for devices that are not there, MissError with ``require_hit``.
    """
    from autotune.compiler.dividing import imported, on_one_device
    from autotune.tuning.placement.answer import placement_for

    request = request.checked()
    graph = imported(request.model, request.shapes) if graph is None else graph
    graph, infos = without_choices(on_one_device(graph)), known_devices()
    answer, _ = with_database(
        request,
        lambda own: placement_for(graph, own.devices, infos, open_database(own), require_hit=own.require_hit),
    )
    if answer.found is None:
        _LOG.warning("%s: %s", printable(graph.name), answer)
    return graph, answer


def where_it_runs(graph: Graph, placement: Mapping[str, str] | None) -> Affinities | None:
    """Return where the parts of a model run and why; None where no device is named. Raises PlacementError."""
    if not placement and not is_annotated(graph):
        return None
    return affinities(without_choices(graph), DeviceRules(dict(placement or {}), tuple(known_devices())))


def parse_placement(texts: tuple[str, ...]) -> dict[str, str] | None:
    """Return devices by pattern, from ``PATTERN=DEVICE`` or a file ``@FILE`` with a JSON object of them;
    None without any.

    Raises UsageError.
    """
    found: dict[str, str] = {}
    given = [
        entry for text in texts for entry in (_read(text[1:]) if text.startswith("@") else [_entry(text)])
    ]
    for pattern, device in given:
        if found.setdefault(pattern, device) != device:
            raise UsageError(f"--place {pattern} is given twice, with {found[pattern]} and {device}")
    return found or None


def _entry(text: str) -> tuple[str, str]:
    pattern, _, device = text.rpartition("=")
    if not pattern or not device:
        raise UsageError(f"--place {text!r} is not PATTERN=DEVICE, such as Conv=cpu:1")
    return pattern, device


def _read(path: str) -> list[tuple[str, str]]:
    try:
        found = parse_json(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--place @{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UsageError(f"--place @{path} is no JSON: {error}") from error
    if not isinstance(found, dict) or not all(d and isinstance(d, str) for d in found.values()):
        raise UsageError(
            f"--place @{path} is no JSON object of patterns and devices, such as "
            '{"Conv": "cpu:1"}\n  `autotune place -o` writes one'
        )
    return list(found.items())


__all__ = [
    "by_database",
    "known_devices",
    "parse_placement",
    "placed_by",
    "target_of",
    "where_it_runs",
]
