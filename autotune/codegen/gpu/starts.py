"""Code for devices as one text: a first line that says how each kernel is started, then what the driver compiles.

The line is a comment in every language of :data:`LANGUAGES`, so that the whole text is what a driver gets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from autotune.codegen.code import Launch, Size
from autotune.errors import BuildError

LANGUAGES = {"ptx": "PTX", "opencl": "OpenCL C"}
"""The language of such code, by the word in its first line."""

_MARK = "// autotune {} "


@dataclass(frozen=True)
class Start:
    """The start of a kernel: its launch, and the number of buffers that it takes."""

    launch: Launch
    buffers: int


def with_starts(language: str, starts: Mapping[str, Start], text: str) -> bytes:
    """Return the code of kernels that are started so.

    >>> with_starts("ptx", {"k": Start(Launch(None, (64, 1, 1)), 2)}, "...")
    b'// autotune ptx {"k":{"buffers":2,"launch":{"block":[64,1,1],"grid":null}}}\\n...'
    """
    header = {symbol: asdict(start) for symbol, start in starts.items()}
    described = json.dumps(header, sort_keys=True, separators=(",", ":"))
    return f"{_MARK.format(language)}{described}\n{text}".encode()


def language_of(code: bytes) -> str | None:
    """Return the word for the language of such code; None for other code."""
    return next((word for word in LANGUAGES if code.startswith(_MARK.format(word).encode())), None)


def read_starts(code: bytes, language: str) -> dict[str, Start]:
    """Read the starts of the kernels of an object, by symbol; raises BuildError for what is no such object."""
    line = code.split(b"\n", 1)[0]
    try:
        if language_of(line) != language:
            raise ValueError("its first line does not say how kernels are started")
        found = json.loads(line[len(_MARK.format(language)) :])
        return {str(symbol): _start(fields) for symbol, fields in found.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BuildError(f"not {LANGUAGES[language]} of this package: {error}") from error


def _start(fields: Mapping[str, object]) -> Start:
    launch = fields["launch"]
    if not isinstance(launch, dict):
        raise TypeError("a launch is a grid and a block")
    grid = launch["grid"]
    return Start(
        Launch(None if grid is None else _size(grid), _size(launch["block"])),
        _count(fields["buffers"], least=0),
    )


def _size(value: object) -> Size:
    if not isinstance(value, list) or len(value) != 3:
        raise TypeError(f"a size has three numbers, not {value!r}")
    return _count(value[0]), _count(value[1]), _count(value[2])


def _count(value: object, least: int = 1) -> int:
    if type(value) is not int or value < least:
        raise TypeError(f"{value!r} is no count")
    return value


__all__ = ["LANGUAGES", "Start", "language_of", "read_starts", "with_starts"]
