"""Derived features kept in files, so that a retraining works out those of new runs only.

A file holds the configurations of one space. Its name covers all that features follow from: workload, target, space,
what is known of the machine, and the code. Whatever a process killed while it wrote, a file is whole or not there.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from autotune import settings
from autotune.errors import AutotuneError
from autotune.files import replacing
from autotune.schedule.knob import Config
from autotune.target import Target
from cost_models.derived import FACTS, ROWS, Derived, derive, digest
from cost_models.machine import Machine

MOST_BYTES = 1 << 29
"""A million runs take about a third of it."""
_SUM = 32
"""A file begins with the SHA-256 of the rest."""
_PACKAGES = ("autotune", "search_spaces", "cost_models")
_LOG = logging.getLogger("autotune.cost_models")


@dataclass(frozen=True)
class FeatureCache:
    """Files in ``folder``, made when the first is written; the least recently used go where all are larger than
    ``most_bytes``.

    A file that cannot be read or written costs time and a warning, nothing else.
    """

    folder: Path
    most_bytes: int = MOST_BYTES

    @staticmethod
    def of_user() -> FeatureCache:
        """Return the cache in the settings' cache folder."""
        return FeatureCache(settings.current().cache_path() / "features")

    def derived(self, workload: str, target: str, space_key: str, configs: Sequence[Config]) -> Derived:
        """Return the result of :func:`cost_models.derived.derive`: read back, or worked out and stored."""
        path = self._path(workload, target, space_key)
        if path is None:
            return derive(workload, target, space_key, configs)
        wanted = [digest(config) for config in configs]
        found = _read(path)
        known = {} if found is None else {name: row for row, name in enumerate(found.configs.tolist())}
        new = {name: config for name, config in zip(wanted, configs, strict=True) if name not in known}
        if new or found is None:
            more = derive(workload, target, space_key, list(new.values()))
            found = more if found is None else found.joined(more)
            known |= {name: len(known) + row for row, name in enumerate(new)}
            _write(path, found)
        return found.take([known[name] for name in wanted])

    def _path(self, workload: str, target: str, space_key: str) -> Path | None:
        """Return the file of a space; None for a target that cannot be read."""
        try:
            machine = Machine.of(Target.from_json(target))
        except AutotuneError:
            return None
        parts = (_code(), workload, target, space_key, repr(machine))
        return self.folder / f"{hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}.npz"

    def trim(self) -> None:
        """Remove the least recently used files beyond :attr:`most_bytes`."""
        files = []
        for path in self.folder.glob("*.npz"):
            with suppress(OSError):  # another process removed it
                facts = path.stat()
                files.append((facts.st_mtime, facts.st_size, path))
        total = 0
        for _, size, path in sorted(files, reverse=True):
            total += size
            if total > self.most_bytes:
                with suppress(OSError):
                    path.unlink()


def _read(path: Path) -> Derived | None:
    try:
        raw = path.read_bytes()
        os.utime(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        _LOG.warning("features are worked out again, as %s cannot be read: %s", path, error.strerror)
        return None
    if hashlib.sha256(raw[_SUM:]).digest() != raw[:_SUM]:
        _LOG.warning("features are worked out again, as %s is damaged", path)
        return None
    with np.load(io.BytesIO(raw[_SUM:]), allow_pickle=False) as file:
        stored: dict[str, Any] = {name: file[name] for name in (*ROWS, *FACTS)}
    knobs = tuple(stored.pop("knobs").tolist())
    stored |= {name: str(stored[name]) for name in FACTS if name != "knobs"}
    return Derived(**stored, knobs=knobs)


def _write(path: Path, found: Derived) -> None:
    content = io.BytesIO()
    stored: dict[str, Any] = {name: np.asarray(getattr(found, name)) for name in (*ROWS, *FACTS)}
    np.savez_compressed(content, **stored)
    raw = content.getvalue()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_bytes(hashlib.sha256(raw).digest() + raw)
    except OSError as error:
        _LOG.warning("features are not kept, as %s cannot be written: %s", path, error.strerror)


@lru_cache(maxsize=1)
def _code() -> str:
    """Return SHA-256 (hex) of our source files: any of them may change what is derived."""
    found = hashlib.sha256()
    for package in _PACKAGES:
        spec = find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            for path in sorted(Path(folder).rglob("*.py")):
                found.update(path.read_bytes())
    return found.hexdigest()


__all__ = ["MOST_BYTES", "FeatureCache"]
