"""Runners of a schedule's code: the cores of this process, a device, or the interpreter; or nothing here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np

from autotune.errors import TargetError, UsageError
from autotune.runtime.arguments import Signature

if TYPE_CHECKING:
    from autotune.codegen.code import RunnableCode
    from autotune.functions.indices import PlacedLookup
    from autotune.runtime.image import ModuleImage
    from autotune.runtime.module import Module

Arrays = Sequence[Any]


class Runner(Protocol):
    """Runs code on arrays of inputs and outputs, each in order."""

    @property
    def model(self) -> Module:
        """Return the module behind it; raises UsageError or TargetError where there is none."""

    def call(self, inputs: Arrays, outputs: Arrays) -> None:
        """Run once; raises InputError for arrays that do not fit, and for indices out of range."""

    def time(self, inputs: Arrays, repeat: int) -> Any:
        """Return nanoseconds of each run, int64 [repeat]."""


class ModelRunner:
    """Code that a module runs, on the cores of this process or on a device."""

    def __init__(self, model: Module) -> None:
        self.model = model

    def call(self, inputs: Arrays, outputs: Arrays) -> None:
        """Call the module."""
        self.model(*inputs, out=outputs)

    def time(self, inputs: Arrays, repeat: int) -> Any:
        """Time calls of the module."""
        return self.model.time(inputs, repeat=repeat)


class MissingDevice:
    """Code for a device that is not here: it can be read and saved."""

    def __init__(self, image: ModuleImage) -> None:
        self._image = image

    @property
    def model(self) -> NoReturn:
        """Raise TargetError."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        target = self._image.target
        raise TargetError(
            f"{self._image.name!r} was built for {target.cpu or target.name}, and there is no such device here\n"
            f"  function.save(path) writes it for a machine that has one; `autotune devices` lists those there are here"
        )

    def call(self, inputs: Arrays, outputs: Arrays) -> NoReturn:
        """Raise TargetError."""
        self._refuse()

    def time(self, inputs: Arrays, repeat: int) -> NoReturn:
        """Raise TargetError."""
        self._refuse()


class InProcess:
    """Code of a loop program that Python runs."""

    def __init__(
        self, code: RunnableCode, image: ModuleImage, lookups: Sequence[PlacedLookup], runner: str
    ) -> None:
        self._code = code
        self._name = image.name
        self._runner = runner
        self._lookups = lookups
        self._signature = Signature(image.name, image.inputs, image.outputs)

    @property
    def model(self) -> NoReturn:
        """Raise UsageError."""
        raise UsageError(
            f"{self._name!r} was built for {self._runner}, which runs no module: call the function, or build it for "
            "another target"
        )

    def call(self, inputs: Arrays, outputs: Arrays) -> None:
        """Run all kernels in order."""
        given = self._signature.inputs(inputs)
        results, _ = self._signature.given_outputs([*outputs], given)
        arguments = {"input": iter(given[0]), "output": iter(results)}
        memory = [next(arguments[spec.role]) for spec in self._code.buffers if spec.role in arguments]
        memory += self._code.workspaces()
        for number, kernel in enumerate(self._code.kernels):
            for placed in self._lookups:
                if placed.kernel == number:
                    placed.lookup.check(memory[placed.buffer])
            self._code.run(number, [memory[n] for n in kernel.buffers], 0, kernel.tiles)

    def time(self, inputs: Arrays, repeat: int) -> Any:
        """Return the times of calls, after one that is not counted; the interpreter's say nothing of other targets."""
        outputs = self._signature.fresh_outputs()[0]
        times = []
        for _ in range(repeat + 1):
            begin = time.perf_counter_ns()
            self.call(inputs, outputs)
            times.append(time.perf_counter_ns() - begin)
        return np.asarray(times[1:], np.int64)


__all__ = ["InProcess", "MissingDevice", "ModelRunner", "Runner"]
