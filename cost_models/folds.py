"""Who is held out from whom: workloads in folds, of which each is judged by a model that has not seen it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping

FOLDS = 5


def by_workload(workloads: Iterable[str], salt: str) -> dict[str, int]:
    """Return the workload keys in :data:`FOLDS` folds of equal size, dealt anew for another ``salt``.

    Versions of a model have different folds, so that none is chosen for what it does on the same few workloads.
    """

    def draw(key: str) -> str:
        return hashlib.sha256(f"{salt}:{key}".encode()).hexdigest()

    return {key: number % FOLDS for number, key in enumerate(sorted(set(workloads), key=draw))}


def by_model(models: Mapping[str, str]) -> dict[str, int]:
    """Return whole models in :data:`FOLDS` folds, as even as they go.

    The workloads of a model, by their keys, are judged by what was learnt from other models.
    """
    sizes = Counter(models.values())
    filled, numbers = [0] * FOLDS, dict[str, int]()
    for name, size in sorted(sizes.items(), key=lambda found: (-found[1], found[0])):
        numbers[name] = filled.index(min(filled))
        filled[numbers[name]] += size
    return {key: numbers[name] for key, name in models.items()}


__all__ = ["FOLDS", "by_model", "by_workload"]
