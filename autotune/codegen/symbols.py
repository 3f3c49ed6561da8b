"""Symbols that object code defines and calls, whatever backend made it: ELF files, sources of OpenCL C, and PTX."""

from __future__ import annotations

import re

from autotune.codegen.elf import ObjectSymbols, read_symbols
from autotune.codegen.gpu.starts import language_of, read_starts
from autotune.errors import BuildError

_ARCHITECTURES = {"ptx": "nvptx64", "opencl": "opencl"}
"""Of targets, by the language of their code."""

_DIRECTIVE = re.compile(rb"^[ \t]*#[ \t]*(\w+)", re.MULTILINE)


def object_symbols(data: bytes) -> ObjectSymbols:
    """Return the symbols of an object; raises BuildError for what is none, or is damaged.

    A source may hold no directives but pragmas, which compilers could otherwise read files for.
    """
    language = language_of(data)
    if language is None:
        return read_symbols(data)
    if language == "opencl":
        for directive in _DIRECTIVE.findall(data):
            if directive != b"pragma":
                raise BuildError(
                    f"OpenCL code with #{directive.decode()[:40]}, which that of this package has not"
                )
    return ObjectSymbols(_ARCHITECTURES[language], frozenset(read_starts(data, language)), frozenset())


__all__ = ["object_symbols"]
