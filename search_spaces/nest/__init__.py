"""Loop nests of whole populations of candidates, one array entry a candidate."""

from search_spaces.nest.loops import (
    CACHE_LINE,
    PAGE_BYTES,
    WAY_BYTES,
    WRITTEN_OUT,
    Access,
    Body,
    Here,
    Loop,
    LoopKind,
    LoopNest,
    Numbers,
    Pass,
    Touched,
)

__all__ = [
    "CACHE_LINE",
    "PAGE_BYTES",
    "WAY_BYTES",
    "WRITTEN_OUT",
    "Access",
    "Body",
    "Here",
    "Loop",
    "LoopKind",
    "LoopNest",
    "Numbers",
    "Pass",
    "Touched",
]
