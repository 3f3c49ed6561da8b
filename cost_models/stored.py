"""A cost model in a folder: a manifest and a file a member."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autotune.errors import CostModelError
from cost_models import booster as boosters
from cost_models import features
from cost_models.manifest import RankerManifest
from cost_models.ranker import Ranker

KIND = "cost-model"
MEMBER = "member{}.ubj"


@dataclass(frozen=True)
class CostModel:
    """A stored ranker and what it was trained on; ``version`` is what people know it by."""

    ranker: Ranker
    manifest: RankerManifest
    version: str = ""


def readable(folder: Path) -> bool:
    """Return whether this version of autotune can use the model: one that reads other features has to be
    trained anew."""
    return RankerManifest.is_current(folder) and RankerManifest.read(folder).schema == features.schema()


def read(folder: Path, version: str, threads: int = 1) -> CostModel:
    """Return the model, checked; raises CostModelError for a damaged one, and for one that is not :func:`readable`."""
    manifest = RankerManifest.read(folder)
    manifest.require(KIND, features.schema(), folder)
    names = [MEMBER.format(number) for number in range(len(manifest.files))]
    if not names or {*names} != {*manifest.files}:
        raise CostModelError(f"{folder} has the members {sorted(manifest.files)}, expected {names}")
    members = tuple(boosters.load(folder / name, manifest.files[name]) for name in names)
    if not all(fold in range(len(members)) for fold in manifest.folds.values()):
        raise CostModelError(f"{folder} names folds that have no member")
    return CostModel(Ranker(members, manifest.folds, threads), manifest, version)


__all__ = ["KIND", "MEMBER", "CostModel", "read", "readable"]
