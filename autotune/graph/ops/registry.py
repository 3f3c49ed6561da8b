"""The operator registry: one `OpDef` an operator, in the file of its family, loaded when asked for.

To add an operator, `define` it in the file of a family.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import ParamSpec

from autotune.errors import GraphError, InternalError
from autotune.graph.ops.definition import OpDef
from autotune.suggest import did_you_mean

FAMILIES = (
    "elementwise",
    "broadcast",
    "attention",
    "contraction",
    "convolution",
    "convolution_transposed",
    "integer",
    "quantized",
    "winograd",
    "pool",
    "normalization",
    "softmax",
    "reduction",
    "reshape",
    "movement",
    "interleave",
    "overlap_add",
    "patches",
    "indexing",
    "shape",
)
"""The files that define operators; what one of them registers is an operator."""

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


@cache
def _load_families() -> None:
    for family in FAMILIES:
        importlib.import_module(f"autotune.graph.ops.{family}")


def supported(name: str) -> bool:
    """Whether the operator is known."""
    _load_families()
    return name in _REGISTRY


def names() -> tuple[str, ...]:
    """Every known operator, sorted."""
    _load_families()
    return tuple(sorted(_REGISTRY))


def get(name: str) -> OpDef:
    """The definition of an operator. Raises GraphError, with near names, if there is none."""
    found = _REGISTRY.get(name)
    if found is None and supported(name):
        found = _REGISTRY[name]
    if found is None:
        raise GraphError(f"unknown operator {name!r}{did_you_mean(name, names())}")
    return found
