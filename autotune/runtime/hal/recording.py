"""A model image on a device: code loaded, constants there, and commands recorded for each invocation's own memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.errors import UsageError
from autotune.runtime.cpu.check_rows import subject
from autotune.runtime.cpu.device import HOST_MEMORY
from autotune.runtime.hal.buffer import HOST_SPACE, Buffer, host_buffer
from autotune.runtime.hal.command_buffer import CheckIndices, CommandBuffer, Recorder, Reference, Slot
from autotune.runtime.hal.device import Device
from autotune.runtime.hal.executable import Code, EntryPoint, Executable
from autotune.runtime.image import Binding, ModuleImage
from autotune.runtime.unrolled import unrolled
from autotune.runtime.verify import verify

FORMATS: Mapping[str, str] = {
    "x86_64": "elf",
    "aarch64": "elf",
    "opencl": "opencl-c",
    "nvptx64": "ptx",
}
"""The format of the code of an image, by the architecture of its target."""


@dataclass(frozen=True, eq=False)
class LoadedImage:
    """An image whose code and constants are on a device; recorded any number of times."""

    device: Device
    image: ModuleImage
    executable: Executable
    constants: tuple[Buffer, ...]

    def record(self, label: str = "") -> CommandBuffer:
        """Record one run of the model as commands, with an arena of its own; slots are the inputs, then the outputs.

        Two such may run at the same time; runs of a single one follow each other. Raises DeviceMemoryError.
        """
        return self._recorded(label, [range(len(self.image.commands))])[0]

    def record_each(self, label: str = "") -> list[CommandBuffer]:
        """Return the same in pieces, a kernel each, that have to run one after another; they have one arena."""
        return self._recorded(label, [range(n, n + 1) for n in range(len(self.image.commands))])

    def free(self) -> None:
        """Give the memory of its constants back, once no submission uses it; it is not recorded any more."""
        for buffer in self.constants:
            buffer.free()

    def _recorded(self, label: str, pieces: Sequence[range]) -> list[CommandBuffer]:
        label = label or self.image.name
        arena = self.device.allocate(self.image.arena_bytes, label)
        entries = _entries(self.image)
        found = []
        for piece in pieces:
            recorder, done = self.device.record(label), piece.start
            for number in piece:
                command = self.image.commands[number]
                if number - command.beside > done:
                    recorder.barrier()
                    done = number
                self._check_indices(recorder, number, arena)
                bindings = [self._reference(binding, arena) for binding in command.bindings]
                entry = entries[_key(self.image, number)]
                recorder.dispatch(self.executable, entry, bindings, command.tiles)
            found.append(recorder.finish())
        return found

    def _check_indices(self, recorder: Recorder, command: int, arena: Buffer) -> None:
        for number, check in enumerate(self.image.checks):
            if check.command == command:
                indices = self._reference(check.binding, arena)
                shape = (check.width, check.runs, check.stride, check.count, check.extent)
                recorder.check_indices(CheckIndices(indices, *shape, subject(self.image, number)))

    def _reference(self, binding: Binding, arena: Buffer) -> Reference:
        match binding.space:
            case "input":
                return Slot(binding.index, binding.offset, binding.nbytes)
            case "output":
                return Slot(len(self.image.inputs) + binding.index, binding.offset, binding.nbytes)
            case "constant":
                return self.constants[binding.index].slice(binding.offset, binding.nbytes)
            case "arena":
                return arena.slice(binding.offset, binding.nbytes)


def load_image(device: Device, image: ModuleImage) -> LoadedImage:
    """Put a model's code and constants on a device.

    Constants of a device in this process's memory are not copied. Raises ArtifactError for an inconsistent image,
    UsageError for one of another kind of device, BuildError and DeviceMemoryError.
    """
    verify(image)
    if any(command.guards for command in image.commands):
        raise UsageError(
            f"{image.name!r} has branches of which one runs: they run on this process's cores, not on {device.name}"
        )
    image = unrolled(image)
    arch = image.target.arch
    if arch not in FORMATS:
        raise UsageError(f"no device runs code for {arch}; known: {', '.join(FORMATS)}")
    executable = device.load(Code(FORMATS[arch], image.objects, tuple(_entries(image))))
    if device.space == HOST_SPACE:
        constants = tuple(host_buffer(array, image.name) for array in HOST_MEMORY.constants(image.constants))
    else:
        constants = tuple(device.upload(array, image.name) for array in image.constants)
    return LoadedImage(device, image, executable, constants)


def _entries(image: ModuleImage) -> dict[EntryPoint, int]:
    """Return the entry points of an image, numbered in the order of their first use."""
    found: dict[EntryPoint, int] = {}
    for number in range(len(image.commands)):
        found.setdefault(_key(image, number), len(found))
    return found


def _key(image: ModuleImage, number: int) -> EntryPoint:
    command = image.commands[number]
    dispatch = image.dispatches[command.dispatch]
    return EntryPoint(
        command.object_index,
        command.symbol,
        len(command.bindings),
        command.scratch_bytes,
        dispatch.name,
        dispatch.nodes,
    )


__all__ = ["FORMATS", "LoadedImage", "load_image"]
