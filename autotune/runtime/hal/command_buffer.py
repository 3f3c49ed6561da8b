"""Command buffers: what a device is to do, recorded and checked once, submitted any number of times.

Commands are frozen records. They begin in the order of recording; a command may rely on what another one wrote only
where a barrier stands between them. Buffers that are not known before the submission are slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autotune.errors import AutotuneError, DeviceClosedError, DeviceError, UsageError
from autotune.runtime.hal.buffer import HOST_SPACE, Allocation, Buffer
from autotune.runtime.hal.errors import again
from autotune.runtime.hal.executable import EntryPoint, Executable

if TYPE_CHECKING:
    from autotune.runtime.hal.device import Device

MOST_TILES = (1 << 63) - 1


@dataclass(frozen=True)
class Slot:
    """``nbytes`` bytes from ``offset`` on in the buffer ``index`` that a submission brings."""

    index: int
    offset: int
    nbytes: int

    def __str__(self) -> str:
        return f"slot {self.index}"


Reference = Buffer | Slot


@dataclass(frozen=True)
class DispatchCommand:
    """Run ``tiles`` tiles of an entry point of an executable on these bindings."""

    executable: Executable
    entry: int
    bindings: tuple[Reference, ...]
    tiles: int

    @property
    def kernel(self) -> EntryPoint:
        """The entry point itself."""
        return self.executable.entries[self.entry]

    def __str__(self) -> str:
        return f"dispatch of {self.kernel}"


@dataclass(frozen=True)
class CheckIndices:
    """Fail unless indices of ``width`` bytes are from ``-extent`` to ``extent - 1``.

    They are ``runs`` times ``count``, ``stride`` bytes apart; ``message`` says what they choose, for errors.
    """

    indices: Reference
    width: int
    runs: int
    stride: int
    count: int
    extent: int
    message: str

    def __str__(self) -> str:
        return f"check of indices, {self.message}"


@dataclass(frozen=True)
class CopyCommand:
    """Copy all bytes of a source to a target of the same size; one of both may be of another device."""

    source: Reference
    target: Reference

    def __str__(self) -> str:
        return f"copy of {self.source} to {self.target}"


@dataclass(frozen=True)
class Fill:
    """Repeat a pattern of 1, 2, 4 or 8 bytes over a target."""

    target: Reference
    pattern: bytes

    def __str__(self) -> str:
        return f"fill of {self.target}"


@dataclass(frozen=True)
class BarrierCommand:
    """Commands behind it begin when all before are done."""

    def __str__(self) -> str:
        return "barrier"


Command = DispatchCommand | CheckIndices | CopyCommand | Fill | BarrierCommand


def references(command: Command) -> tuple[Reference, ...]:
    """Return the memory that a command reads or writes."""
    match command:
        case DispatchCommand():
            return command.bindings
        case CheckIndices():
            return (command.indices,)
        case CopyCommand():
            return (command.source, command.target)
        case Fill():
            return (command.target,)
        case BarrierCommand():
            return ()


def resolved(reference: Reference, table: Sequence[Buffer]) -> Buffer:
    """Return the buffer that a reference means in a submission that brings ``table``."""
    if isinstance(reference, Buffer):
        return reference
    return table[reference.index].slice(reference.offset, reference.nbytes)


@dataclass(frozen=True, eq=False)
class CommandBuffer:
    """Recorded commands for a device; ``slots`` are the bytes that each buffer of a submission has at least.

    ``allocations`` is the memory that they name; ``prepared`` is what the driver made of them.
    """

    name: str
    device: Device
    commands: tuple[Command, ...]
    slots: tuple[int, ...]
    allocations: tuple[Allocation, ...]
    prepared: Any

    def check_table(self, table: Sequence[Buffer]) -> None:
        """Raise UsageError unless a submission brings the right number of buffers, large enough and not freed."""
        if len(table) != len(self.slots):
            raise UsageError(f"{self.name} takes {len(self.slots)} buffers, got {len(table)}")
        for index, (buffer, needed) in enumerate(zip(table, self.slots, strict=True)):
            if buffer.nbytes < needed:
                raise UsageError(f"{self.name}: slot {index} takes {needed} bytes, got a {buffer}")
        for allocation in (*self.allocations, *(buffer.allocation for buffer in table)):
            if allocation.freed:
                raise UsageError(f"{self.name} uses memory that was freed: allocation {allocation.number}")


class Recorder:
    """Records commands for a device; each is checked as it is recorded. ``finish`` freezes them."""

    def __init__(self, device: Device, name: str = "commands") -> None:
        self._device = device
        self._name = name
        self._commands: list[Command] = []
        self._slots: dict[int, int] = {}

    def dispatch(self, executable: Executable, entry: int, bindings: Sequence[Reference], tiles: int) -> None:
        """Run tiles of a kernel. Raises UsageError for an executable, binding or number of tiles that does not fit."""
        name = self._device.name
        if executable.device != name:
            raise self._wrong(f"an executable of {executable.device} cannot run on {name}: load it there")
        if not 0 <= entry < len(executable.entries):
            raise self._wrong(
                f"the executable has {len(executable.entries)} entry points, got number {entry}"
            )
        kernel = executable.entries[entry]
        if len(bindings) != kernel.bindings:
            raise self._wrong(f"{kernel} takes {kernel.bindings} bindings, got {len(bindings)}")
        if not 0 <= tiles <= MOST_TILES:
            raise self._wrong(f"{kernel} runs 0 to 2^63 - 1 tiles, got {tiles}")
        for binding in bindings:
            self._own(binding, str(kernel))
        self._add(DispatchCommand(executable, entry, tuple(bindings), tiles))

    def check_indices(self, check: CheckIndices) -> None:
        """Check indices before a dispatch reads them; its kernels clamp them, so it need not wait."""
        self._own(check.indices, str(check))
        self._add(check)

    def copy(self, source: Reference, target: Reference) -> None:
        """Copy bytes. Raises UsageError for different sizes, or where neither side is of this device."""
        if source.nbytes != target.nbytes:
            raise self._wrong(f"a copy has one size, got {source.nbytes} and {target.nbytes} bytes")
        if _overlap(source, target):
            raise self._wrong(f"{source} and {target} overlap")
        spaces = [each.space for each in (source, target) if isinstance(each, Buffer)]
        if len(spaces) == 2 and not {*spaces} & {self._device.space, HOST_SPACE}:
            raise self._wrong(f"neither {source} nor {target} is of {self._device.name}")
        self._add(CopyCommand(source, target))

    def fill(self, target: Reference, pattern: bytes) -> None:
        """Repeat a pattern. Raises UsageError for one of another size than 1, 2, 4 or 8 bytes, or that does not fit."""
        if len(pattern) not in (1, 2, 4, 8) or target.nbytes % len(pattern):
            raise self._wrong(
                f"a pattern has 1, 2, 4 or 8 bytes and fits a whole number of times: got {len(pattern)} for "
                f"{target.nbytes} bytes"
            )
        self._own(target, "a fill")
        self._add(Fill(target, bytes(pattern)))

    def barrier(self) -> None:
        """Let all that follows wait for all before."""
        self._add(BarrierCommand())

    def finish(self) -> CommandBuffer:
        """Return the commands, ready to be submitted. Raises what the driver does where it cannot run them."""
        if self._device.closed:
            raise DeviceClosedError(f"{self._name}: {self._device.name} is closed")
        used = (
            each for command in self._commands for each in references(command) if isinstance(each, Buffer)
        )
        allocations = {buffer.allocation.number: buffer.allocation for buffer in used}
        slots = tuple(self._slots.get(index, 0) for index in range(max(self._slots, default=-1) + 1))
        commands = tuple(self._commands)
        prepared = self._device.engine.prepare(commands, len(slots))
        return CommandBuffer(self._name, self._device, commands, slots, tuple(allocations.values()), prepared)

    def _own(self, reference: Reference, use: str) -> None:
        if isinstance(reference, Buffer) and reference.space != self._device.space:
            raise self._wrong(f"{use} cannot use {reference} on {self._device.name}: copy it there")

    def _add(self, command: Command) -> None:
        for each in references(command):
            if isinstance(each, Slot):
                if each.index < 0 or each.offset < 0 or each.nbytes < 0:
                    raise self._wrong(f"index, offset and size of a slot are 0 or more, got {each!r}")
                self._slots[each.index] = max(self._slots.get(each.index, 0), each.offset + each.nbytes)
        self._commands.append(command)

    def _wrong(self, text: str) -> UsageError:
        return UsageError(f"{self._name}, command {len(self._commands)}: {text}")


def failed(device: str, name: str, index: int, command: Command, error: BaseException) -> AutotuneError:
    """Return the error of a command, with where it happened: what travels along the timelines."""
    text = f"{error or type(error).__name__}\n  at command {index} of {name} on {device}: {command}"
    if not isinstance(error, AutotuneError):
        return DeviceError(text)
    found = again(error)  # of its kind, with what it knows beside the text
    found.args = (text,)
    return found


def _overlap(one: Reference, other: Reference) -> bool:
    if isinstance(one, Slot) and isinstance(other, Slot):
        same = one.index == other.index
    elif isinstance(one, Buffer) and isinstance(other, Buffer):
        same = one.allocation is other.allocation
    else:
        return False
    return same and one.offset < other.offset + other.nbytes and other.offset < one.offset + one.nbytes


__all__ = [
    "BarrierCommand",
    "CheckIndices",
    "Command",
    "CommandBuffer",
    "CopyCommand",
    "DispatchCommand",
    "Fill",
    "Recorder",
    "Reference",
    "Slot",
    "failed",
    "references",
    "resolved",
]
