"""The engine of CPU devices: memory of this process, and kernels that the native executor runs on a pool of workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.codegen.jit import LoadedCode
from autotune.runtime.cpu.device import allocate_pages
from autotune.runtime.cpu.pool import ThreadPool, pool_of, stay_on
from autotune.runtime.hal.buffer import Buffer
from autotune.runtime.hal.command_buffer import BarrierCommand, Command, CopyCommand, Fill, failed, resolved
from autotune.runtime.hal.cpu.segment import Segment
from autotune.runtime.hal.engine import Stopped
from autotune.runtime.hal.executable import Code
from autotune.runtime.hal.slowdown import slowed


@dataclass(frozen=True, eq=False)
class MappedCode:
    """The handle of an executable: its code, mapped as long as this is alive, and the addresses of its entry points."""

    code: LoadedCode
    addresses: list[int]


class CpuEngine:
    """Cores with workers; where ``cores`` are given, workers and queues stay on them and the pool is its own.

    For tests, all that runs may be made to take ``slowdown`` times as long.
    """

    formats: tuple[str, ...] = ("elf",)
    pinned = None
    times_kernels = False  # its segments say more

    def __init__(self, name: str, workers: int, cores: tuple[int, ...], slowdown: float = 1.0) -> None:
        self._name = name
        self._slowdown = slowdown
        self._cores = cores
        self.pool = ThreadPool(workers, cores) if cores else pool_of(workers)

    def allocate(self, nbytes: int) -> NDArray[np.uint8]:
        """Return the aligned memory; raises BuildError."""
        return allocate_pages(nbytes)

    def release(self, storage: NDArray[np.uint8]) -> None:
        """Release it: it goes back to the system with its last reference."""

    def host_view(self, storage: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the block itself, which the host reads in place."""
        return storage

    def load(self, code: Code) -> MappedCode:
        """Return the entry points; raises BuildError."""
        mapped = LoadedCode(code.objects)
        return MappedCode(
            mapped, [mapped.address(entry.object_index, entry.symbol) for entry in code.entries]
        )

    def prepare(
        self, commands: Sequence[Command], slots: int
    ) -> list[tuple[int, Segment | CopyCommand | Fill]]:
        """Return kernels that follow each other become one program; each step with the number of its first command."""
        steps: list[tuple[int, Segment | CopyCommand | Fill]] = []
        open_segment: Segment | None = None
        for index, command in enumerate(commands):
            if isinstance(command, (CopyCommand, Fill)):
                steps.append((index, command))
                open_segment = None
            elif isinstance(command, BarrierCommand):
                if open_segment is not None:
                    open_segment.barrier()
            else:
                if open_segment is None:
                    open_segment = Segment(self.pool)
                    steps.append((index, open_segment))
                open_segment.add(index, command)
        for _, step in steps:
            if isinstance(step, Segment):
                step.finish()
        return steps

    def run(self, name: str, prepared: Any, table: Sequence[Buffer], stopped: Stopped) -> bool:
        """Return the step by step; False when stopped between two."""
        return slowed(self._slowdown, lambda: self._run(name, prepared, table, stopped))

    def _run(self, name: str, prepared: Any, table: Sequence[Buffer], stopped: Stopped) -> bool:
        for index, step in prepared:
            if stopped():
                return False
            if isinstance(step, Segment):
                step.run(name, self._name, table)
                continue
            try:
                _move(step, table)
            except Exception as error:
                raise failed(self._name, name, index, step, error) from error
        return True

    def enter_thread(self) -> None:
        """Bind a queue's thread, which is worker 0 of what it runs, to the device's cores."""
        stay_on(self._cores)

    def close(self) -> None:
        """End the workers, unless all devices share them; code goes with its executables."""
        if self._cores:
            self.pool.stop()


def _move(step: CopyCommand | Fill, table: Sequence[Buffer]) -> None:
    target = resolved(step.target, table).host()
    if isinstance(step, CopyCommand):
        np.copyto(target, resolved(step.source, table).host())
    else:
        target.view(f"u{len(step.pattern)}")[...] = np.frombuffer(step.pattern, f"u{len(step.pattern)}")


__all__ = ["CpuEngine"]
