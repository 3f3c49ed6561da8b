"""A compiled model as plain values: the compiler makes it, the runtime runs it, artifacts store it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import ml_dtypes  # noqa: F401  (NumPy knows "bfloat16" by name from here on)
import numpy as np
from numpy.typing import NDArray

from autotune.runtime.device import scratch_bytes
from autotune.target import Target

Space = Literal["input", "output", "constant", "arena"]
SPACES: tuple[Space, ...] = ("input", "output", "constant", "arena")

DTYPES = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint64",
    "uint32",
    "uint16",
    "uint8",
    "bool",
)
"""Element types that a tensor of a compiled model may have."""


@dataclass(frozen=True)
class Binding:
    """Memory that one entry of a kernel's pointer table refers to.

    ``index`` says which input, output or constant (0 for the arena); ``offset`` and ``nbytes`` are
    the range in bytes that the kernel may touch there.
    """

    space: Space
    index: int
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Command:
    """One kernel call: ``tiles`` independent tiles of ``symbol`` in object ``object_index``.

    Commands run in order with a barrier between. ``dispatch`` is an index into
    :attr:`ModuleImage.dispatches`; ``scratch_bytes`` is per worker.
    """

    dispatch: int
    object_index: int
    symbol: str
    bindings: tuple[Binding, ...]
    tiles: int
    scratch_bytes: int


@dataclass(frozen=True)
class IndexCheck:
    """Indices that are checked before command ``command`` reads them, for ``dispatch``.

    ``runs`` times ``count`` of them, of ``width`` bytes, lie ``stride`` bytes apart; each must be from ``-extent`` to
    ``extent - 1``, as it chooses an element along ``axis``.
    """

    command: int
    dispatch: int
    binding: Binding
    width: int
    runs: int
    stride: int
    count: int
    extent: int
    axis: int


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape and dtype (a name of :data:`DTYPES`) of a model's input or output."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """Size in bytes, dense row-major."""
        size = int(np.dtype(self.dtype).itemsize)
        for extent in self.shape:
            size *= extent
        return size

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class DispatchInfo:
    """Where the code of a dispatch came from.

    ``schedule_source`` is a value of :class:`autotune.database.State`: ``tuned``, ``default``, ...; ``trace_json`` is
    the schedule itself. ``nodes`` are the names of the model's nodes that it computes. ``flops`` is its arithmetic of
    one run, a multiply-add as two, on elements of ``dtype``; empty where nothing is known of it.
    """

    name: str
    workload_key: str
    kind: str
    schedule_source: str
    trace_json: str
    nodes: tuple[str, ...] = ()
    flops: int = 0
    dtype: str = ""


@dataclass(frozen=True, eq=False)
class ModuleImage:
    """Everything that is needed to run a model: object code, constants and the command list.

    ``arena_bytes`` is the size of the memory for intermediate values, laid out at compile time.
    """

    name: str
    target: Target
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    objects: tuple[bytes, ...]
    constants: tuple[NDArray[Any], ...]
    commands: tuple[Command, ...]
    dispatches: tuple[DispatchInfo, ...]
    arena_bytes: int
    metadata: Mapping[str, str] = field(default_factory=dict)
    checks: tuple[IndexCheck, ...] = ()
    """In the order of their commands."""

    def scratch_bytes(self, workers: int) -> int:
        """Scratch memory of so many workers."""
        return scratch_bytes((command.scratch_bytes for command in self.commands), workers)

    @property
    def stored_bytes(self) -> int:
        """Object files and constants: the artifact, but for its manifest."""
        return sum(map(len, self.objects)) + sum(constant.nbytes for constant in self.constants)

    def same_code(self, other: ModuleImage) -> bool:
        """Whether both execute the same machine code at the same places, whatever schedules it came from."""
        mine, its = (
            (image.objects, image.commands, image.checks, image.arena_bytes) for image in (self, other)
        )
        return mine == its


__all__ = [
    "DTYPES",
    "SPACES",
    "Binding",
    "Command",
    "DispatchInfo",
    "IndexCheck",
    "ModuleImage",
    "Space",
    "TensorSpec",
]
