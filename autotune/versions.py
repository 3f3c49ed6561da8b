"""Versions of packages, for what is recorded beside measurements."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

import autotune


def versions_of(distributions: Iterable[str]) -> dict[str, str]:
    """Versions by name, without those that are not installed; ours is the imported one's, installed or not."""
    known = {}
    for name in distributions:
        try:
            known[name] = autotune.__version__ if name == "autotune" else version(name)
        except PackageNotFoundError:
            continue
    return known


__all__ = ["versions_of"]
