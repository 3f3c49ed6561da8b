"""Versions of packages, for what is recorded beside measurements."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version


def versions_of(distributions: Iterable[str]) -> dict[str, str]:
    """Return versions by name, without those that are not installed; ours is the imported one's, installed or not."""
    known = {}
    for name in distributions:
        try:
            known[name] = _ours() if name == "autotune" else version(name)
        except PackageNotFoundError:
            continue
    return known


def _ours() -> str:
    """Return our versions: to import that package would be to depend on all that it shows."""
    found: str = sys.modules[__name__.rpartition(".")[0]].__version__
    return found


__all__ = ["versions_of"]
