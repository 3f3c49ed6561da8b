"""Compiling one model for several targets, as one artifact holds them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from autotune.graph.devices import is_annotated
from autotune.tuning.accuracy import checked
from autotune.tuning.api import compile_with_database

if TYPE_CHECKING:
    from autotune.compiler.explain import Compilation
    from autotune.compiler.request import CompileRequest


def compile_for_targets(request: CompileRequest) -> tuple[list[Compilation], str | None]:
    """Compile a model for each target of a request; the second value says where its schedules come from.

    Raises UsageError as :meth:`~autotune.compiler.request.CompileRequest.checked` does and for devices that the model
    names, and what :func:`autotune.compiler.driver.compile_in_detail` raises.
    """
    from autotune.compiler.dividing import imported

    graph = imported(request.checked().model, request.shapes)
    request.checked(on_devices=is_annotated(graph))
    found, where = list["Compilation"](), None
    for target in request.targets:
        done, where = compile_with_database(replace(request, target=target), graph)
        found.append(checked(done, request.model))
    return found, where


__all__ = ["compile_for_targets"]
