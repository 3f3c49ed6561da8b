"""A compiled model as plain values: the compiler makes it, the runtime runs it, artifacts store it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import ml_dtypes  # noqa: F401  (NumPy knows "bfloat16" by name from here on)
import numpy as np
from numpy.typing import NDArray

from autotune.runtime.cpu.device import scratch_bytes
from autotune.target import ITEM_BYTES, Target

Space = Literal["input", "output", "constant", "arena"]
SPACES: tuple[Space, ...] = ("input", "output", "constant", "arena")

READ_ONLY: tuple[Space, ...] = ("input", "constant")

DTYPES = tuple(ITEM_BYTES)
"""Element types that a tensor of a compiled model may have."""


@dataclass(frozen=True)
class Binding:
    """Memory that one entry of a kernel's pointer table refers to.

    ``index`` says which input, output or constant (0 for the arena); ``offset`` and ``nbytes`` are
    the range in bytes that the kernel may touch there. Where there is a ``period``, of each so many bytes of the range
    it touches the first ``run`` only. It is where it is first: each time that a repeat around its command goes on it is
    so many bytes further as ``advances`` has for that, the outermost first.
    """

    space: Space
    index: int
    offset: int
    nbytes: int
    period: int = 0
    run: int = 0
    advances: tuple[int, ...] = ()

    def at(self, times: Sequence[int]) -> Binding:
        """Return where it is when the repeats around have gone on so many times."""
        ahead = sum(step * count for step, count in zip(self.advances, times, strict=False))
        return replace(self, offset=self.offset + ahead, advances=())

    def swept(self, counts: Sequence[int]) -> Binding:
        """Return all of where it ever is, of repeats of so many times."""
        last = [step * (count - 1) for step, count in zip(self.advances, counts, strict=False)]
        if not any(last):
            return replace(self, advances=())
        back, ahead = sum(min(each, 0) for each in last), sum(max(each, 0) for each in last)
        return Binding(self.space, self.index, self.offset + back, self.nbytes + ahead - back)

    def meets(self, other: Binding) -> bool:
        """Return whether both may touch the same byte.

        >>> a, b = Binding("arena", 0, 0, 160, 64, 32), Binding("arena", 0, 32, 160, 64, 32)
        >>> a.meets(a), a.meets(b), a.meets(Binding("arena", 0, 32, 160))
        (True, False, True)
        """
        if (self.space, self.index) != (other.space, other.index):
            return False
        if self.offset >= other.offset + other.nbytes or other.offset >= self.offset + self.nbytes:
            return False
        if not self.period or self.period != other.period:
            return True
        ahead = (other.offset - self.offset) % self.period
        return ahead < self.run or self.period - ahead < other.run


@dataclass(frozen=True)
class Guard:
    """A boolean of one byte that a command depends on: it runs only if that is ``wanted``, 0 or 1."""

    binding: Binding
    wanted: int


@dataclass(frozen=True)
class Command:
    """One kernel call: ``tiles`` independent tiles of ``symbol`` in object ``object_index``.

    Commands begin in order; one starts when all before it are done, but for the last ``beside`` of them. ``dispatch``
    is an index into :attr:`ModuleImage.dispatches`; ``scratch_bytes`` is per worker; ``writes`` are the positions of
    the bindings that it may write to, and where there are none, all that are no inputs or constants. It runs only if
    all its ``guards`` say so, which it reads like its bindings.
    """

    dispatch: int
    object_index: int
    symbol: str
    bindings: tuple[Binding, ...]
    tiles: int
    scratch_bytes: int
    writes: tuple[int, ...] = ()
    beside: int = 0
    guards: tuple[Guard, ...] = ()

    @property
    def written(self) -> tuple[Binding, ...]:
        """Return the memory that it may write to."""
        if self.writes:
            return tuple(self.bindings[position] for position in self.writes)
        return tuple(binding for binding in self.bindings if binding.space not in READ_ONLY)


@dataclass(frozen=True)
class RepeatedCommands:
    """Commands from ``begin`` to before ``end``, which run ``count`` times, or as long as all ``guards`` hold when they
    are through. Nothing outside of them runs beside them, and each time begins when the one before is done."""

    begin: int
    end: int
    count: int
    guards: tuple[Guard, ...] = ()


@dataclass(frozen=True)
class IndexCheck:
    """Indices that are checked before command ``command`` reads them, for ``dispatch``.

    ``runs`` times ``count`` of them, of ``width`` bytes, lie ``stride`` bytes apart; each must be from ``-extent`` to
    ``extent - 1``, as it chooses an element along ``axis``. Only the first ``guards`` of the command's decide whether
    it is made. With a ``refusal`` it is no index, but a boolean of one byte that must not be true: the error says this.
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
    guards: int = 0
    refusal: str = ""


@dataclass(frozen=True)
class BoundInPlace:
    """The number of an output whose memory may be that of an input: all of it, which is of the same size."""

    output: int
    input: int


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
    """The origin of a dispatch's code.

    ``schedule_source`` is a value of :class:`autotune.database.State`: ``tuned``, ``default``, ...; ``trace_json`` is
    the schedule itself. ``nodes`` are the names of the model's nodes that it computes. ``flops`` is its arithmetic in
    one run of the model, a multiply-add as two, on elements of ``dtype``; empty where nothing is known of it.
    ``runs`` is how many times a run of the model is expected to run it.
    """

    name: str
    workload_key: str
    kind: str
    schedule_source: str
    trace_json: str
    nodes: tuple[str, ...] = ()
    flops: int = 0
    dtype: str = ""
    runs: int = 1

    @property
    def is_tuned(self) -> bool:
        """Return whether its schedule, or its algorithm, was confirmed faster than the default."""
        return self.schedule_source == "tuned"


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
    repeats: tuple[RepeatedCommands, ...] = ()
    """In the order of their first commands, those inside of others behind these."""
    in_place: tuple[BoundInPlace, ...] = ()
    """Outputs that a call may give the memory of inputs."""

    def scratch_bytes(self, workers: int) -> int:
        """Return scratch memory of so many workers."""
        return scratch_bytes((command.scratch_bytes for command in self.commands), workers)

    @property
    def stored_bytes(self) -> int:
        """Object files and constants: the artifact, but for its manifest."""
        return sum(map(len, self.objects)) + sum(constant.nbytes for constant in self.constants)

    def repeats_around(self, command: int) -> tuple[RepeatedCommands, ...]:
        """Return the repeats that a command is in, the outermost first."""
        return tuple(each for each in self.repeats if each.begin <= command < each.end)

    def without_refusals(self) -> ModuleImage:
        """Return the image that refuses no branch: times do not depend on what random inputs choose."""
        return replace(self, checks=tuple(check for check in self.checks if not check.refusal))

    def same_code(self, other: ModuleImage) -> bool:
        """Return whether both execute the same machine code at the same places, whatever schedules it came from."""
        mine, its = (
            (image.objects, image.commands, image.checks, image.repeats, image.arena_bytes)
            for image in (self, other)
        )
        return mine == its


def largest_input(growth: float) -> float:
    """Return the largest magnitude in float32 for which algorithms are that enlarge what they compute so many times."""
    return float(np.finfo(np.float32).max) / growth


__all__ = [
    "DTYPES",
    "READ_ONLY",
    "SPACES",
    "Binding",
    "BoundInPlace",
    "Command",
    "DispatchInfo",
    "Guard",
    "IndexCheck",
    "ModuleImage",
    "RepeatedCommands",
    "Space",
    "TensorSpec",
    "largest_input",
]
