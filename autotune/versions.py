"""Versions of packages, for what is recorded beside measurements."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

from autotune.distribution import version as own_version


def versions_of(distributions: Iterable[str]) -> dict[str, str]:
    """Return versions by name, without those that are not installed; ours is the imported one's, installed or not."""
    known = {}
    for name in distributions:
        try:
            known[name] = own_version() if name == "autotune" else version(name)
        except PackageNotFoundError:
            continue
    return known


__all__ = ["versions_of"]
