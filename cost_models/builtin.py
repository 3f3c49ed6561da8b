"""The cost models that come with the package, for those who have trained none: one for each vector width of x86.

``autotune retrain --recordings ... --export`` makes them from the recordings in ``results/runs``, if they are better
than the analytic model by a significant margin: that of x86-64-v4 is (docs/retraining.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autotune.errors import CostModelError
from autotune.target import Target
from cost_models import stored
from cost_models.manifest import RankerManifest
from cost_models.stored import CostModel

_LEVELS = {("x86_64", 256): "x86-64-v3", ("x86_64", 512): "x86-64-v4"}


@dataclass(frozen=True)
class Defaults:
    """Models in ``folder``, each in one of its own that is called after the level of instructions it is for."""

    folder: Path | None = None

    def levels(self) -> list[str]:
        """Return the levels that have a model."""
        if self.folder is None or not self.folder.is_dir():
            return []
        return sorted(path.name for path in self.folder.iterdir())

    def level(self, target: Target) -> str | None:
        """Return the level whose model is for this target: that of its vectors. None where there is none, or one
        that this version of autotune cannot use."""
        name = _LEVELS.get((target.arch, target.vector_bits), "")
        return name if name in self.levels() and stored.readable(self._of(name)) else None

    def manifest(self, level: str) -> RankerManifest:
        """Return the manifest of a model; raises CostModelError for an unknown level."""
        return RankerManifest.read(self._of(level))

    def load(self, level: str, threads: int = 1) -> CostModel:
        """Return a model, checked."""
        return stored.read(self._of(level), title(level), threads)

    def _of(self, level: str) -> Path:
        if self.folder is None or level not in self.levels():
            raise CostModelError(
                f"no cost model is built in for {level!r}; for: {', '.join(self.levels()) or 'nothing'}"
            )
        return self.folder / level


NONE = Defaults()
SHIPPED = Defaults(Path(__file__).with_name("builtin_models"))


def title(level: str) -> str:
    """Return the name of a model that people know."""
    return f"built in ({level})"


__all__ = ["NONE", "SHIPPED", "Defaults", "title"]
