"""The interface of every compiled model, wherever it runs: of Module and PlacedModule."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NoReturn, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.runtime.image import DispatchInfo, TensorSpec
from autotune.runtime.recording import Recording
from autotune.runtime.request import Request

Inputs = Sequence[Any] | Mapping[str, Any]


@runtime_checkable
class CompiledModel(Protocol):
    """A model ready to run: what :func:`autotune.compile` and :func:`autotune.load` return.

    A :class:`autotune.Module` runs on the cores of this process, a PlacedModule on the devices that its program names;
    code that takes either takes this. Any thread may call.
    """

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Return the inputs of a call, in order."""

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Return the outputs of a call, in order."""

    @property
    def dispatches(self) -> tuple[DispatchInfo, ...]:
        """The parts of the model that were compiled as one."""

    @property
    def threads(self) -> int:
        """Workers, those of all its devices."""

    def __call__(self, *arrays: Any, out: Sequence[NDArray[Any]] | None = None) -> list[NDArray[Any]]:
        """Run the model; returns its outputs in order, freshly allocated unless ``out`` is given."""

    def run(self, inputs: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Run the model by name."""

    def submit(
        self, *arrays: Any, timeout: float | None = None, deadline: float | None = None
    ) -> Request[list[NDArray[Any]]]:
        """Run the model in the background: a future that can be awaited and cancelled.

        It waits for room at most ``timeout`` seconds; a request that has not ended ``deadline`` seconds after the call
        fails. Both end with DeviceTimeoutError.
        """

    def submit_all(
        self,
        requests: Iterable[Sequence[Any]],
        *,
        timeout: float | None = None,
        deadline: float | None = None,
    ) -> list[Request[list[NDArray[Any]]]]:
        """Return the same for several requests, each with its arrays."""

    def time(
        self, inputs: Inputs, *, warmup: int = 1, repeat: int = 10, min_ns: int = 0
    ) -> NDArray[np.int64]:
        """Return nanoseconds of each run."""

    def recording(self, inputs: Inputs, runs: int = 1) -> Recording:
        """Return runs with what every worker did: what a profile or a trace is made of."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file that :func:`autotune.load` reads."""

    def close(self) -> None:
        """Free its memory; later calls fail."""

    def __enter__(self) -> Self:
        """Use it until the end of a block."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""


def refuse_pickling(module: object, _protocol: object = None) -> NoReturn:
    """Raise UsageError: the ``__reduce_ex__`` of what holds machine code, threads and memory of this process."""
    raise UsageError(
        f"a {type(module).__name__} cannot be pickled or copied: it holds machine code and memory of this process\n"
        "  write it by module.save(path), and autotune.load(path) where it is needed"
    )


__all__ = ["CompiledModel", "Inputs", "refuse_pickling"]
