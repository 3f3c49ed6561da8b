"""Models that run on several devices: which devices there are, and compiling for those that are named."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from autotune.database.goal import MAX_SLOWDOWN
from autotune.errors import PlacementError, UsageError
from autotune.foreign import parse_json, printable
from autotune.garbage import collector_paused
from autotune.graph.devices import is_annotated
from autotune.graph.ir import Graph
from autotune.passes.placement.affinity import Affinities, affinities
from autotune.passes.placement.device_rules import DeviceRules
from autotune.runtime.hal.device import DeviceInfo

if TYPE_CHECKING:
    from autotune.compiler.dividing import Model, Shapes
    from autotune.compiler.driver import CompileOptions
    from autotune.compiler.explain import Compilation
    from autotune.compiler.placed import PlacedCompilation
    from autotune.database.opening import DatabaseLike
    from autotune.database.store import Database
    from autotune.passes.pipeline import Observer
    from autotune.target import Target
    from autotune.tuning.placement_answer import PlacementAnswer

_LOG = logging.getLogger("autotune.tuning")

PlacementMap = Mapping[str, str]
"""Patterns of values, nodes or operators, and names of devices."""


@collector_paused()
def compile_anywhere(
    model: Model,
    *,
    database: DatabaseLike | None,
    lock: str | Path | None = None,
    placement: PlacementMap | None = None,
    devices: Sequence[str] = (),
    require_hit: bool = False,
    observer: Observer | None = None,
    verify: bool = False,
    **options: Unpack[CompileOptions],
) -> tuple[Compilation | PlacedCompilation, str | None]:
    """Compile as :func:`autotune.tuning.api.compile_with_database` does, for several devices where any are named.

    ``devices`` are those that a placement was searched on: the database has it, else all of the model is on the first.
    Raises PlacementError for devices that contradict each other, are not there, or are named for nothing.
    """
    from autotune.compiler.dividing import imported
    from autotune.tuning.api import compile_with_database, with_database

    if lock is not None:
        if placement or devices:
            raise UsageError(f"the lock {lock} pins code for one device: leave out the placement")
        return compile_with_database(
            model,
            database=database,
            lock=lock,
            require_hit=require_hit,
            observer=observer,
            verify=verify,
            **options,
        )
    graph, shapes = imported(model, options["shapes"]), options["shapes"]
    if devices:
        graph, answer = by_database(graph, None, devices, database, placement, require_hit=require_hit)
        done, where = compile_anywhere(
            graph,
            database=database,
            placement=answer.placement,
            require_hit=require_hit,
            observer=observer,
            verify=verify,
            **(options | {"shapes": None}),
        )
        return _answered(done, answer), where
    if not placement and not is_annotated(graph):
        options["shapes"] = None
        done, where = compile_with_database(
            graph, database=database, require_hit=require_hit, observer=observer, verify=verify, **options
        )
        return replace(done, shapes=shapes), where
    if verify:
        raise UsageError("schedules of models on several devices cannot be proved yet: leave out verify")
    if options["target"] != "host" or options["threads"] is not None:
        raise UsageError(
            f"{graph.name!r} runs on the devices that are named for it: they say for what and for how many threads "
            "to compile\n  leave out target and threads"
        )
    from autotune.compiler.placed import compile_placed

    infos = known_devices()
    rules = DeviceRules(dict(placement or {}), tuple(infos))

    def compiled(store: Database | None) -> PlacedCompilation:
        return compile_placed(
            graph,
            rules,
            lambda name: target_of(infos[name]),
            database=store,
            tolerance=options["tolerance"],
            objective=options.get("objective", "latency"),
            max_slowdown=options.get("max_slowdown", MAX_SLOWDOWN),
            finite=options.get("finite", False),
            require_hit=require_hit,
            observer=observer,
        )

    return with_database(database, compiled)


def _answered(
    done: Compilation | PlacedCompilation, answer: PlacementAnswer
) -> Compilation | PlacedCompilation:
    """Return the same with the placement in its coverage."""
    from autotune.compiler.placed import PlacedCompilation
    from autotune.tuning.placement_answer import code_of, code_of_image

    if isinstance(done, PlacedCompilation):
        return replace(done, placement=str(replace(answer, code=code_of(done.program))))
    said = str(replace(answer, code=code_of_image(done.image)))
    return replace(done, coverage=replace(done.coverage, placement=said))


def by_database(
    model: Model,
    shapes: Shapes | None,
    devices: Sequence[str],
    database: DatabaseLike | None,
    placement: PlacementMap | None = None,
    *,
    require_hit: bool = False,
) -> tuple[Graph, PlacementAnswer]:
    """Return the graph of a model without the devices that it names, and its placement on ``devices`` by a database,
    the default one for None; a warning says that there is none.

    Raises UsageError for devices that are not there and for a ``placement`` beside them, MissError with
    ``require_hit``.
    """
    from autotune.compiler.dividing import imported, on_one_device
    from autotune.tuning.api import with_database
    from autotune.tuning.placement_answer import placement_for

    if placement:
        raise UsageError("a placement and devices to look one up for were given\n  leave out one of them")
    graph, infos = on_one_device(imported(model, shapes)), known_devices()
    answer, _ = with_database(
        database, lambda store: placement_for(graph, devices, infos, store, require_hit=require_hit)
    )
    if answer.found is None:
        _LOG.warning("%s: %s", printable(graph.name), answer)
    return graph, answer


def where_it_runs(model: Model, shapes: Shapes | None, placement: PlacementMap | None) -> Affinities | None:
    """Return the devices of the parts of a model with reasons; None where no device is named. Raises PlacementError."""
    from autotune.compiler.dividing import imported

    graph: Graph = imported(model, shapes)
    if not placement and not is_annotated(graph):
        return None
    return affinities(graph, DeviceRules(dict(placement or {}), tuple(known_devices())))


def known_devices() -> dict[str, DeviceInfo]:
    """Return the devices that there are, by name."""
    from autotune.runtime.hal.driver import devices

    return {info.name: info for info in devices()}


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


def target_of(info: DeviceInfo) -> Target:
    """Return the target to compile for on a device; raises PlacementError where there is no compiler for it."""
    if info.target is None:
        raise PlacementError(f"there is no compiler for device {info.name} ({info.description}) yet")
    return info.target


__all__ = [
    "PlacementMap",
    "by_database",
    "compile_anywhere",
    "known_devices",
    "parse_placement",
    "target_of",
    "where_it_runs",
]
