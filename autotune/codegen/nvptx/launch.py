"""PTX with a first line, a comment to the driver, that says how each kernel is started."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from autotune.codegen.code import Launch, Size
from autotune.errors import BuildError

MARK = "// autotune ptx "
"""What such code begins with."""


@dataclass(frozen=True)
class Start:
    """How a kernel is started: its launch, and how many addresses of buffers it takes."""

    launch: Launch
    buffers: int


def with_starts(starts: Mapping[str, Start], ptx: str) -> bytes:
    """The code of kernels that are started so."""
    header = {symbol: asdict(start) for symbol, start in starts.items()}
    return f"{MARK}{json.dumps(header, sort_keys=True, separators=(',', ':'))}\n{ptx}".encode()


def read_starts(code: bytes) -> dict[str, Start]:
    """How the kernels of an object are started, by symbol; raises BuildError for what is no such object."""
    line = code.split(b"\n", 1)[0]
    try:
        if not line.startswith(MARK.encode()):
            raise ValueError("its first line does not say how kernels are started")
        found = json.loads(line[len(MARK) :])
        return {str(symbol): _start(fields) for symbol, fields in found.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BuildError(f"not PTX of this package: {error}") from error


def _start(fields: Mapping[str, object]) -> Start:
    launch = fields["launch"]
    if not isinstance(launch, dict):
        raise TypeError("a launch is a grid and a block")
    return Start(Launch(_size(launch["grid"]), _size(launch["block"])), _count(fields["buffers"], least=0))


def _size(value: object) -> Size:
    if not isinstance(value, list) or len(value) != 3:
        raise TypeError("a size has three numbers")
    return _count(value[0]), _count(value[1]), _count(value[2])


def _count(value: object, least: int = 1) -> int:
    if type(value) is not int or value < least:
        raise TypeError(f"{value!r} is no count")
    return value


__all__ = ["MARK", "Start", "read_starts", "with_starts"]
