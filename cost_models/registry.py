"""Versioned cost models in a folder, with a pointer to the one in use.

::

    <folder>/v0001/{manifest.json, member0.ubj, member1.ubj, ...}
    <folder>/v0002/...
    <folder>/CURRENT          the name of one version; without it the analytic model is used alone

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
from cost_models import booster as boosters
from cost_models import features
from cost_models.manifest import ModelManifest
from cost_models.ranker import Ranker

_CURRENT = "CURRENT"
_MEMBER = "member{}.ubj"
KIND = "cost-model"


@dataclass(frozen=True)
class CostModel:
    """A version of the ranker, and what it was trained on."""

    ranker: Ranker
    manifest: ModelManifest
    version: str = ""


@dataclass(frozen=True)
class Registry:
    """The models in ``folder`` (made when the first one is added)."""

    folder: Path

    def versions(self) -> list[str]:
        """Names of the versions, oldest first."""
        if not self.folder.is_dir():
            return []
        return sorted(path.name for path in self.folder.glob("v[0-9]*") if path.is_dir())

    def current(self) -> str | None:
        """The version in use, or None; raises CostModelError for a pointer to nowhere."""
        try:
            name = (self.folder / _CURRENT).read_text(encoding="utf-8").strip()
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return None  # nothing that this user could have stored or can read
        if name not in self.versions():
            raise CostModelError(
                f"{self.folder / _CURRENT} names {name!r}, which is not there; "
                f"versions: {', '.join(self.versions()) or 'none'}"
            )
        return name

    def add(self, ranker: Ranker, manifest: ModelManifest) -> str:
        """Store a model as the next version, not yet in use; returns its name."""
        with self._staged() as staging:
            names = [_MEMBER.format(number) for number in range(len(ranker.members))]
            files = {
                name: boosters.save(member, staging / name)
                for name, member in zip(names, ranker.members, strict=True)
            }
            parent = self.current() or ""
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
        handle, name = tempfile.mkstemp(prefix=".current-", dir=self.folder)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(version + "\n")
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(self.folder / _CURRENT)
        _flush(self.folder)

    def _unknown(self, version: str) -> str:
        known = ", ".join(self.versions()) or "none"
        return f"no cost model {version!r} in {self.folder}; versions: {known}"

    def rollback(self) -> str | None:
        """Go back to what the version in use replaced; None where that was the analytic model alone.

        Raises CostModelError where no version is in use.
        """
        current = self.current()
        if current is None:
            raise CostModelError(f"nothing to roll back to in {self.folder}: no version is in use")
        parent = self.manifest(current).parent
        if parent:
            self.promote(parent)
            return parent
        (self.folder / _CURRENT).unlink()
        _flush(self.folder)
        return None

    def manifest(self, version: str) -> ModelManifest:
        """The manifest of a version; raises CostModelError for an unknown one."""
        if version not in self.versions():
            raise CostModelError(self._unknown(version))
        return ModelManifest.read(self.folder / version)

    def readable(self, version: str) -> bool:
        """Whether this version of autotune can use a model: one that reads other features has to be trained anew."""
        folder = self.folder / version
        return ModelManifest.is_current(folder) and self.manifest(version).schema == features.schema()

    def load(self, version: str | None = None, threads: int = 1) -> CostModel | None:
        """The model in use (or ``version``), checked; None where no model is in use."""
        name = version or self.current()
        if name is None:
            return None
        folder = self.folder / name
        manifest = self.manifest(name)
        manifest.require(KIND, features.schema(), folder)
        names = [_MEMBER.format(number) for number in range(len(manifest.files))]
        if not names or {*names} != {*manifest.files}:
            raise CostModelError(f"{folder} has the members {sorted(manifest.files)}, expected {names}")
        members = tuple(boosters.load(folder / name, manifest.files[name]) for name in names)
        if not all(fold in range(len(members)) for fold in manifest.folds.values()):
            raise CostModelError(f"{folder} names folds that have no member")
        return CostModel(Ranker(members, manifest.folds, threads), manifest, name)


def _flush(path: Path) -> None:
    """Force a file or a folder's entries to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


__all__ = ["KIND", "CostModel", "Registry"]
