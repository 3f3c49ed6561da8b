"""The operator registry: one `OpDef` an operator, in the file of its family, loaded when asked for.

To add an operator, `define` it in the file of a family.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import ParamSpec

from autotune.errors import GraphError, InternalError
from autotune.graph.ops.definition import OpDef
from autotune.suggest import did_you_mean

FAMILIES = (
    "elementwise",
    "broadcast",
    "convolution",
    "pool",
    "reshape",
    "movement",
    "contraction",
    "softmax",
    "reduction",
    "normalization",
    "indexing",
    "attention",
    "quantized",
    "integer",
    "shape",
    "convolution_grouped",
    "convolution_transposed",
    "winograd",
    "winograd_products",
    "strassen",
    "interleave",
    "overlap_add",
    "patches",
    "transfer",
)
"""The files that define operators, common ones first; what one of them registers is an operator."""

P = ParamSpec("P")

_REGISTRY: dict[str, OpDef] = {}


def register(op: OpDef) -> OpDef:
    """Add an operator. Raises InternalError if the name is taken."""
    if op.name in _REGISTRY:
        raise InternalError(f"operator {op.name!r} is registered twice")
    _REGISTRY[op.name] = op
    return op


def registering(make: Callable[P, OpDef]) -> Callable[P, OpDef]:
    """A function that makes definitions, as one that also adds them."""
    return lambda *args, **facts: register(make(*args, **facts))


define = registering(OpDef)
"""Make the definition of an operator, by the fields of `OpDef`, and add it."""


def _find(name: str) -> OpDef | None:
    """The operator, once files are loaded up to the one that defines it."""
    for family in FAMILIES:
        if name in _REGISTRY:
            break
        importlib.import_module(f"autotune.graph.ops.{family}")
    return _REGISTRY.get(name)


def supported(name: str) -> bool:
    """Whether the operator is known."""
    return _find(name) is not None


def registered() -> tuple[str, ...]:
    """The operators that were defined so far, sorted; loads nothing."""
    return tuple(sorted(_REGISTRY))


def names() -> tuple[str, ...]:
    """Every known operator, sorted."""
    for family in FAMILIES:
        importlib.import_module(f"autotune.graph.ops.{family}")
    return registered()


def get(name: str) -> OpDef:
    """The definition of an operator. Raises GraphError, with near names, if there is none."""
    found = _find(name)
    if found is None:
        raise GraphError(f"unknown operator {name!r}{did_you_mean(name, names())}")
    return found
