"""A program of a model with memory of its own: what one run needs for itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from autotune.codegen.jit import LoadedCode
from autotune.errors import UsageError
from autotune.runtime.cpu.call_record import CallRecord
from autotune.runtime.cpu.calls import CLOSED, RAN, STOPPED, UNATTENDED, WRONG
from autotune.runtime.cpu.check_rows import CheckRows, failed_check, subject
from autotune.runtime.cpu.device import Memory, address_of, allocate
from autotune.runtime.cpu.native import executor
from autotune.runtime.cpu.pool import pool_of
from autotune.runtime.cpu.program import Argument, MovingPointer, Pointer, Program, ProgramBuilder
from autotune.runtime.image import Binding, Guard, ModuleImage


class Instance:
    """An arena, scratch memory for ``threads`` workers and the program that uses them; its runs follow each other.

    ``code`` and ``constants`` are shared by all instances of a module. Calls of its first one take one of ``others``
    that join it where it is in use; each has workers of its own, those of ``stream``.
    """

    def __init__(
        self,
        image: ModuleImage,
        code: LoadedCode,
        constants: Sequence[NDArray[Any]],
        threads: int,
        memory: Memory,
        *,
        stream: int = 0,
        others: int = 0,
    ) -> None:
        self._image = image
        self.threads = threads
        self.pool = pool_of(threads, stream) if stream and threads > 1 else pool_of(threads)
        self._memory = memory
        self._constants = constants
        self._arena = memory.allocate(image.arena_bytes, "intermediate values")
        self._checks = CheckRows(image.checks)
        self.dispatch_of: list[int] = []
        """The dispatch of each recorded command, checks of indices and the borders of repeats among them."""
        self._program: Program | None = self._record(code)
        self._calls = CallRecord(self._program.address, image.inputs, image.outputs, others, image.in_place)
        self.call = self._calls.call

    @property
    def program(self) -> Program:
        """Return the program that it runs; raises UsageError when closed."""
        if self._program is None:
            raise closed(self._image)
        return self._program

    @property
    def closed(self) -> bool:
        """Return whether it runs nothing any more."""
        return self._program is None

    @property
    def short(self) -> bool:
        """Return whether a call since the last look found all instances in use, and there may be more."""
        return self._calls.short

    def join(self, other: Instance) -> bool:
        """Let calls use one more instance, which must live as long; False where there are enough."""
        return self._calls.join(other._calls)

    def attend(self) -> None:
        """Start the workers that are missing."""
        self.pool.start()

    def run(
        self, addresses: Sequence[int], runs: int = 1, times: int = 0, events: int = 0, request: int = 0
    ) -> bool:
        """Run several times on arrays at these addresses, writing to the addresses given.

        ``request`` is the address of a request row, or 0. Returns whether it came to its end: False where the request
        was cancelled. Raises UsageError when closed, InputError for an index out of range.
        """
        outcome = UNATTENDED
        while outcome not in (RAN, STOPPED):
            outcome, index = self._calls.run(addresses, runs, times, events, request)
            if outcome == CLOSED:
                raise closed(self._image)
            if outcome >= WRONG:
                check = outcome - WRONG
                raise failed_check(index, self._image.checks[check].width, subject(self._image, check))
            if outcome == UNATTENDED:
                self.attend()
        return outcome == RAN

    def close(self) -> None:
        """Free its memory, after the run in progress; later runs fail."""
        self._calls.close()
        self._program = None
        self._constants = ()
        self._arena = allocate(0)

    def reset(self) -> None:
        """Forget who runs it: in the child of a fork that thread does not exist."""
        self._calls.reset()

    def _record(self, code: LoadedCode) -> Program:
        """Return the program: resolved symbols, fixed addresses, and patches for the rest."""
        arguments = len(self._image.inputs) + len(self._image.outputs)
        builder = ProgramBuilder(self.threads, self.pool.address, arguments, self._memory)
        checks: dict[int, list[int]] = {}
        for number, check in enumerate(self._image.checks):
            checks.setdefault(check.command, []).append(number)
        starts: list[int] = []
        for index, command in enumerate(self._image.commands):
            for _ in (each for each in self._image.repeats if each.begin == index):
                self.dispatch_of.append(command.dispatch)
                builder.begin_repeat()
            starts.append(len(self.dispatch_of))
            after = starts[index - command.beside]
            for number in checks.get(index, ()):
                self._check_indices(builder, number, after)
            self.dispatch_of.append(command.dispatch)
            address = code.address(command.object_index, command.symbol)
            table = [self._pointer(binding) for binding in command.bindings]
            touched = sum(binding.nbytes for binding in command.bindings)
            builder.dispatch(
                address,
                table,
                command.tiles,
                command.scratch_bytes,
                after=after,
                touched=touched,
                guards=self._guards(command.guards),
            )
            for repeat in (each for each in reversed(self._image.repeats) if each.end == index + 1):
                self.dispatch_of.append(command.dispatch)
                builder.end_repeat(repeat.count, self._guards(repeat.guards))
        return builder.finish(self._checks.memory)

    def _check_indices(self, builder: ProgramBuilder, number: int, after: int) -> None:
        """Record a check; its dispatch need not wait for it, as its kernels clamp what they read."""
        check = self._image.checks[number]
        table = [self._pointer(check.binding), self._checks.address(number)]
        self.dispatch_of.append(check.dispatch)
        tiles, touched = self._checks.tiles(number), check.binding.nbytes
        guards = self._guards(self._image.commands[check.command].guards[: check.guards])
        builder.dispatch(executor().check, table, tiles, 0, after=after, touched=touched, guards=guards)

    def _guards(self, guards: Sequence[Guard]) -> list[tuple[Pointer, int]]:
        return [(self._pointer(guard.binding), guard.wanted) for guard in guards]

    def _pointer(self, binding: Binding) -> Pointer:
        first = self._first(binding)
        return MovingPointer(first, binding.advances) if any(binding.advances) else first

    def _first(self, binding: Binding) -> int | Argument:
        if binding.space == "input":
            return Argument(binding.index, binding.offset)
        if binding.space == "output":
            return Argument(len(self._image.inputs) + binding.index, binding.offset)
        if binding.space == "constant":
            return address_of(self._constants[binding.index]) + binding.offset
        return address_of(self._arena) + binding.offset


def closed(image: ModuleImage) -> UsageError:
    """Return the error for a run of a module that was closed."""
    return UsageError(f"module {image.name!r} is closed")


__all__ = ["Instance", "closed"]
