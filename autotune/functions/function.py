"""From a schedule to a function on NumPy arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.errors import InputError, TargetError, UsageError
from autotune.functions.indices import PlacedLookup, index_checks, placed_lookups
from autotune.rounding import round_up

if TYPE_CHECKING:
    from autotune.codegen.code import BufferSpec, DispatchCode
    from autotune.functions.runners import Runner
    from autotune.functions.sized import SizedFunction
    from autotune.runtime.image import Binding, ModuleImage
    from autotune.runtime.module import Module
    from autotune.schedule.schedule import Schedule
    from autotune.target import Target
    from autotune.te.tensor import Tensor

INTERPRETER = "interpreter"
"""The target of :func:`build` that compiles nothing."""

NUMBA = "numba"
"""The target of :func:`build` that numba compiles."""

_SOURCES = {"nvptx64": ".ptx", "opencl": ".cl", NUMBA: ".py"}
"""Suffix of a file of source, by architecture."""

_ELSEWHERE = (*_SOURCES, INTERPRETER)
"""Architectures of code that is not the processor's own."""

_IN_PROCESS = {INTERPRETER: "the interpreter", NUMBA: "numba"}
"""Architectures of code that Python runs: there is no module of it, and no artifact."""


class Function:
    """Code of a schedule: call it with NumPy arrays for all arguments, in order.

    Outputs are written in place, as in TVM. Raises InputError for an array of the wrong number, shape or dtype, and
    for an index out of range among indices that are data; TargetError where the device that it was built for is not
    here.
    """

    def __init__(self, code: DispatchCode, image: ModuleImage, runner: Runner) -> None:
        self._arguments = [spec for spec in code.buffers if spec.role in ("input", "output")]
        self._inputs = [i for i, spec in enumerate(self._arguments) if spec.role == "input"]
        self._outputs = [i for i, spec in enumerate(self._arguments) if spec.role == "output"]
        self._code = code
        self._image = image
        self._runner = runner
        self.ir = code.ir
        """The text that was compiled: LLVM IR, OpenCL C, Python, or the loops that the interpreter runs."""

    @property
    def target(self) -> Target:
        """The machine or device that the code is for."""
        return self._image.target

    @property
    def source(self) -> str:
        """The code as text: PTX for a GPU of NVIDIA, else what :attr:`ir` is."""
        return self._code.object_code.decode() if self.target.is_nvidia else self.ir

    @property
    def module(self) -> Module:
        """The module behind it, which takes inputs and returns outputs, and can be timed.

        Raises UsageError for numba and the interpreter, TargetError where there is no device to run it.
        """
        return self._runner.model

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an artifact, which :func:`autotune.load` makes a module of on a machine that can run it.

        With the suffix ".ptx", ".cl" or ".py" the source is written. Raises UsageError for a suffix that is another
        target's, for artifacts of numba and the interpreter, and ArtifactError.
        """
        suffix = Path(path).suffix
        if suffix not in _SOURCES.values():
            if self.target.arch in _IN_PROCESS:
                where = _IN_PROCESS[self.target.arch]
                raise UsageError(
                    f"{self._image.name!r} was built for {where}: only code of a machine is saved"
                )
            from autotune.runtime.artifacts import artifact

            artifact.save(self._image, path)
        elif _SOURCES.get(self.target.arch) != suffix:
            raise UsageError(
                f"{path}: {self._image.name!r} has no {suffix} source, it was built for {self.target.name}"
            )
        else:
            Path(path).write_text(self.source)

    def __repr__(self) -> str:
        image = self._image
        call = ", ".join(
            f"{spec.name}: {spec.dtype}[{', '.join(map(str, spec.shape))}]" for spec in self._arguments
        )
        written = ", ".join(self._arguments[i].name for i in self._outputs)
        where = (
            f"target={self.target.arch}"
            if self.target.arch in _ELSEWHERE
            else f"threads={self.target.threads}"
        )
        return f"<Function {image.name!r} ({call}) writes {written}, {where}>"

    def __call__(self, *arrays: Any) -> None:
        """Run once."""
        self._check_number(arrays)
        take = arrays.__getitem__
        self._runner.call(tuple(map(take, self._inputs)), [*map(take, self._outputs)])

    def time(self, *arrays: Any, repeat: int = 10) -> Any:
        """Return nanoseconds of each of ``repeat`` runs, int64 [repeat]."""
        self._check_number(arrays)
        return self._runner.time([arrays[i] for i in self._inputs], repeat)

    def _check_number(self, arrays: Sequence[Any]) -> None:
        if len(arrays) != len(self._arguments):
            names = ", ".join(spec.name for spec in self._arguments)
            raise InputError(f"got {len(arrays)} arrays for the {len(self._arguments)} arguments {names}")


def build(
    schedule: Schedule,
    args: Sequence[Tensor],
    target: Target | str = "host",
    *,
    threads: int | None = None,
    name: str = "main",
) -> Function | SizedFunction:
    """Compile a schedule; ``args`` are its tensors in the order of the call.

    A program with ``te.var`` compiles when it is called, for the sizes of the call; its ``te.var`` may be among
    ``args``.

    ``target`` is a CPU that this machine can stand in for, an OpenCL device ("opencl", "opencl:1"), a GPU of NVIDIA
    ("cuda:sm_90"), "numba", which runs on every system that numba has, or "interpreter": the reference that every other
    target is compared with, which runs any schedule, threads and barriers included, and finds accesses outside of a
    buffer. Code for a device that is not here can be read and saved, not called. Raises TargetError, LoweringError,
    BuildError.
    """
    from autotune.codegen.backend import compile_schedule

    chosen = _target(target, threads)

    def compiled(schedule: Schedule, args: Sequence[Tensor]) -> Function:
        code = compile_schedule(schedule, args, chosen, name=name if chosen.arch == NUMBA else "")
        lookups = placed_lookups(schedule, code)
        image = image_of(code, chosen, name, lookups)
        return Function(code, image, _runner(code, image, lookups))

    if schedule.open_outputs:
        from autotune.functions.sized import SizedFunction

        return SizedFunction(schedule, args, compiled)
    return compiled(schedule, args)


def _target(target: Target | str, threads: int | None) -> Target:
    """Return the target that is named, if code for it can be made here."""
    from autotune.target import Target

    if target == INTERPRETER:
        return Target(INTERPRETER, INTERPRETER, (), 128, cores=1, threads=1)
    if target == NUMBA:
        from autotune.codegen.numba.threads import available

        cores = available()
        if threads is not None and threads > cores:
            raise TargetError(f"numba has {cores} threads here (NUMBA_NUM_THREADS), got threads={threads}")
        return Target(NUMBA, NUMBA, (), 128, cores, cores).with_threads(threads)
    chosen, host = Target.parse(target, threads), Target.detect()
    if chosen.arch in _ELSEWHERE:
        return chosen
    if missing := host.lacks(chosen):
        lacks = f"it lacks {', '.join(missing)}" if chosen.arch == host.arch else f"it is {host.arch}"
        raise TargetError(f"this machine cannot run code for {target!r}: {lacks}; use target='host'")
    return chosen


def _runner(code: DispatchCode, image: ModuleImage, lookups: Sequence[PlacedLookup]) -> Runner:
    """Return the runner of the code, on this machine or one of its devices."""
    from autotune.codegen.code import RunnableCode
    from autotune.functions.runners import InProcess, MissingDevice, ModelRunner

    if isinstance(code, RunnableCode):
        return InProcess(code, image, lookups, _IN_PROCESS[image.target.arch])

    from autotune.runtime.device_code import device_for
    from autotune.runtime.module import Module

    if image.target.group_items and device_for(image.target) is None:
        return MissingDevice(image)
    return ModelRunner(Module(image))


def image_of(
    code: DispatchCode,
    target: Target,
    name: str,
    lookups: Sequence[PlacedLookup] = (),
    *,
    workload: str = "",
) -> ModuleImage:
    """Return a module of one dispatch: its arguments are the module's, workspaces lie one behind the
    other in the arena.

    It checks the indices of ``lookups``; ``workload`` is the key of what it computes.
    """
    from autotune.runtime.image import Command, DispatchInfo, ModuleImage, TensorSpec

    bindings, arena_bytes = _bind(code.buffers)
    specs = {
        role: tuple(TensorSpec(b.name, b.shape, b.dtype) for b in code.buffers if b.role == role)
        for role in ("input", "output")
    }
    return ModuleImage(
        name=name,
        target=target,
        inputs=specs["input"],
        outputs=specs["output"],
        objects=(code.object_code,),
        constants=(),
        commands=tuple(
            Command(0, 0, k.symbol, tuple(bindings[i] for i in k.buffers), k.tiles, k.scratch_bytes)
            for k in code.kernels
        ),
        dispatches=(DispatchInfo(name, workload, "elementwise", "given", ""),),
        arena_bytes=arena_bytes,
        checks=tuple(index_checks(lookups, bindings)),
    )


def _bind(buffers: Sequence[BufferSpec]) -> tuple[list[Binding], int]:
    from autotune.runtime.image import Binding

    bindings, seen, offset = [], {"input": 0, "output": 0}, 0
    for spec in buffers:
        if spec.role in ("input", "output"):
            bindings.append(Binding(spec.role, seen[spec.role], 0, spec.nbytes))
            seen[spec.role] += 1
        else:
            bindings.append(Binding("arena", 0, offset, spec.nbytes))
            offset += round_up(spec.nbytes, 64)
    return bindings, offset


__all__ = ["Function", "build", "image_of"]
