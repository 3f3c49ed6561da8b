"""Commands whose kernels a device times itself, where its driver can."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from autotune.runtime.hal.command_buffer import Command, CommandBuffer

Span = tuple[int, int]


@dataclass(eq=False)
class Timed:
    """Prepared commands; ``spans`` are begin and end of each dispatch of their last run, in order.

    In ns of ``time.monotonic_ns``.
    """

    commands: Sequence[Command]
    spans: list[Span] = field(default_factory=list)


def timed(commands: CommandBuffer) -> tuple[CommandBuffer, Timed] | None:
    """Return the same commands, each kernel timed by the device; None of a device that cannot."""
    if not commands.device.engine.times_kernels:
        return None
    watched = Timed(commands.prepared)
    return replace(commands, prepared=watched), watched


__all__ = ["Span", "Timed", "timed"]
