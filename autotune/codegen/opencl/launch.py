"""OpenCL code as one text: a first line that says how each kernel is started, then the source.

The first line is a comment of OpenCL C, so that the whole text is what the driver compiles.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from autotune.errors import BuildError

MARK = "// autotune opencl "
"""What such code begins with."""

Sizes = tuple[int, int, int]


@dataclass(frozen=True)
class Launch:
    """How a kernel is started.

    ``items`` are the work items of a group, ``groups`` the groups, by dimension; no ``groups`` stand for a work item a
    tile, as many groups as these need. ``local_bytes`` is the local memory of a group. ``buffers`` pairs of arguments
    (memory and an offset in bytes) come first, then the tiles ``begin`` and ``end`` (both ``long``).
    """

    items: Sizes
    groups: Sizes | None
    local_bytes: int
    buffers: int

    def sizes(self, tiles: int) -> tuple[Sizes, Sizes]:
        """Global and local sizes for so many tiles (at least one).

        >>> Launch((64, 1, 1), None, 0, 2).sizes(100)
        ((128, 1, 1), (64, 1, 1))
        """
        groups = self.groups or (-(-tiles // self.items[0]), 1, 1)
        whole = tuple(count * items for count, items in zip(groups, self.items, strict=True))
        return (whole[0], whole[1], whole[2]), self.items


def with_launches(launches: Mapping[str, Launch], source: str) -> str:
    """The text of a source whose kernels are started so."""
    header = {symbol: asdict(launch) for symbol, launch in launches.items()}
    return f"{MARK}{json.dumps(header, sort_keys=True, separators=(',', ':'))}\n{source}"


def read_launches(code: bytes) -> dict[str, Launch]:
    """How the kernels of an object are started, by symbol; raises BuildError for what is no such object."""
    line = code.split(b"\n", 1)[0]
    try:
        if not line.startswith(MARK.encode()):
            raise ValueError("its first line does not say how kernels are started")
        found = json.loads(line[len(MARK) :])
        return {str(symbol): _launch(fields) for symbol, fields in found.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BuildError(f"not OpenCL code of this package: {error}") from error


def _launch(fields: Mapping[str, object]) -> Launch:
    groups = fields["groups"]
    return Launch(
        _sizes(fields["items"]),
        None if groups is None else _sizes(groups),
        _count(fields["local_bytes"]),
        _count(fields["buffers"]),
    )


def _sizes(value: object) -> Sizes:
    if not isinstance(value, list) or len(value) != 3:
        raise ValueError(f"sizes are three numbers, not {value!r}")
    x, y, z = (_count(v) for v in value)
    if min(x, y, z) < 1:
        raise ValueError(f"sizes are positive, not {value!r}")
    return x, y, z


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"expected a number, got {value!r}")
    return value


__all__ = ["MARK", "Launch", "Sizes", "read_launches", "with_launches"]
