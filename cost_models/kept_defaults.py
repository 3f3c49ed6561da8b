"""Default schedules that were chosen before, kept in files: a process that needs one again does not search for it.

A file holds those of one target, a line each. Its name covers all else that they follow from: what is known of the
machine, and the code. Processes append to it at once; a line that was not written whole, or says what is not legal, is
as none.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from autotune import settings
from autotune.errors import KnobError, UsageError
from autotune.schedule.knob import Value
from cost_models.machine import Machine

if TYPE_CHECKING:
    from autotune.target import Target
    from search_spaces.space import Space

Chosen = tuple[dict[str, Value], float]
"""A configuration, and its predicted seconds."""

ANEW = "anew"
"""The setting ``defaults`` that neither reads nor keeps any."""
MOST_BYTES = 1 << 24
"""A file that is larger begins anew; a default takes about half a KiB."""
MOST_FILES = 32
"""Of other targets, machines and versions the oldest go."""
_PACKAGES = (
    *("autotune.graph", "autotune.lower", "autotune.schedule", "autotune.te"),
    *("search_spaces", "cost_models"),
)
"""From the text of a workload to what the model predicts."""
_LOG = logging.getLogger("autotune.cost_models")


def find(space: Space) -> Chosen | None:
    """Return the default of a space, if it was kept and is legal; of a user's own function nothing is."""
    path = _path(space)
    line = None if path is None else _lines(path).get(_identity(space))
    if line is None:
        return None
    try:
        seconds, config = json.loads(line)
        return (space.check(config), float(seconds)) if 0 <= seconds < math.inf else None
    except (ValueError, TypeError, AttributeError, KnobError):
        return None


def keep(space: Space, chosen: Chosen) -> None:
    """Keep the default of a space for this process and others; where no file can be written, for this one."""
    path = _path(space)
    if path is None:
        return
    config, seconds = chosen
    identity, line = _identity(space), json.dumps([seconds, config], separators=(",", ":"))
    _lines(path)[identity] = line
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _make_room(path.parent)
        elif path.stat().st_size > MOST_BYTES:
            path.unlink()
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            # The line before may have been cut off: it must not take this one with it. Written at once, so that no
            # other process writes in between.
            os.write(descriptor, f"\n{identity} {line}".encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        _LOG.info("a default schedule is not kept, as %s cannot be written: %s", path, error.strerror)


def forget() -> None:
    """Read all files again that are asked for."""
    _lines.cache_clear()


def _path(space: Space) -> Path | None:
    """Return the file of a space's target; None where nothing is kept."""
    chosen = settings.current().defaults
    if chosen not in ("", ANEW) and not os.path.isabs(chosen):
        variable = settings.environment_name("defaults")
        raise UsageError(
            f"{variable}={chosen}: allowed are {ANEW!r}, a folder's absolute path, and nothing for the cache's folder"
        )
    if chosen == ANEW or space.sketch is not None:
        return None
    folder = Path(chosen) if chosen else settings.current().cache_path() / "defaults"
    return folder / _name(space.target, Machine.of(space.target))


@lru_cache(maxsize=64)
def _name(target: Target, machine: Machine) -> str:
    parts = (_code(), target.key, repr(machine))
    return f"{hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}.jsonl"


def _identity(space: Space) -> str:
    return f"{space.workload.key} {space.key}"


@lru_cache(maxsize=8)
def _lines(path: Path) -> dict[str, str]:
    """Return a file's lines, by the keys of workload and space; a process reads it once, and looks into
    few of its lines."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    split = (line.split(" ", 2) for line in text.splitlines())
    return {f"{parts[0]} {parts[1]}": parts[2] for parts in split if len(parts) == 3}


def _make_room(folder: Path) -> None:
    """Remove the oldest files where there are many."""
    files = []
    for path in folder.glob("*.jsonl"):
        with suppress(OSError):  # another process removed it
            files.append((path.stat().st_mtime, path))
    for _, path in sorted(files)[: -MOST_FILES + 1]:
        with suppress(OSError):
            path.unlink()


@lru_cache(maxsize=1)
def _code() -> str:
    """Return SHA-256 (hex) of sizes and times of the source files that may change what is chosen.

    They are not read, as that takes longer than most choices.
    """
    found = hashlib.sha256()
    for package in _PACKAGES:
        spec = find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            for name, facts in sorted(_sources(folder)):
                found.update(f"{name} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return found.hexdigest()


def _sources(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    yield from _sources(entry.path)
            elif entry.name.endswith(".py"):
                yield entry.path, entry.stat()


__all__ = ["ANEW", "MOST_BYTES", "MOST_FILES", "Chosen", "find", "forget", "keep"]
