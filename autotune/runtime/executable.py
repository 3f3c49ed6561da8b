"""Compiled models made ready to run: of a file, or of what was compiled in this process."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from autotune.errors import UsageError
from autotune.hardware import check_threads
from autotune.runtime.artifacts import artifact
from autotune.runtime.compiled import Compiled
from autotune.runtime.cpu.device import HOST_MEMORY, Memory
from autotune.runtime.module import Module
from autotune.runtime.programs.device_program import DeviceProgram
from autotune.runtime.targets import choose

if TYPE_CHECKING:
    from autotune.runtime.placed_module import PlacedModule
    from autotune.runtime.sized_module import SizedModule


def load(
    path: str | os.PathLike[str],
    threads: int | None = None,
    *,
    allow_oversubscription: bool = False,
    mapped: bool = False,
    check: bool = False,
    target: str | None = None,
) -> Module | PlacedModule | SizedModule:
    """Return the module of an artifact, a file that `autotune compile` or :meth:`Module.save` wrote.

    One that was compiled for several devices, or for another than the CPU, is a
    :class:`autotune.runtime.placed_module.PlacedModule`, whose devices say how many workers there are;
    one of a model with dynamic shapes is a :class:`autotune.runtime.sized_module.SizedModule`. ``threads``: see
    :class:`Module`. Of several targets the best one is taken that this machine can run, or ``target``.

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
    return module_of(artifact.load(path, mapped=mapped, check=check, target=target), threads)


def module_of(
    model: Compiled,
    threads: int | None = None,
    *,
    on_miss: Callable[[dict[str, int]], DeviceProgram] | None = None,
    kept: int = 4,
) -> Module | PlacedModule | SizedModule:
    """Return what runs a compiled model; of several targets the best one that this machine can run.

    ``on_miss`` and ``kept`` are those of :class:`autotune.runtime.sized_module.SizedModule`, which a model of open
    sizes is. Raises UsageError for ``threads`` where devices say how many.
    """
    targets = [target for target in model.targets if target is not None]
    if len(targets) > 1:
        model = model.of_target(targets[choose(targets)])
    if not model.least:
        return module_of_program(model.cases[0].program, threads)
    from autotune.runtime.sized_module import SizedModule

    _check_threads(model.cases[0].program, threads)
    return SizedModule(model, threads, on_miss=on_miss, kept=kept)


def module_of_program(
    program: DeviceProgram, threads: int | None = None, memory: Memory = HOST_MEMORY
) -> Module | PlacedModule:
    """Return what runs a program; raises UsageError for ``threads`` where devices say how many."""
    _check_threads(program, threads)
    image = program.image
    if image is not None and not image.target.group_items:
        return Module(image, threads, memory=memory)
    from autotune.runtime.device_module import on_device
    from autotune.runtime.placed_module import PlacedModule

    return PlacedModule(program) if image is None else on_device(image)


def _check_threads(program: DeviceProgram, threads: int | None) -> None:
    image = program.image
    if threads is None or (image is not None and not image.target.group_items):
        return
    where = ", ".join(program.devices) if image is None else "the device that it was compiled for"
    raise UsageError(
        f"threads were given for {program.name!r}, which runs on {where}: devices say how many there are"
    )


__all__ = ["load", "module_of", "module_of_program"]
