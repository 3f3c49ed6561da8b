"""Generators of code for a target: one interface, and the list of its implementations.

A backend is a folder beside this file and a line in :data:`BACKENDS`; ``tests/codegen/conformance.py`` holds what
all of them must do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Protocol

from autotune.codegen.code import DispatchCode
from autotune.errors import TargetError
from autotune.extensions import BACKENDS as EXTENSIONS
from autotune.extensions import extension, installed
from autotune.lower.ir import LoopProgram
from autotune.lower.program import lower_schedule
from autotune.schedule.schedule import Schedule
from autotune.target import Target
from autotune.te.tensor import Tensor


class Backend(Protocol):
    """Turns loop programs into code for the targets of some architectures.

    It gets loops whose order is final: kinds and notes of loops, scopes of buffers and declared instructions say how
    they should run, and a backend changes none of them; what it has no use for (a prefetch, a note, vectors on a
    machine without) it may ignore, as long as the numbers stay. Notable statements are ``Let``, which names a value,
    ``Intrinsic``, whose ``body`` is what it means, and ``Barrier``, at which all threads of a block wait.

    It gives a :class:`~autotune.codegen.code.DispatchCode`: object code as bytes, which are the same for the same
    program, target and name; the manifest, of one entry point a kernel of the program, in its order, and of all
    buffers (:mod:`autotune.codegen.manifest` makes it); and the text that was compiled, for reading. How an entry
    point is called, and when, is said in :mod:`autotune.codegen.code`.

    It raises BuildError where it has no code for a part of the program or its compiler refuses it, TargetError where
    it cannot make code for the target, and MissingExtraError where it needs a package that is not installed. Nothing
    heavy is imported before :meth:`compile`.
    """

    def compile(self, program: LoopProgram, target: Target, name: str = "") -> DispatchCode:
        """Return the code of a program.

        Symbols start with ``name``, or with a hash of the code, so that the objects of different programs can be
        loaded together.
        """

    def fenced(self, program: LoopProgram, target: Target, code: DispatchCode) -> DispatchCode | None:
        """Return ``code``, which :meth:`compile` made, once more as a build that finds what it writes beside its local
        memory; None where it has none, or where that is not looked at."""

    def manifest(self, program: LoopProgram, target: Target) -> DispatchCode:
        """Return the manifest of :meth:`compile` without code: its entry points, buffers and key, and no text."""


BACKENDS: Mapping[str, str] = {
    "x86_64": "autotune.codegen.llvm.backend:LlvmBackend",
    "aarch64": "autotune.codegen.llvm.backend:LlvmBackend",
    "opencl": "autotune.codegen.opencl.backend:OpenclBackend",
    "nvptx64": "autotune.codegen.nvptx.backend:NvptxBackend",
    "numba": "autotune.codegen.numba.backend:NumbaBackend",
    "interpreter": "autotune.codegen.interpreter.backend:InterpreterBackend",
}
"""Module and class of the backend by the architecture of a target."""


@cache
def backend_for(arch: str) -> Backend:
    """Return the backend of an architecture; raises TargetError where there is none."""
    if arch not in BACKENDS:
        if (own := extension(EXTENSIONS, arch)) is not None:
            made: Backend = own()
            return made
        raise TargetError(
            f"no code generator for {arch}; known: {', '.join([*BACKENDS, *installed(EXTENSIONS)])}"
        )
    module, name = BACKENDS[arch].split(":")
    backend: Backend = getattr(import_module(module), name)()
    return backend


def compile_schedule(
    schedule: Schedule,
    args: Sequence[Tensor],
    target: Target,
    *,
    name: str = "",
    constants: frozenset[str] = frozenset(),
    strides: Mapping[str, tuple[int, ...]] | None = None,
) -> DispatchCode:
    """Return the code of a schedule, by the backend of its target.

    ``args`` are inputs, then outputs; ``constants`` and ``strides`` are as in ``lower_schedule``, ``name`` as in
    :meth:`Backend.compile`. Raises LoweringError, and what the backend raises.
    """
    program = lower_schedule(schedule, args, constants=constants, strides=strides)
    return backend_for(target.arch).compile(program, target, name)


def manifest_of(
    schedule: Schedule,
    args: Sequence[Tensor],
    target: Target,
    *,
    constants: frozenset[str] = frozenset(),
    strides: Mapping[str, tuple[int, ...]] | None = None,
) -> DispatchCode:
    """Return kernels and buffers of the code of a schedule, which is not made: see :func:`compile_schedule`."""
    program = lower_schedule(schedule, args, constants=constants, strides=strides)
    return backend_for(target.arch).manifest(program, target)


__all__ = ["BACKENDS", "Backend", "backend_for", "compile_schedule", "manifest_of"]
