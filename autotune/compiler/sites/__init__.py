"""Sites of a whole model: decisions that are no workload's, such as its threads and the layout of its convolutions.

A kind of site is a file in ``kinds``. Everything else treats all kinds alike: jobs compare their options in the model,
the database stores that beside the options of workloads, and compilations use, print and lock what was decided.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from autotune.compiler.sites import kinds
from autotune.compiler.sites.kind import SiteKind

KINDS: tuple[SiteKind, ...] = tuple(
    sorted(
        (import_module(f"{kinds.__name__}.{module.name}").KIND for module in iter_modules(kinds.__path__)),
        key=lambda kind: kind.turn,
    )
)
"""In the order in which they are decided: each by what was decided before it."""

__all__ = ["KINDS", "SiteKind"]
