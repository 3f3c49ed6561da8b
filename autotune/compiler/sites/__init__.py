"""Sites of a whole model: decisions that are no workload's, such as its threads and the layout of its convolutions.

A kind of site is a file here and a line in :data:`KINDS`. Everything else treats all kinds alike: jobs compare their
options in the model, the database stores that beside the options of workloads, and compilations use, print and lock
what was decided.
"""

from __future__ import annotations

from autotune.compiler.sites.kind import SiteKind
from autotune.compiler.sites.layout import LAYOUT
from autotune.compiler.sites.order import ORDER
from autotune.compiler.sites.threads import THREADS

KINDS: tuple[SiteKind, ...] = (THREADS, LAYOUT, ORDER)
"""In the order in which they are decided: each by what was decided before it."""

__all__ = ["KINDS", "SiteKind"]
