"""Loop nests of whole populations of candidates, one array entry a candidate."""

from search_spaces.nest.loops import (
    CACHE_LINE,
    PAGE_BYTES,
    WAY_BYTES,
    WRITTEN_OUT,
    Body,
    Here,
    Loop,
    LoopKind,
    LoopNest,
    Numbers,
    Pass,
    TensorAccess,
    TouchedMemory,
)

__all__ = [
    "CACHE_LINE",
    "PAGE_BYTES",
    "WAY_BYTES",
    "WRITTEN_OUT",
    "Body",
    "Here",
    "Loop",
    "LoopKind",
    "LoopNest",
    "Numbers",
    "Pass",
    "TensorAccess",
    "TouchedMemory",
]
