"""Versioned cost models in a folder, with a pointer to the one in use.

::

    <folder>/v0001/{manifest.json, member0.ubj, member1.ubj, ...}
    <folder>/v0002/...
    <folder>/CURRENT          the name of the version in use, or "analytic" for the analytic model alone

Without a version in use the model serves that comes with the package (:mod:`cost_models.builtin`) for the target's
vectors, if there is one, and the analytic model alone for other targets.

A version is written under a temporary name, flushed to disk and renamed, and so is the pointer: whatever is
killed, a reader sees the old model or the new one, never half of one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.errors import CostModelError
from autotune.target import Target
from cost_models import booster as boosters
from cost_models import stored
from cost_models.builtin import NONE, Defaults
from cost_models.manifest import RankerManifest
from cost_models.ranker import Ranker
from cost_models.stored import KIND, CostModel

_CURRENT = "CURRENT"
ANALYTIC, BUILT_IN = "analytic", "builtin"
"""The names that :meth:`Registry.use` takes beside the versions."""


@dataclass(frozen=True)
class Registry:
    """The models in ``folder`` (made when the first one is added); ``defaults`` serve where none of them is in use."""

    folder: Path
    defaults: Defaults = NONE

    def versions(self) -> list[str]:
        """Return names of the versions, oldest first."""
        if not self.folder.is_dir():
            return []
        return sorted(path.name for path in self.folder.glob("v[0-9]*") if path.is_dir())

    def current(self) -> str | None:
        """Return the version in use, or None; raises CostModelError for a pointer to nowhere."""
        name = self._pointer()
        if name in ("", ANALYTIC):
            return None
        if name not in self.versions():
            raise CostModelError(
                f"{self.folder / _CURRENT} names {name!r}, which is not there; "
                f"versions: {', '.join(self.versions()) or 'none'}"
            )
        return name

    def _pointer(self) -> str:
        try:
            return (self.folder / _CURRENT).read_text(encoding="utf-8").strip()
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return ""  # nothing that this user could have stored or can read

    def serving(self, target: Target, threads: int = 1) -> CostModel | None:
        """Return the model that jobs for ``target`` begin with: the version in use or, without one that can be read,
        the one that is built in; None for the analytic model alone."""
        name = self.current()
        if name is not None and self.readable(name):
            return self.load(name, threads)
        level = self.default(target)
        return self.defaults.load(level, threads) if level else None

    def default(self, target: Target) -> str | None:
        """Return the level of the built-in model that serves ``target`` without a version in use; None for none."""
        return None if self._pointer() == ANALYTIC else self.defaults.level(target)

    def add(self, ranker: Ranker, manifest: RankerManifest) -> str:
        """Store a model as the next version, not yet in use; returns its name."""
        with self._staged() as staging:
            names = [stored.MEMBER.format(number) for number in range(len(ranker.members))]
            files = {
                name: boosters.save(member, staging / name)
                for name, member in zip(names, ranker.members, strict=True)
            }
            parent = self._pointer()
            replace(manifest, kind=KIND, files=files, folds=ranker.folds, parent=parent).write(staging)
            for path in staging.iterdir():
                _flush(path)
            return self._publish(staging)

    @contextmanager
    def _staged(self) -> Iterator[Path]:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            staging = Path(tempfile.mkdtemp(prefix=".staging-", dir=self.folder))
        except OSError as error:
            raise CostModelError(f"cannot store a cost model in {self.folder}: {error.strerror}") from error
        try:
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)  # gone already where it was published

    def _publish(self, staging: Path) -> str:
        while True:
            versions = self.versions()
            name = f"v{int(versions[-1][1:]) + 1 if versions else 1:04d}"
            try:
                staging.rename(self.folder / name)
            except OSError:
                if (self.folder / name).exists():  # another process took the number
                    continue
                raise
            _flush(self.folder)
            return name

    def promote(self, version: str) -> None:
        """Put ``version`` in use; raises CostModelError for an unknown one."""
        if version not in self.versions():
            raise CostModelError(self._unknown(version))
        self._point(version)

    def _point(self, version: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".current-", dir=self.folder)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(version + "\n")
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(self.folder / _CURRENT)
        _flush(self.folder)

    def _point_nowhere(self) -> None:
        (self.folder / _CURRENT).unlink(missing_ok=True)
        if self.folder.is_dir():
            _flush(self.folder)

    def use(self, name: str) -> None:
        """Put a version in use, or what is built in (:data:`BUILT_IN`), or the analytic model alone
        (:data:`ANALYTIC`), whatever was in use before.

        Raises CostModelError for an unknown version, one that reads other features, and where nothing is built in.
        """
        if name == ANALYTIC:
            self._point(ANALYTIC)
        elif name == BUILT_IN:
            if not self.defaults.levels():
                raise CostModelError(
                    f"no cost model comes with this version of autotune; use {ANALYTIC!r} or a version: "
                    f"{', '.join(self.versions()) or 'none'}"
                )
            self._point_nowhere()
        elif name not in self.versions():
            raise CostModelError(f"{self._unknown(name)}; also {BUILT_IN!r} and {ANALYTIC!r}")
        elif not self.readable(name):
            raise CostModelError(f"{name} is of another version of autotune; run `autotune retrain`")
        else:
            self.promote(name)

    def _unknown(self, version: str) -> str:
        known = ", ".join(self.versions()) or "none"
        return f"no cost model {version!r} in {self.folder}; versions: {known}"

    def export(self, version: str, folder: Path) -> None:
        """Copy a version into a new folder; raises OSError."""
        if version not in self.versions():
            raise CostModelError(self._unknown(version))
        shutil.copytree(self.folder / version, folder)

    def rollback(self) -> str | None:
        """Go back to what is in use instead of: an earlier version, what is built in, then the analytic model alone.

        Returns the version in use then, None for none. Raises CostModelError where nothing was replaced.
        """
        now = self._pointer()
        if now == ANALYTIC or not (now or self.defaults.levels()):
            raise CostModelError(f"nothing to roll back to in {self.folder}: no version is in use")
        parent = self.manifest(now).parent if now else ANALYTIC
        if parent:
            self._point(parent)
        else:
            self._point_nowhere()
        return self.current()

    def manifest(self, version: str) -> RankerManifest:
        """Return the manifest of a version; raises CostModelError for an unknown one."""
        if version not in self.versions():
            raise CostModelError(self._unknown(version))
        return RankerManifest.read(self.folder / version)

    def readable(self, version: str) -> bool:
        """Return whether this version of autotune can use a model: one that reads other features has to
        be trained anew."""
        return stored.readable(self.folder / version)

    def load(self, version: str | None = None, threads: int = 1) -> CostModel | None:
        """Return the version in use (or ``version``), checked; None where none is in use."""
        name = version or self.current()
        if name is None:
            return None
        if name not in self.versions():
            raise CostModelError(self._unknown(name))
        return stored.read(self.folder / name, name, threads)


def _flush(path: Path) -> None:
    """Force a file or a folder's entries to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


__all__ = ["ANALYTIC", "BUILT_IN", "CostModel", "Registry"]
