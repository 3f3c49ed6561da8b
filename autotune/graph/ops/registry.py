"""The operator registry: one `OpDef` an operator, in the file of its family, loaded when asked for.

To add an operator of ours, `define` it in the file of a family. Operators of users' packages have a name with a
domain, ``com.example.Snake``: their modules are the entry points of group ``autotune.operators`` of packages that are
installed, and those that ``AUTOTUNE_OPERATORS`` names. They are imported when such a name is asked for.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from functools import cache
from typing import ParamSpec

from autotune import settings
from autotune.errors import AutotuneError, GraphError, InternalError, UsageError
from autotune.graph.ops.definition import OpDef
from autotune.suggest import did_you_mean

FAMILIES = (
    "elementwise",
    "broadcast",
    "bits",
    "convolution",
    "pool",
    "reshape",
    "movement",
    "contraction",
    "softmax",
    "reduction",
    "normalization",
    "group_norm",
    "indexing",
    "resize",
    "grid_sample",
    "roi_align",
    "columns",
    "pool_indices",
    "attention",
    "quantized",
    "integer",
    "short_products",
    "block_products",
    "block_planes",
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
    "loop",
    "branch",
    "topk",
    "scan",
    "scatter",
    "lookup",
    "found",
    "trees",
)
"""The files that define operators, common ones first; what one of them registers is an operator."""

GROUP = "autotune.operators"
"""The group of the entry points that name modules which define operators."""
HOW_TO_NAME = (
    f"the module that defines it must be an entry point of group {GROUP!r} of an installed package, or be named "
    f"in {settings.environment_name('operators')}"
)
"""Advice for a name with a domain that is unknown."""
LIBRARY = "autotune.library."
"""Begins the names of operators that a library kernel computes (:mod:`autotune.graph.ops.library_kernel`)."""
_CUSTOM = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_-]*\.)+[A-Za-z_][A-Za-z0-9_]*")

P = ParamSpec("P")

_REGISTRY: dict[str, OpDef] = {}


def register(op: OpDef) -> OpDef:
    """Add an operator. Raises InternalError if the name is taken."""
    if op.name in _REGISTRY:
        raise InternalError(f"operator {op.name!r} is registered twice")
    _REGISTRY[op.name] = op
    return op


def registering(make: Callable[P, OpDef]) -> Callable[P, OpDef]:
    """Return a function that makes definitions, as one that also adds them."""
    return lambda *args, **facts: register(make(*args, **facts))


define = registering(OpDef)
"""Make the definition of an operator, by the fields of `OpDef`, and add it."""


def define_custom(op: OpDef) -> OpDef:
    """Add an operator of a user's, which has a domain; defining it again in the same process replaces it.

    Raises UsageError for a name without a domain.
    """
    if not is_custom(op.name):
        raise UsageError(
            f"operator {op.name!r}: a name of an own operator is its domain, a dot and its name there, "
            "of letters, digits and _, such as 'com.example.Snake'"
        )
    _REGISTRY[op.name] = op
    return op


def is_custom(name: str) -> bool:
    """Return whether a name is that of an operator of users' packages: one with a domain."""
    return _CUSTOM.fullmatch(name) is not None


def _find(name: str) -> OpDef | None:
    """Return the operator, once files are loaded up to the one that defines it."""
    if name.startswith(LIBRARY):
        from autotune.graph.ops.library_kernel import kernel_definition

        return kernel_definition(name)
    if is_custom(name):
        if name not in _REGISTRY:
            _import_custom(settings.current().operators)
        return _REGISTRY.get(name)
    for family in FAMILIES:
        if name in _REGISTRY:
            break
        importlib.import_module(f"autotune.graph.ops.{family}")
    return _REGISTRY.get(name)


@cache
def _import_custom(modules: str) -> None:
    """Import the modules that define users' operators. Raises UsageError that says which of them cannot be."""
    from importlib.metadata import entry_points

    places = {
        e.value: f"entry point {e.name!r} of {e.dist and e.dist.name}" for e in entry_points(group=GROUP)
    }
    named = {module: settings.environment_name("operators") for module in modules.split(",") if module}
    for module, where in {**places, **named}.items():
        try:
            importlib.import_module(module)
        except AutotuneError:
            raise
        except Exception as error:
            raise UsageError(
                f"operators of users' packages: {where} names module {module!r}, which cannot be imported: "
                f"{type(error).__name__}: {error}"
            ) from error


def supported(name: str) -> bool:
    """Return whether the operator is known."""
    return _find(name) is not None


def registered() -> tuple[str, ...]:
    """Return the operators that were defined so far, sorted; loads nothing."""
    return tuple(sorted(_REGISTRY))


def names() -> tuple[str, ...]:
    """Return every known operator, sorted."""
    for family in FAMILIES:
        importlib.import_module(f"autotune.graph.ops.{family}")
    _import_custom(settings.current().operators)
    return registered()


def get(name: str) -> OpDef:
    """Return the definition of an operator. Raises GraphError, with near names, if there is none."""
    found = _find(name)
    if found is None:
        missing = f"\n  {HOW_TO_NAME}" if is_custom(name) else ""
        raise GraphError(f"unknown operator {name!r}{did_you_mean(name, names())}{missing}")
    return found
