"""Recordings that nobody ran: two dispatches of two workers, on the CPU or beside a device that tells nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.runtime.cpu import layout
from autotune.runtime.image import Binding, Command, DispatchInfo, ModuleImage
from autotune.runtime.recording import Recording, StepRecording
from autotune.target import Target

TARGET = Target.parse("x86-64-v3", threads=2)
CONVOLUTION = DispatchInfo(
    "000_conv", "", "convolution", "tuned", "[]", ("a", "b", "c", "d"), 400_000, "float32"
)
RELU = DispatchInfo("001_relu", "", "elementwise", "default", "[]", ("r",), 0, "float32")


def command(dispatch: int, *bindings: Binding) -> Command:
    """One without code."""
    return Command(dispatch, 0, f"k{dispatch}", bindings, 4, 0)


def image() -> ModuleImage:
    """A convolution in two commands, the second through a workspace, then a relu of its result."""
    x, weights = Binding("input", 0, 0, 4096), Binding("constant", 0, 0, 1024)
    work, result = Binding("arena", 0, 0, 2048), Binding("arena", 0, 2048, 4096)
    commands = (
        command(0, x, weights, work),
        command(0, work, result),
        command(1, result, Binding("output", 0, 0, 4096)),
    )
    return ModuleImage("made_up", TARGET, (), (), (), (), commands, (CONVOLUTION, RELU), 6144)


def rows(*commands: Sequence[tuple[int, int, int, int]]) -> np.ndarray:
    """Event rows of a run: for each command (begin, end, tiles, stolen) of each worker."""
    found = np.zeros((len(commands), len(commands[0]), layout.EVENT_SLOTS), np.int64)
    for command, workers in enumerate(commands):
        for worker, (begin, end, tiles, stolen) in enumerate(workers):
            row = found[command, worker]
            row[layout.BEGIN], row[layout.END], row[layout.BUSY] = begin, end, end - begin
            row[layout.TILES_RUN], row[layout.TILES_STOLEN] = tiles, stolen
    return found


FIRST = rows(
    [(1000, 5000, 2, 0), (1000, 4000, 2, 0)],
    [(5000, 8000, 1, 0), (5000, 9000, 3, 1)],
    [(9000, 10_000, 1, 0), (9000, 9100, 0, 0)],
)
SECOND = FIRST + np.asarray([20_000, 20_000, 0, 0, 0, 0]) * (FIRST[..., :1] > 0)


def on_cpu() -> Recording:
    """Two runs alike on the CPU."""
    events = np.stack([FIRST, SECOND])
    begin, end = np.asarray([1000, 21_000]), np.asarray([10_000, 30_000])
    step = StepRecording(
        "made_up",
        "cpu",
        TARGET,
        image(),
        begin,
        end,
        dispatch_of=(0, 0, 1),
        events=events,
        shares=(0.375, 0.625),
    )
    return Recording("made_up", np.asarray([10_000, 10_000]), (step,))


def on_two_devices() -> Recording:
    """The same, then a transfer to a device of which no more is known than when a step ran."""
    (cpu,) = on_cpu().steps
    device = Target.parse("opencl-generic")
    run_at = np.asarray([0, 20_000])
    move = StepRecording(
        "transfer t", "opencl:0", device, None, 11_000 + run_at, 13_000 + run_at, moved_bytes=4096
    )
    run = StepRecording("run y", "opencl:0", device, image(), 13_000 + run_at, 18_000 + run_at)
    return Recording("made_up", np.asarray([20_000, 20_000]), (cpu, move, run))
