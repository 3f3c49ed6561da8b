"""The manifest beside every stored model: what it is, what it read, what it learned from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from autotune.errors import CostModelError

FORMAT = 1
FILE = "manifest.json"


@dataclass(frozen=True)
class ModelManifest:
    """``files`` maps file names to SHA-256; ``trained_on`` lists the workload keys that it has seen."""

    kind: str
    schema: str
    files: Mapping[str, str]
    rows: int = 0
    trained_on: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    latency_range_ns: tuple[float, float] = (0.0, 0.0)
    metrics: Mapping[str, float] = field(default_factory=dict)
    parent: str = ""
    created: str = ""
    xgboost: str = ""
    format: int = FORMAT

    def write(self, folder: Path) -> None:
        """Write ``manifest.json`` into ``folder``."""
        text = json.dumps(asdict(self), indent=1, sort_keys=True)
        (folder / FILE).write_text(text + "\n", encoding="utf-8")

    @staticmethod
    def read(folder: Path) -> ModelManifest:
        """Read it back; raises CostModelError where it is missing, damaged or of a newer format."""
        path = folder / FILE
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CostModelError(f"no readable cost model in {folder}: {error}") from error
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            found = data.get("format") if isinstance(data, dict) else None
            raise CostModelError(f"{path} has format {found!r}; this version reads {FORMAT}")
        for name in ("trained_on", "targets", "latency_range_ns"):
            data[name] = tuple(data.get(name, ()))
        try:
            manifest = ModelManifest(**data)
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


__all__ = ["FILE", "FORMAT", "ModelManifest"]
