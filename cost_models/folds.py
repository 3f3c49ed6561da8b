"""Who is held out from whom: workloads in folds, of which each is judged by a model that has not seen it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

FOLDS = 5


def by_workload(workloads: Iterable[str], salt: str) -> dict[str, int]:
    """Workload keys in :data:`FOLDS` folds of equal size, dealt anew for another ``salt``.

    Versions of a model have different folds, so that none is chosen for what it does on the same few workloads.
    """

    def draw(key: str) -> str:
        return hashlib.sha256(f"{salt}:{key}".encode()).hexdigest()

    return {key: number % FOLDS for number, key in enumerate(sorted(set(workloads), key=draw))}


def by_model(models: Mapping[str, str]) -> dict[str, int]:
    """A fold a model: its workloads, by their keys, are judged by what was learnt from the other models."""
    numbers = {name: number for number, name in enumerate(sorted(set(models.values())))}
    return {key: numbers[name] for key, name in models.items()}


__all__ = ["FOLDS", "by_model", "by_workload"]
