"""Loop programs as code that the interpreter runs: what every other backend is compared with."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from autotune.codegen.code import DispatchCode, RunnableCode
from autotune.codegen.interpreter.evaluator import Array
from autotune.codegen.interpreter.machine import poisoned, run_kernel
from autotune.codegen.manifest import ManifestEntry, with_manifest
from autotune.lower.ir import LoopProgram
from autotune.lower.printer import program_text
from autotune.target import Target


@dataclass(frozen=True)
class InterpretedCode(RunnableCode):
    """A program to be interpreted, in the process that made it: its object code is the text of the program."""

    program: LoopProgram = field(kw_only=True)

    def run(self, number: int, arrays: Sequence[Array], begin: int, end: int) -> None:
        """Run some tiles of a kernel; ``arrays`` are those of its buffers, in their shapes.

        Raises InternalError on an access outside of a buffer.
        """
        kernel = self.program.kernels[number]
        memory = dict(zip(kernel.buffers, arrays, strict=True))
        run_kernel(kernel, memory, range(begin, end))

    def workspaces(self) -> list[Array]:
        """Return memory in which shows what is read before it is stored."""
        return [poisoned(buffer) for buffer in self.program.workspaces]


class InterpreterBackend:
    """Code for the interpreter (see :class:`autotune.codegen.backend.Backend`); any target will do."""

    def compile(self, program: LoopProgram, target: Target, name: str = "") -> InterpretedCode:
        """Return the program itself."""
        text = program_text(program)
        name = name or "k" + hashlib.sha256(text.encode()).hexdigest()[:16]
        entries = [ManifestEntry(kernel, f"{name}_{n}") for n, kernel in enumerate(program.kernels)]
        code = with_manifest(program, entries, text.encode(), text, generated=text)
        return InterpretedCode(**vars(code), program=program)

    def fenced(self, program: LoopProgram, target: Target, code: DispatchCode) -> None:
        """Return none: the interpreter finds that in all that it runs."""

    def manifest(self, program: LoopProgram, target: Target) -> DispatchCode:
        """Return the manifest; its kernels need no scratch memory."""
        entries = [ManifestEntry(kernel, "") for kernel in program.kernels]
        return with_manifest(program, entries, b"", "", generated=program_text(program))


__all__ = ["InterpretedCode", "InterpreterBackend"]
