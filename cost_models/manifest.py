"""The manifest beside every stored model: what it is, what it read, what it learned from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from autotune.errors import CostModelError

FORMAT = 2
FILE = "manifest.json"


@dataclass(frozen=True)
class TrainingSource:
    """A database that a model learnt from: its name, how many runs it gave, and the first and last time of these."""

    name: str
    runs: int
    first: str = ""
    last: str = ""


@dataclass(frozen=True)
class RankerManifest:
    """The description of a stored model.

    ``files`` maps file names to SHA-256, a file a member. ``folds`` maps the keys of all workloads that it has seen to
    the member that has not seen this one. ``metrics`` are means with their intervals, by the name of what was judged:
    the model on held-out workloads, what it replaced, the analytic model. ``parent`` was in use before it.
    """

    kind: str
    schema: str
    files: Mapping[str, str]
    rows: int = 0
    folds: Mapping[str, int] = field(default_factory=dict)
    targets: tuple[str, ...] = ()
    sources: tuple[TrainingSource, ...] = ()
    latency_range: tuple[float, float] = (0.0, 0.0)
    objective: str = ""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    parent: str = ""
    created: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    format: int = FORMAT

    def write(self, folder: Path) -> None:
        """Write ``manifest.json`` into ``folder``."""
        text = json.dumps(asdict(self), indent=1, sort_keys=True)
        (folder / FILE).write_text(text + "\n", encoding="utf-8")

    @staticmethod
    def is_current(folder: Path) -> bool:
        """Return whether the manifest, if it can be read at all, has today's format."""
        try:
            data = json.loads((folder / FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return True  # damaged: reading it says how
        return not isinstance(data, dict) or data.get("format") == FORMAT

    @staticmethod
    def read(folder: Path) -> RankerManifest:
        """Read it back; raises CostModelError where it is missing, damaged or of a newer format."""
        path = folder / FILE
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CostModelError(f"no readable cost model in {folder}: {error}") from error
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            found = data.get("format") if isinstance(data, dict) else None
            raise CostModelError(f"{path} has format {found!r}; this version reads {FORMAT}")
        try:
            for name in ("targets", "latency_range"):
                data[name] = tuple(data.get(name, ()))
            data["sources"] = tuple(TrainingSource(**source) for source in data.get("sources", ()))
            manifest = RankerManifest(**data)
        except TypeError as error:
            raise CostModelError(f"{path} is not a manifest: {error}") from error
        if any(Path(name).name != name for name in manifest.files):
            raise CostModelError(f"{path} names files outside its folder: {list(manifest.files)}")
        return manifest

    def require(self, kind: str, schema: str, folder: Path) -> None:
        """Raise CostModelError unless the model is a ``kind`` over features of ``schema``."""
        if self.kind != kind:
            raise CostModelError(f"{folder} holds a {self.kind!r}, expected a {kind!r}")
        if self.schema != schema:
            raise CostModelError(
                f"{folder} reads features of another version ({self.schema[:12]}, now {schema[:12]}); "
                "retrain from the database"
            )


__all__ = ["FILE", "FORMAT", "RankerManifest", "TrainingSource"]
