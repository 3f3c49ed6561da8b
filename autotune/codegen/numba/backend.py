"""Loop programs as Python that numba compiles, on every system and processor that numba has."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from autotune.codegen.code import DispatchCode, RunnableCode
from autotune.codegen.manifest import with_manifest
from autotune.codegen.numba.module import module_text
from autotune.codegen.numba.threads import at_a_time
from autotune.codegen.numba.types import as_stored, memory_type
from autotune.codegen.numba.writer import Names
from autotune.lower.ir import LoopProgram
from autotune.target import Target

Array = np.ndarray[Any, Any]

_UNNAMED = "unnamed_kernel"
"""Stands for the symbol prefix where code is generated: its hash does not depend on names."""


@dataclass(frozen=True)
class NumbaCode(RunnableCode):
    """Code whose object code is the text of a module; numba compiles a kernel when it is first run."""

    threads: int = field(kw_only=True)

    @cached_property
    def functions(self) -> dict[str, Any]:
        """Return what the module defines, by name."""
        defined: dict[str, Any] = {"__name__": "autotune_numba"}
        exec(compile(self.ir, "<printed for numba>", "exec"), defined)
        return defined

    def run(self, number: int, arrays: Sequence[Array], begin: int, end: int) -> None:
        """Run some tiles of a kernel; ``arrays`` are those of its buffers, in their shapes."""
        kernel = self.kernels[number]
        memory = [
            array.view(memory_type(d)) if as_stored(d := array.dtype.name) else array for array in arrays
        ]
        tiles = (begin, end) if kernel.tiles != 1 else ()
        if begin < end:
            with at_a_time(self.threads):
                self.functions[kernel.symbol](*memory, *tiles)

    def workspaces(self) -> list[Array]:
        """Return memory of intermediate tensors."""
        return [
            np.empty(spec.shape, spec.dtype) for spec in self.buffers if spec.role not in ("input", "output")
        ]


class NumbaBackend:
    """Python for numba (see :class:`autotune.codegen.backend.Backend`); any target will do.

    Nothing is vectorised, unrolled or prefetched here: numba's LLVM decides. Arithmetic is that of every backend,
    without ``fastmath``.
    """

    def compile(self, program: LoopProgram, target: Target, name: str = "") -> NumbaCode:
        """Return the module's text, in which the function ``name`` runs all kernels."""
        generated, entries = module_text(program, _UNNAMED)
        name = name or "k" + hashlib.sha256(generated.encode()).hexdigest()[:16]
        name = Names(re.findall(r"\w+", generated)).fresh(name)
        text = generated.replace(_UNNAMED, name)
        entries = [e._replace(symbol=e.symbol.replace(_UNNAMED, name)) for e in entries]
        code = with_manifest(program, entries, text.encode(), text, generated=generated)
        return NumbaCode(**vars(code), threads=target.threads)

    def manifest(self, program: LoopProgram, target: Target) -> DispatchCode:
        """Return its entry points, which need no scratch memory."""
        generated, entries = module_text(program, _UNNAMED)
        return with_manifest(program, entries, b"", "", generated=generated)


__all__ = ["NumbaBackend", "NumbaCode"]
