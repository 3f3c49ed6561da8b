"""Loop programs to modules of Python: helper functions, a function a kernel, and one that calls them in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autotune.codegen.lockstep import by_one_thread
from autotune.codegen.manifest import ManifestEntry
from autotune.codegen.numba.functions import FUNCTIONS, definitions
from autotune.codegen.numba.kernel import kernel_text
from autotune.codegen.numba.types import as_stored, memory_type
from autotune.codegen.numba.writer import Names, identifier
from autotune.lower.ir import Buffer, LoopProgram
from autotune.te.depth import walks_deep


@walks_deep
def module_text(program: LoopProgram, name: str) -> tuple[str, list[ManifestEntry]]:
    """Return a module that stands by itself, and its entry points; raises BuildError where there is no code for a part.

    The function ``name`` takes the arrays of the program's arguments in order, and stores its outputs in place.
    """
    names = Names(FUNCTIONS)
    main = names.fresh(name)
    symbols = [names.fresh(f"{main}_{identifier(kernel.name)}") for kernel in program.kernels]
    taken = frozenset({*FUNCTIONS, main, *symbols})
    functions = set[str]()
    kernels = [
        kernel_text(replace(kernel, body=by_one_thread(kernel.body)), symbol, functions, taken)
        for kernel, symbol in zip(program.kernels, symbols, strict=True)
    ]
    parts = [*definitions(functions), *kernels, _main(program, main, symbols, Names(taken))]
    body = "\n\n\n".join(parts)
    heads = [f'"""{_headline(program, main)}"""', "", *_imports(body), "", "", body, ""]
    return "\n".join(heads), [
        ManifestEntry(kernel, symbol) for kernel, symbol in zip(program.kernels, symbols, strict=True)
    ]


def _headline(program: LoopProgram, main: str) -> str:
    outputs = ", ".join(identifier(b.name) for b in program.outputs)
    return f"Loops of {outputs}, compiled by numba at the first call of {main}."


def _imports(body: str) -> list[str]:
    names = ["njit"] * ("@njit" in body) + ["prange"] * ("prange(" in body)
    lines = ["import math", ""] * ("math.erf(" in body) + ["import numpy as np"]
    lines += [f"from numba import {', '.join(names)}"] * bool(names)
    return lines + ["", "from autotune import library"] * ("library.call(" in body)


def _main(program: LoopProgram, main: str, symbols: Sequence[str], names: Names) -> str:
    arguments = {buffer: names.fresh(buffer.name) for buffer in program.arguments}
    lines = [f"def {main}({', '.join(arguments.values())}):", f'    """{_summary(program, arguments)}"""']
    memory = dict(arguments)
    for buffer, name in arguments.items():
        if as_stored(buffer.dtype):
            memory[buffer] = names.fresh(f"{name}_bits")
            lines.append(f"    {memory[buffer]} = {name}.view(np.{memory_type(buffer.dtype)})")
    for buffer in program.workspaces:
        memory[buffer] = names.fresh(buffer.name)
        shape = ", ".join(map(str, buffer.shape)) + ("," if len(buffer.shape) == 1 else "")
        lines.append(f"    {memory[buffer]} = np.empty(({shape}), np.{memory_type(buffer.dtype)})")
    for kernel, symbol in zip(program.kernels, symbols, strict=True):
        lines.append(f"    {symbol}({', '.join(memory[buffer] for buffer in kernel.buffers)})")
    return "\n".join(lines)


def _summary(program: LoopProgram, names: dict[Buffer, str]) -> str:
    described = [
        f"{name}: {buffer.dtype}[{', '.join(map(str, buffer.shape))}]{' (stored)' if buffer in program.outputs else ''}"
        for buffer, name in names.items()
    ]
    return "Takes " + ", ".join(described) + "."


__all__ = ["module_text"]
