"""The registry of spaces: which family serves which kind of workload."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from autotune import library
from autotune.errors import InternalError, UsageError
from autotune.extensions import SEARCH_SPACES, extension
from search_spaces.analysis import structure
from search_spaces.device.spaces import device_space_for, runs_groups
from search_spaces.families import elementwise
from search_spaces.space import Space
from search_spaces.tile.shape import tile_shape

if TYPE_CHECKING:
    from autotune.graph.region import Workload
    from autotune.target import Target

TILED = {
    "contraction": "search_spaces.families.contraction",
    "convolution": "search_spaces.families.convolution",
    "depthwise": "search_spaces.families.depthwise",
    "pool": "search_spaces.families.pooling",
}
"""Families that tile an anchor in registers."""

PLAIN = {
    "attention": "search_spaces.families.attention",
    "chain": "search_spaces.families.chain",
    "reduction": "search_spaces.families.reduction",
    "softmax": "search_spaces.families.softmax",
    "normalization": "search_spaces.families.normalization",
    "elementwise": "search_spaces.families.elementwise",
    "winograd": "search_spaces.families.winograd",
    "sequential": "search_spaces.families.sequential",
    "strassen": "search_spaces.families.strassen",
}
"""Families that look at the whole region."""

_KEPT = 64
"""So many spaces are kept."""


def space_for(workload: Workload, target: Target) -> Space:
    """Return the search space of ``workload`` on ``target``; every workload has one.

    A region whose anchor a family cannot tile falls back to plain loops. Raises InternalError for a kind
    that no family serves. The same object is given again while it is among the last: what was derived of it is known.
    """
    return _space(workload, target, library.registered())


@lru_cache(maxsize=_KEPT)
def _space(workload: Workload, target: Target, _kernels: tuple[tuple[str, str], ...]) -> Space:
    """Return the space where these library kernels are registered, which are values of knobs."""
    if runs_groups(target):
        return device_space_for(workload, target)
    kind = workload.kind
    if (own := extension(SEARCH_SPACES, kind)) is not None:
        return _own_space(own, workload, target)
    if kind in PLAIN:
        found: Space = importlib.import_module(PLAIN[kind]).space(workload, target)
        return found
    if kind not in TILED:
        raise InternalError(f"no search space for workloads of kind {kind!r}")
    program = workload.expressions
    shape = None if program.anchor is None else tile_shape(structure(program), target)
    if shape is None:
        return elementwise.space(workload, target, kind)
    tiled: Space = importlib.import_module(TILED[kind]).space(workload, target, shape)
    return tiled


def _own_space(make: Callable[[Workload, Target], Any], workload: Workload, target: Target) -> Space:
    """Return the space that an installed package makes; raises UsageError for anything else."""
    found = make(workload, target)
    if not isinstance(found, Space):
        raise UsageError(
            f"the search space that a package has for {workload.kind} is a {type(found).__name__}, and no Space"
        )
    return found


__all__ = ["PLAIN", "TILED", "space_for"]
