"""Compiled models of files, ready to run."""

from __future__ import annotations

import os

from autotune.errors import UsageError
from autotune.hardware import check_threads
from autotune.runtime.artifacts import artifact
from autotune.runtime.module import Module


def load(
    path: str | os.PathLike[str],
    threads: int | None = None,
    *,
    allow_oversubscription: bool = False,
    mapped: bool = False,
    check: bool = False,
    target: str | None = None,
) -> Module:
    """Return the module of an artifact, a file that `autotune compile` or :meth:`Module.save` wrote.

    ``threads``: see :class:`Module`; where devices are named they say how many workers there are. Of several targets
    the best one is taken that this machine can run, or ``target``.

    Constants are read into memory and checked, or ``mapped`` from the file: nothing reads them before a kernel does,
    processes share them, and they are checked only with ``check``. Code is always checked. Raises UsageError for what
    is no file, for a target that it has not, and for more threads than usable cores without
    ``allow_oversubscription``; ArtifactError for a file that is no artifact, damaged or made for another machine.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(f"an artifact is given by its path, not as {type(path).__name__}")
    if not os.path.isfile(path):
        raise UsageError(f"{'not a' if os.path.exists(path) else 'no such'} file: {path}")
    if threads is not None:
        check_threads(threads, allow_oversubscription=allow_oversubscription)
    return Module(artifact.load(path, mapped=mapped, check=check, target=target), threads)


__all__ = ["load"]
