"""Executables: code of a driver's format, loaded on a device, with entry points that dispatches name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class EntryPoint:
    """A kernel: ``symbol`` of object ``object_index``, which gets so many ``bindings``, called as
    :mod:`autotune.codegen.code` says.

    ``scratch_bytes`` is per worker; ``label`` and ``nodes`` name the dispatch and the model's nodes in errors and
    traces.
    """

    object_index: int
    symbol: str
    bindings: int
    scratch_bytes: int = 0
    label: str = ""
    nodes: tuple[str, ...] = ()

    def __str__(self) -> str:
        nodes = f", node {', '.join(self.nodes)}" if self.nodes else ""
        return f"{self.label or self.symbol}{nodes}"


@dataclass(frozen=True)
class Code:
    """Code to load: object files of a ``format`` (``elf``, ``opencl-c``, ``ptx``), and their entry points."""

    format: str
    objects: tuple[bytes, ...]
    entries: tuple[EntryPoint, ...]


@dataclass(frozen=True, eq=False)
class Executable:
    """Code on a device; ``handle`` is the own of its driver."""

    device: str
    entries: tuple[EntryPoint, ...]
    handle: Any


__all__ = ["Code", "EntryPoint", "Executable"]
