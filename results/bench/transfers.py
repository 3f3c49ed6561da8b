"""The cost of bringing values to a device: copies, memory used in place, and copies concurrent with kernels."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial

import numpy as np

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView, at, over
from autotune.bench.interleaved import interleaved
from autotune.bench.tables import duration, number, percent, ratio
from autotune.errors import InternalError, UsageError
from autotune.runtime.hal.buffer import Buffer, host_buffer
from autotune.runtime.hal.command_buffer import CommandBuffer
from autotune.runtime.hal.cpu.cores import core_ids
from autotune.runtime.hal.cpu.driver import open_cores
from autotune.runtime.hal.device import Device
from autotune.runtime.hal.opencl.driver import open_number
from autotune.runtime.hal.opencl.shared import shares_memory
from autotune.runtime.module import Module
from autotune.runtime.programs.device_program import DeviceProgram
from autotune.runtime.random_inputs import random_inputs
from autotune.runtime.recording import Recording
from autotune.tuning.measure.in_flight import keep_in_flight

SIZES = (64 << 10, 1 << 20, 16 << 20)
_TURNS = 30
_TURN_S = 0.1


MODELS = ("zoo:tiny_cnn", "zoo:squeezenet", "zoo:mobilenetv2")
PLACEMENT = {"Conv": "opencl:0", "*": "cpu:0"}
COPIES, IN_PLACE = "copies", "in place"
"""The ways: whether the device has memory of its own."""


def move(say: Say) -> Iterator[Record]:
    """Copies of each size to and from memory of an OpenCL device's own, and what handing memory over in place takes.

    Raises UsageError where there is no OpenCL device that shares this process's memory.
    """
    _check()
    with open_number("own", 0, own_memory=True) as own, open_number("shared", 0) as shared:
        for nbytes in SIZES:
            array, there = host_buffer(np.ones(nbytes, np.uint8)), own.allocate(nbytes, "transfers")
            into, out = _timed(own, _copy(own, array, there)), _timed(own, _copy(own, there, array))
            pinned = _pinned(own, nbytes)
            fast_in, fast_out = _timed(own, _copy(own, pinned, there)), _timed(own, _copy(own, there, pinned))
            one = _timed(shared, _touch(shared, array))
            there.free()
            pinned.free()
            say(
                f"{nbytes >> 10} KiB: {nbytes / into:.1f} GB/s in, {nbytes / out:.1f} out, {one / 1e3:.1f} µs in place"
            )
            yield {
                "bytes": nbytes,
                "in_ns": into,
                "out_ns": out,
                "pinned_in_ns": fast_in,
                "pinned_out_ns": fast_out,
                "place_ns": one,
            }


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


def mixed(model: str, placement: dict[str, str], rounds: int, depth: int = 3) -> list[Record]:
    """Measure a model whose OpenCL device has memory of its own, interleaved with one that shares this process's.

    Answers must be the same bits. A record has nanoseconds of runs, and from answer to answer with several in flight;
    ``beside`` is the share of the time of copies in which a kernel of another step ran. Raises as compiling does.
    """
    import autotune

    _check()
    with autotune.compile(model, placement=placement) as compiled:
        if compiled.in_flight == 1:
            raise InternalError(f"{model} was not placed by {placement}")
        program = compiled.compiled.cases[0].program
    with ExitStack() as open_:
        modules = {way: _module(program, way == COPIES, depth, open_) for way in (COPIES, IN_PLACE)}
        inputs = random_inputs(program.inputs, 0)
        arrays = [inputs[spec.name] for spec in program.inputs]
        answers = [module(*arrays) for module in modules.values()]
        if not all(np.array_equal(a, b) for a, b in zip(*answers, strict=True)):
            raise InternalError(f"{model} has other answers where its devices share memory")

        def turn(module: Module) -> tuple[float, float]:
            runs = float(np.median(module.time(arrays, warmup=2, repeat=5, min_ns=int(1e9 * _TURN_S))))
            return runs, keep_in_flight(module, arrays, depth, max(4, int(1e9 * _TURN_S / runs))).period_ns

        found: dict[str, list[tuple[float, float]]] = {way: [] for way in modules}
        for _, way, times in interleaved({way: partial(turn, each) for way, each in modules.items()}, rounds):
            found[way].append(times)
        share = beside(modules[COPIES].recording(arrays, 12, in_flight=depth))
    about = {"model": model, "moved_bytes": program.transferred_bytes, "beside": share}
    return [
        {
            **about,
            "way": way,
            "run_ns": statistics.median(run for run, _ in times),
            "period_ns": statistics.median(period for _, period in times),
        }
        for way, times in found.items()
    ]


def _module(program: DeviceProgram, own: bool, depth: int, open_: ExitStack) -> Module:
    devices = {}
    for name in program.devices:
        opened = (
            open_number(name, 0, own_memory=own)
            if name.startswith("opencl")
            else open_cores(name, core_ids()[:1])
        )
        devices[name] = open_.enter_context(opened)
    return open_.enter_context(Module(program, devices=devices, in_flight=depth))


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
    """Return how much of a span others cover together."""
    found, at = 0, span[0]
    for begin, end in sorted(others):
        begin, end = max(begin, at), min(end, span[1])
        if end > begin:
            found, at = found + end - begin, end
    return found


def measure(say: Say, models: Sequence[str], rounds: int) -> Iterator[Sequence[Record]]:
    """Yield a record for each size of memory, then those of one model after the other."""
    yield list(move(say))
    for name in models or MODELS:
        say(name)
        yield mixed(name, PLACEMENT, rounds)


ABOUT = (
    "What it takes to bring values to an OpenCL device that is a processor of this machine: copies to memory of its "
    "own, as a GPU needs them, and this process's memory used in place, as such a device has it. Models run their "
    "convolutions there and all else on a CPU device of one core, both ways interleaved, with the same bits as answers."
)


def _moved(column: str) -> Callable[[FrameRows], str]:
    def read(rows: FrameRows) -> str:
        ns = rows.get(column)
        return f"{duration(ns)}, {rows.get('bytes') / ns:.1f} GB/s"

    return read


def _pair(column: str, name: str) -> tuple[Column, ...]:
    copies, place = (at(column, way=way) for way in (COPIES, IN_PLACE))
    return (
        Column(f"{name}: copies", copies, duration),
        Column("in place", place, duration),
        Column("÷", over(place, copies), ratio),
    )


EXPERIMENT = Experiment(
    title="Transfers",
    about=ABOUT,
    summary="Measure copies to a device and memory used in place; MODELS are ONNX files or zoo:NAME.",
    example="zoo:squeezenet -o results/transfers.md",
    options=(options.words("models"), options.number("--rounds", 10, "Turns of each way.")),
    measure=measure,
    views=(
        TableView(
            "A piece of memory",
            ("bytes",),
            (
                Column("bytes", "bytes", number(0, " KiB", 1024)),
                Column("copied to the device", _moved("in_ns")),
                Column("copied back", _moved("out_ns")),
                Column("from pinned memory", _moved("pinned_in_ns")),
                Column("back to it", _moved("pinned_out_ns")),
                Column("in place", "place_ns", duration),
            ),
            where=lambda rows: rows.get("bytes"),
            notes=(
                "medians of the time in the device's queue; pinned memory is the driver's own in this process",
                "in place: a command that touches eight bytes of memory, all of which the device can use then",
            ),
        ),
        TableView(
            "Models on cpu and opencl",
            ("model",),
            (
                Column("model", "model"),
                Column("moved a run", "moved_bytes", number(0, " KiB", 1024)),
                *_pair("run_ns", "one at a time"),
                *_pair("period_ns", "in flight"),
                Column("copies beside kernels", "beside", percent(unit="%")),
            ),
            where=lambda rows: rows.get("model"),
            notes=(
                "medians of interleaved rounds: of one run, and from one answer to the next with three in flight",
                "÷: in place ÷ copies",
                "copies beside kernels: the share of the time of copies between devices, three requests in flight, "
                "in which a kernel ran",
            ),
        ),
    ),
)

__all__ = ["COPIES", "EXPERIMENT", "IN_PLACE", "SIZES", "beside", "mixed", "move"]
