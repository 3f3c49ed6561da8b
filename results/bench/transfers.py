"""What it takes to bring values to a device: copies, memory that is used in place, and copies beside kernels."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np

from autotune.bench.tables import Table, duration, ratio
from autotune.errors import InternalError, UsageError
from autotune.runtime.device_program import DeviceProgram
from autotune.runtime.hal.buffer import Buffer, host_buffer
from autotune.runtime.hal.command_buffer import CommandBuffer
from autotune.runtime.hal.cpu.cores import core_ids
from autotune.runtime.hal.cpu.driver import open_cores
from autotune.runtime.hal.device import Device
from autotune.runtime.hal.opencl.driver import open_number
from autotune.runtime.hal.opencl.shared import shares_memory
from autotune.runtime.placed_module import PlacedModule
from autotune.runtime.recording import Recording
from autotune.tuning.measure.in_flight import keep_in_flight
from autotune.tuning.random_inputs import random_inputs

SIZES = (64 << 10, 1 << 20, 16 << 20)
_TURNS = 30
_TURN_S = 0.1


@dataclass(frozen=True)
class Moved:
    """Median nanoseconds of bringing bytes to a device and back, from pinned memory too, and of using them in place."""

    nbytes: int
    in_ns: float
    out_ns: float
    pinned_in_ns: float
    pinned_out_ns: float
    place_ns: float


@dataclass
class Mixed:
    """A model on the CPU and OpenCL: nanoseconds of runs, and from answer to answer with several in flight.

    By whether the device has memory of its own. ``beside`` is the share of the time of copies in which a kernel of
    another step ran.
    """

    model: str
    moved_bytes: int
    run_ns: dict[bool, list[float]] = field(default_factory=dict)
    period_ns: dict[bool, list[float]] = field(default_factory=dict)
    beside: float = 0.0


def move(say: Callable[[str], None]) -> list[Moved]:
    """Copies of each size to and from memory of an OpenCL device's own, and what handing memory over in place takes.

    Raises UsageError where there is no OpenCL device that shares this process's memory.
    """
    _check()
    found = []
    with open_number("own", 0, own_memory=True) as own, open_number("shared", 0) as shared:
        for nbytes in SIZES:
            array, there = host_buffer(np.ones(nbytes, np.uint8)), own.allocate(nbytes, "transfers")
            into, out = _timed(own, _copy(own, array, there)), _timed(own, _copy(own, there, array))
            pinned = _pinned(own, nbytes)
            fast_in, fast_out = _timed(own, _copy(own, pinned, there)), _timed(own, _copy(own, there, pinned))
            one = _timed(shared, _touch(shared, array))
            there.free()
            pinned.free()
            found.append(Moved(nbytes, into, out, fast_in, fast_out, one))
            say(
                f"{nbytes >> 10} KiB: {nbytes / into:.1f} GB/s in, {nbytes / out:.1f} out, {one / 1e3:.1f} µs in place"
            )
    return found


def _check() -> None:
    from autotune.opencl import devices

    if not devices() or not shares_memory(0):
        raise UsageError(
            "transfers are compared on an OpenCL device that shares this process's memory, such as PoCL's"
        )


def _pinned(device: Device, nbytes: int) -> Buffer:
    if device.host_allocator is None:
        raise InternalError(f"{device.name} has memory of its own and no pinned memory")
    found = device.host_allocator.allocate(nbytes, "transfers")
    found.host().fill(1)
    return found


def _copy(device: Device, source: Buffer, target: Buffer) -> CommandBuffer:
    recorder = device.record("a copy")
    recorder.copy(source, target)
    return recorder.finish()


def _touch(device: Device, memory: Buffer) -> CommandBuffer:
    recorder = device.record("a touch")
    recorder.fill(memory.slice(0, 8), b"\1")
    return recorder.finish()


def _timed(device: Device, commands: CommandBuffer) -> float:
    """Median nanoseconds of commands in the device's queue."""
    times = list[float]()
    for _ in range(_TURNS):
        submission = device.transfers.submit(commands)
        submission.wait()
        times.append(submission.end_ns - submission.begin_ns)
    return statistics.median(times)


def mixed(model: str, placement: dict[str, str], rounds: int, depth: int = 3) -> Mixed:
    """Runs of a model whose OpenCL device has memory of its own, and of the same where it shares this process's.

    They take turns; answers must be the same bits. Raises as compiling does.
    """
    import autotune

    _check()
    with autotune.compile(model, placement=placement) as compiled:
        if not isinstance(compiled, PlacedModule):
            raise InternalError(f"{model} was not placed by {placement}")
        program = compiled.program
    found = Mixed(model, program.transferred_bytes)
    with ExitStack() as open_:
        modules = {own: _module(program, own, depth, open_) for own in (True, False)}
        inputs = random_inputs(program.inputs, 0)
        arrays = [inputs[spec.name] for spec in program.inputs]
        answers = [module(*arrays) for module in modules.values()]
        if not all(np.array_equal(a, b) for a, b in zip(*answers, strict=True)):
            raise InternalError(f"{model} has other answers where its devices share memory")
        for number in range(rounds):
            for own, module in list(modules.items())[:: 1 if number % 2 else -1]:
                runs = module.time(arrays, warmup=2, repeat=5, min_ns=int(1e9 * _TURN_S))
                found.run_ns.setdefault(own, []).append(float(np.median(runs)))
                requests = max(4, int(1e9 * _TURN_S / found.run_ns[own][-1]))
                period = keep_in_flight(module, arrays, depth, requests).period_ns
                found.period_ns.setdefault(own, []).append(period)
        found.beside = beside(modules[True].recording(arrays, 12, in_flight=depth))
    return found


def _module(program: DeviceProgram, own: bool, depth: int, open_: ExitStack) -> PlacedModule:
    devices = {}
    for name in program.devices:
        opened = (
            open_number(name, 0, own_memory=own)
            if name.startswith("opencl")
            else open_cores(name, core_ids()[:1])
        )
        devices[name] = open_.enter_context(opened)
    return open_.enter_context(PlacedModule(program, devices=devices, in_flight=depth))


def beside(recording: Recording) -> float:
    """The share of the time of copies between devices in which a kernel ran somewhere."""
    copies, kernels = list[tuple[int, int]](), list[tuple[int, int]]()
    for step in recording.steps:
        spans = zip(step.begin_ns.tolist(), step.end_ns.tolist(), strict=True)
        (kernels if step.image is not None else copies).extend(spans)
    total = sum(end - begin for begin, end in copies)
    covered = sum(_covered(span, kernels) for span in copies)
    return covered / total if total else 0.0


def _covered(span: tuple[int, int], others: Sequence[tuple[int, int]]) -> int:
    """How much of a span others cover together."""
    found, at = 0, span[0]
    for begin, end in sorted(others):
        begin, end = max(begin, at), min(end, span[1])
        if end > begin:
            found, at = found + end - begin, end
    return found


def tables(moved: Sequence[Moved], models: Sequence[Mixed]) -> list[Table]:
    """Rates of copies; and models with and without them."""
    rows = tuple(
        (
            f"{each.nbytes >> 10} KiB",
            *(
                f"{duration(ns)}, {each.nbytes / ns:.1f} GB/s"
                for ns in (each.in_ns, each.out_ns, each.pinned_in_ns, each.pinned_out_ns)
            ),
            duration(each.place_ns),
        )
        for each in moved
    )
    rates = Table(
        "A piece of memory",
        ("bytes", "copied to the device", "copied back", "from pinned memory", "back to it", "in place"),
        rows,
        (
            "medians of the time in the device's queue; pinned memory is the driver's own in this process",
            "in place: a command that touches eight bytes of memory, all of which the device can use then",
        ),
    )
    runs = tuple(
        (
            each.model,
            f"{each.moved_bytes / 1024:.0f} KiB",
            *_pair(each.run_ns),
            *_pair(each.period_ns),
            f"{each.beside:.0%}",
        )
        for each in models
    )
    head = (
        "model",
        "moved a run",
        "one at a time: copies",
        "in place",
        "÷",
        "in flight: copies",
        "in place",
        "÷",
    )
    lines = Table(
        "Models on cpu and opencl",
        (*head, "copies beside kernels"),
        runs,
        (
            "medians of rounds that take turns: of one run, and from one answer to the next with three in flight",
            "÷: in place ÷ copies",
            "copies beside kernels: the share of the time of copies between devices, three requests in flight, "
            "in which a kernel ran",
        ),
    )
    return [rates, lines]


def _pair(readings: dict[bool, list[float]]) -> tuple[str, str, str]:
    copies, place = (statistics.median(readings[own]) for own in (True, False))
    return duration(copies), duration(place), ratio(place / copies)


__all__ = ["SIZES", "Mixed", "Moved", "beside", "mixed", "move", "tables"]
