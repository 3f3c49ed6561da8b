"""Interpreting calls of functions from outside of the program: they are called, on the arrays as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from autotune import library
from autotune.lower.ir import Buffer, External
from autotune.te.expr import Const


def call_external(node: External, memory: Mapping[Buffer, np.ndarray[Any, Any]]) -> None:
    """Call the function behind a symbol with arrays and numbers."""
    library.call(
        node.symbol,
        [
            np.dtype(a.dtype).type(a.value) if isinstance(a, Const) else memory[a.buffer]
            for a in node.arguments
        ],
    )


__all__ = ["call_external"]
