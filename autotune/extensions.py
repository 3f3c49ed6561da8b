"""Parts that other packages add by entry points: cost models, samplers, rules, search spaces, backends.

A package names what it defines in its ``pyproject.toml``, ``module:object`` by a name; nothing of this project is
edited (``docs/contributing/extensions.md``). Operators have a group of their own, ``autotune.operators``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from autotune.errors import AutotuneError, UsageError

COST_MODELS, SAMPLERS = "autotune.cost_models", "autotune.samplers"
RULES, SEARCH_SPACES, BACKENDS = "autotune.rules", "autotune.search_spaces", "autotune.backends"


@cache
def installed(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by name; raises UsageError for a name that two packages use."""
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        if entry.name in found and found[entry.name].value != entry.value:
            both = f"{_package(found[entry.name])} and {_package(entry)}"
            raise UsageError(f"{group}: {entry.name!r} is a name of both {both}\n  uninstall one of them")
        found[entry.name] = entry
    return found


@cache
def extension(group: str, name: str) -> Any:
    """Return what a package offers by a name, None if none does; raises UsageError where that cannot be imported."""
    entry = installed(group).get(name)
    if entry is None:
        return None
    try:
        return entry.load()
    except AutotuneError:
        raise
    except Exception as error:  # the code of another package, which may raise anything
        raise UsageError(
            f"{group}: {name!r} of {_package(entry)} is {entry.value}, which cannot be imported: "
            f"{type(error).__name__}: {error}"
        ) from error


def extensions(group: str) -> tuple[Any, ...]:
    """Return all that packages offer in a group, in the order of their names."""
    return tuple(extension(group, name) for name in sorted(installed(group)))


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else "a package"


__all__ = [
    "BACKENDS",
    "COST_MODELS",
    "RULES",
    "SAMPLERS",
    "SEARCH_SPACES",
    "extension",
    "extensions",
    "installed",
]
