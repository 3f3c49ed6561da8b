"""Places of faults: a model of two dependent stages in this process, on two CPU devices, and with OpenCL."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import BuildError, MissingExtraError
from autotune.graph import Graph
from autotune.graph.build import GraphBuilder
from autotune.hardware import usable_cores
from autotune.runtime.artifacts import artifact
from autotune.runtime.cpu.device import Memory
from autotune.runtime.hal.cpu.cores import parts
from autotune.runtime.hal.cpu.driver import open_cores
from autotune.runtime.hal.device import Device
from autotune.runtime.image import ModuleImage
from autotune.runtime.module import Module
from autotune.runtime.programs.device_program import DeviceProgram

ROWS, WIDTH, ASKED = 64, 96, 16
PATIENCE_S = 60.0
"""Nothing here takes nearly so long: what has not ended by then hangs."""

_SCALE = np.linspace(1, 2, WIDTH, dtype=np.float32)

Arrays = tuple[NDArray[Any], ...]


@dataclass(frozen=True)
class Kind:
    """A kind of place: names of its devices, none for a module of this process."""

    name: str
    devices: tuple[str, ...]


def kinds() -> list[Kind]:
    """Those that this machine has."""
    found = [Kind("a module", ())]
    if len(parts()) > 1:
        found.append(Kind("cpu:0 + cpu:1", ("cpu:0", "cpu:1")))
    with_opencl = _opencl()
    return [*found, Kind("cpu:0 + opencl:0", ("cpu:0", "opencl:0"))] if with_opencl else found


def _opencl() -> bool:
    try:
        from autotune.opencl import devices

        return bool(devices())
    except MissingExtraError:
        return False


class Control:
    """Holds runs back while its gate is closed, and lets the next ones fail with the errors that it is given."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self._entered = threading.Semaphore(0)
        self._gate = threading.Event()
        self._gate.set()

    def hold(self) -> None:
        """From now on runs wait when they begin."""
        self._gate.clear()

    def await_one(self) -> None:
        """Return when a run waits there."""
        if not self._entered.acquire(timeout=PATIENCE_S):
            raise AssertionError(f"no run began within {PATIENCE_S:g} s")

    def release(self) -> None:
        """Let them go on."""
        self._gate.set()

    def around(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """The same function under this control."""

        def controlled(*arguments: Any) -> Any:
            if not self._gate.is_set():
                self._entered.release()
                self._gate.wait(PATIENCE_S)
            if self.errors:
                raise self.errors.pop(0)
            return run(*arguments)

        return controlled


class Refusing(Memory):
    """Memory of this process, which is refused as often as ``times`` says."""

    def __init__(self) -> None:
        self.times = 0

    def allocate(self, nbytes: int, use: str) -> NDArray[np.uint8]:
        """Aligned memory; raises BuildError."""
        if self.times:
            self.times -= 1
            raise BuildError(f"there is no memory for {nbytes} bytes: refused for a test")
        return super().allocate(nbytes, use)


@dataclass
class Place:
    """Devices that nobody else has open, and what runs on them.

    ``control`` is that of the second stage, and of all of a module of this process.
    """

    kind: Kind
    devices: dict[str, Device]
    control: Control = field(default_factory=Control)
    memory: Refusing = field(default_factory=Refusing)

    def open(self, *, room: int = 1024) -> Module:
        """The model, ready to run; raises as its constructor does."""
        found = compiled(self.kind.devices)
        if isinstance(found, DeviceProgram):
            return Module(found, devices=self.devices, room=room)
        module = Module(found, memory=self.memory, streams=2, room=room)
        module.loaded._native_call = self.control.around(module.loaded._native_call)
        return module

    def load(self, path: Path, *, check: bool = False) -> Module:
        """The model of an artifact, with constants mapped from the file, at this place."""
        program = artifact.load(path, mapped=True, check=check).cases[0].program
        if program.image is not None:
            return Module(program.image)
        return Module(program, devices=self.devices)

    @property
    def second(self) -> Device:
        """The device of the second stage."""
        return self.devices[self.kind.devices[1]]

    @property
    def live_bytes(self) -> int:
        """Bytes in use on all its devices."""
        found = [
            each
            for d in self.devices.values()
            for each in (d.allocator, d.host_allocator)
            if each is not None
        ]
        return sum(allocator.statistics.live for allocator in found)


@contextmanager
def place(kind: Kind) -> Iterator[Place]:
    """Open the devices of a place, and close them in the end."""
    found = Place(kind, {name: _opened(name) for name in kind.devices})
    try:
        if kind.devices:
            engine = found.second.engine
            engine.run = found.control.around(engine.run)  # type: ignore[method-assign]
        yield found
    finally:
        found.control.release()
        for device in found.devices.values():
            device.close()


def _opened(name: str) -> Device:
    if name.startswith("cpu"):
        return open_cores(name, parts()[int(name.removeprefix("cpu:"))])
    from autotune.runtime.hal.opencl.driver import open_number

    return open_number(name, 0, own_memory=True)  # as GPUs have it


@cache
def _weights() -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal((WIDTH, WIDTH)).astype(np.float32)


def graph() -> Graph:
    """Rows of a product with a constant, looked up by indices; then their softmax, times a constant."""
    b = GraphBuilder("two stages")
    x, i = b.input("x", (ROWS, WIDTH)), b.input("i", (ASKED,), "int64")
    w = b.constant("w", _weights())
    t = b.node("Gather", b.node("MatMul", x, w, name="product"), i, name="rows", axis=0)
    shares = b.node("Softmax", t, name="shares", axis=1)
    return b.graph(b.node("Mul", shares, b.constant("c", _SCALE), name="scaled"))


@cache
def compiled(devices: tuple[str, ...]) -> ModuleImage | DeviceProgram:
    """The same model for a module of this process, or for two devices."""
    import autotune

    if devices:
        placement = {"*": devices[0], "Softmax": devices[1], "Mul": devices[1]}
        with autotune.compile(graph(), placement=placement) as model:
            return model.compiled.cases[0].program
    with autotune.compile(graph(), threads=min(2, usable_cores())) as model:
        return model.image


@cache
def question(number: int) -> Arrays:
    """Inputs of request ``number``."""
    rng = np.random.default_rng(number)
    x = rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
    return x, rng.integers(0, ROWS, ASKED)


def right(number: int, answer: Sequence[NDArray[Any]]) -> bool:
    """Return whether this is the answer to question ``number``, by NumPy."""
    return bool(np.allclose(answer[0], _expected(number), 1e-4, 1e-5))


@cache
def _expected(number: int) -> NDArray[Any]:
    x, i = question(number)
    t = (x.astype(np.float64) @ _weights())[i]
    e = np.exp(t - t.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True) * _SCALE)


__all__ = ["PATIENCE_S", "Arrays", "Control", "Kind", "Place", "kinds", "place", "question", "right"]
