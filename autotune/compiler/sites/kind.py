"""A kind of site of a whole model: the options that there are, and the request with one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.compiler.request import CompileRequest
    from autotune.graph.ir import Graph


@dataclass(frozen=True)
class SiteKind:
    """A kind of site of a whole model, by the ``name`` that databases and locks store (at most 16 characters).

    ``options`` are names, that of an untuned model first; fewer than two where there is nothing to decide. ``applied``
    is the request of a compilation with one of them. ``is_given`` says that the request itself decides. Sites are
    decided in the order of their ``turn``, each by what was decided before it.
    """

    name: str
    options: Callable[[CompileRequest, Graph], tuple[str, ...]]
    applied: Callable[[CompileRequest, str], CompileRequest]
    is_given: Callable[[CompileRequest], bool]
    turn: int


__all__ = ["SiteKind"]
