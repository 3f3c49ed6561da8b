"""Making the lock of a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.compiler.explain import Compilation
    from autotune.compiler.lock import Lock
    from autotune.compiler.request import CompileRequest


def lock(request: CompileRequest, path: str | Path) -> tuple[Lock, Compilation, str | None]:
    """Write the lock of a model: the options and schedules that a compilation as requested uses.

    The lock, the compilation that it is of, and the database that the schedules came from, if there is one.
    Raises LockError where the file cannot be written, and what :func:`autotune.compile` raises.
    """
    from autotune.compiler.dividing import imported, on_one_device
    from autotune.compiler.locked import lock_of
    from autotune.tuning.compiling import compile_request

    request = request.checked()
    request.one_target()
    compiled = compile_request(request, graph=on_one_device(imported(request.model, request.shapes)))
    done = compiled.cases[0].done
    made = lock_of(done)
    made.write(Path(path))
    return made, done, compiled.where


__all__ = ["lock"]
