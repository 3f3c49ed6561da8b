"""From a schedule to a function on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autotune.errors import InputError, TargetError
from autotune.rounding import round_up

if TYPE_CHECKING:
    from autotune.codegen.code import BufferSpec, DispatchCode
    from autotune.runtime.image import Binding, ModuleImage
    from autotune.runtime.module import Module
    from autotune.schedule.schedule import Schedule
    from autotune.target import Target
    from autotune.te.tensor import Tensor


class Function:
    """Machine code of a schedule: call it with NumPy arrays for all arguments, in order.

    Outputs are written in place, as in TVM. Raises InputError for an array of the wrong number, shape
    or dtype.
    """

    def __init__(self, code: DispatchCode, module: Module) -> None:
        self._arguments = [spec for spec in code.buffers if spec.role in ("input", "output")]
        self._inputs = [i for i, spec in enumerate(self._arguments) if spec.role == "input"]
        self._outputs = [i for i, spec in enumerate(self._arguments) if spec.role == "output"]
        self._module = module
        self.ir = code.ir
        """The LLVM IR that was compiled."""

    @property
    def module(self) -> Module:
        """The module behind it, which takes inputs and returns outputs, and can be timed."""
        return self._module

    def __repr__(self) -> str:
        image = self._module.image
        call = ", ".join(
            f"{spec.name}: {spec.dtype}[{', '.join(map(str, spec.shape))}]" for spec in self._arguments
        )
        written = ", ".join(self._arguments[i].name for i in self._outputs)
        return f"<Function {image.name!r} ({call}) writes {written}, threads={self._module.threads}>"

    def __call__(self, *arrays: Any) -> None:
        """Run once."""
        self._check_number(arrays)
        take = arrays.__getitem__
        self._module.call(tuple(map(take, self._inputs)), [*map(take, self._outputs)])

    def time(self, *arrays: Any, repeat: int = 10) -> Any:
        """Nanoseconds of each of ``repeat`` runs, int64 [repeat]."""
        self._check_number(arrays)
        return self._module.time([arrays[i] for i in self._inputs], repeat=repeat)

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
) -> Function:
    """Compile a schedule for this machine; ``args`` are its tensors in the order of the call.

    ``target`` must be one that this machine can run. Raises TargetError, LoweringError, BuildError.
    """
    from autotune.codegen.backend import compile_schedule
    from autotune.runtime.module import Module
    from autotune.target import Target

    chosen = Target.parse(target, threads)
    host = Target.detect()
    if missing := host.lacks(chosen):
        lacks = f"it lacks {', '.join(missing)}" if chosen.arch == host.arch else f"it is {host.arch}"
        raise TargetError(f"this machine cannot run code for {target!r}: {lacks}; use target='host'")
    code = compile_schedule(schedule, args, chosen)
    return Function(code, Module(image_of(code, chosen, name)))


def image_of(code: DispatchCode, target: Target, name: str) -> ModuleImage:
    """A module of one dispatch: its arguments are the module's, workspaces lie one behind the other in the arena."""
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
        dispatches=(DispatchInfo(name, "", "elementwise", "given", ""),),
        arena_bytes=arena_bytes,
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
