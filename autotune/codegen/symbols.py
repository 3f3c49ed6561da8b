"""What object code defines and calls, whatever backend made it: relocatable ELF files, sources of OpenCL C, and PTX."""

from __future__ import annotations

import re

from autotune.codegen.elf import ObjectSymbols, read_symbols
from autotune.codegen.nvptx import launch as ptx
from autotune.codegen.opencl.launch import MARK, read_launches
from autotune.errors import BuildError

_DIRECTIVE = re.compile(rb"^[ \t]*#[ \t]*(\w+)", re.MULTILINE)


def object_symbols(data: bytes) -> ObjectSymbols:
    """The symbols of an object; raises BuildError for what is none, or is damaged.

    A source may hold no directives but pragmas, which compilers could otherwise read files for.
    """
    if data.startswith(ptx.MARK.encode()):
        return ObjectSymbols("nvptx64", frozenset(ptx.read_starts(data)), frozenset())
    if not data.startswith(MARK.encode()):
        return read_symbols(data)
    for directive in _DIRECTIVE.findall(data):
        if directive != b"pragma":
            raise BuildError(
                f"OpenCL code with #{directive.decode()[:40]}, which that of this package has not"
            )
    return ObjectSymbols("opencl", frozenset(read_launches(data)), frozenset())


__all__ = ["object_symbols"]
