"""A compiled model ready to run: what all of them can do, wherever they run and whatever sizes they take."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.runtime.image import DispatchInfo, TensorSpec
from autotune.runtime.recording import Recording
from autotune.runtime.requests.request import Request

if TYPE_CHECKING:
    from autotune.runtime.compiled import Compiled, SizedTensor

Inputs: TypeAlias = Sequence[Any] | Mapping[str, Any]
Results: TypeAlias = list[NDArray[Any]]
MAX_RUNS = 1_000_000


def refuse_pickling(module: object, _protocol: object = None) -> NoReturn:
    """Raise UsageError: the ``__reduce_ex__`` of what holds machine code, threads and memory of this process."""
    raise UsageError(
        f"a {type(module).__name__} cannot be pickled or copied: it holds machine code and memory of this process\n"
        "  write it by module.save(path), and autotune.load(path) where it is needed"
    )


class CompiledModel(ABC):
    """A model ready to run: what :func:`autotune.compile` and :func:`autotune.load` return.

    A :class:`autotune.Module` is one segment on the cores of this process, a PlacedModule a program of segments on
    devices, and a SizedModule takes requests of many sizes, each by one of the former. Any thread may call.
    """

    __reduce_ex__ = refuse_pickling

    @property
    @abstractmethod
    def compiled(self) -> Compiled:
        """The compiled model as values."""

    @property
    @abstractmethod
    def inputs(self) -> tuple[TensorSpec, ...] | tuple[SizedTensor, ...]:
        """Return the inputs of a call, in order."""

    @property
    @abstractmethod
    def outputs(self) -> tuple[TensorSpec, ...] | tuple[SizedTensor, ...]:
        """Return the outputs of a call, in order."""

    @property
    def dispatches(self) -> tuple[DispatchInfo, ...]:
        """The parts of the model that were compiled as one, of all segments and sizes."""
        return tuple(dispatch for image in self.compiled.images for dispatch in image.dispatches)

    @property
    @abstractmethod
    def threads(self) -> int:
        """Workers, those of all its devices."""

    def specs(self, sizes: Mapping[str, int] | None = None) -> tuple[TensorSpec, ...]:
        """Return the inputs of a request of such sizes; the largest there may be, where none is given."""
        largest = {symbol: found[-1] for symbol, found in self.compiled.sizes.items()}
        return tuple(tensor.spec({**largest, **(sizes or {})}) for tensor in self.compiled.inputs)

    def __call__(self, *arrays: Any, out: Sequence[NDArray[Any]] | None = None) -> Results:
        """Run the model; returns its outputs in order, freshly allocated unless ``out`` is given.

        Tensors of other libraries in CPU memory (with ``__dlpack__``) are read and, in ``out``, written without a copy.
        Raises InputError for arrays of the wrong number, shape or dtype, BuildError without memory for the outputs, and
        what a device failed with.
        """
        return self.call(arrays, None if out is None else [*out])

    @abstractmethod
    def call(self, arrays: tuple[Any, ...], out: Results | None) -> Results:
        """Return the same with the inputs as a tuple and a list ``out``, which is returned."""

    def run(self, inputs: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Run the model by name; raises InputError for missing or unknown names too."""
        outputs = self.call(tuple(self.by_name(inputs)), None)
        return dict(zip([tensor.name for tensor in self.outputs], outputs, strict=True))

    @abstractmethod
    def by_name(self, inputs: Mapping[str, Any]) -> list[Any]:
        """Return the inputs in order; raises InputError for missing or unknown names."""

    def submit(
        self, *arrays: Any, timeout: float | None = None, deadline: float | None = None
    ) -> Request[Results]:
        """Run the model in the background; requests of a module begin in the order of submission.

        The arrays must not change until the request is done. Its ``result()`` is what a call returns or raises; in
        a coroutine, ``await`` gives the same. Cancelled while it runs, it ends behind the commands that devices are at.
        Where too many requests are on their way it waits for room, and, before the first one, for devices above their
        watermarks; at most ``timeout`` seconds. A request that has not ended ``deadline`` seconds after this call fails
        with DeviceTimeoutError. Raises InputError, UsageError when closed or for a deadline that is not in the future,
        DeviceTimeoutError.
        """
        return self.submit_all([arrays], timeout=timeout, deadline=deadline)[0]

    @abstractmethod
    def submit_all(
        self,
        requests: Iterable[Sequence[Any]],
        *,
        timeout: float | None = None,
        deadline: float | None = None,
    ) -> list[Request[Results]]:
        """Return the same for several requests, each with its arrays.

        ``timeout`` is for each wait for room; where one ends without, those handed over are cancelled.
        """

    @abstractmethod
    def time(
        self, inputs: Inputs, *, warmup: int = 1, repeat: int = 10, min_ns: int = 0
    ) -> NDArray[np.int64]:
        """Return nanoseconds of each run.

        After ``warmup`` runs: at least ``repeat`` runs, and more until they add up to ``min_ns`` (at most a million).
        """

    @abstractmethod
    def recording(self, inputs: Inputs, runs: int = 1) -> Recording:
        """Return runs with what every worker did: what a profile or a trace is made of."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the compiled model to a file that :func:`autotune.load` reads; raises ArtifactError."""
        from autotune.runtime.artifacts import artifact

        artifact.save(self.compiled, path)

    @abstractmethod
    def close(self) -> None:
        """Free its memory, after the runs in progress; later calls fail."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def in_order(self, inputs: Inputs) -> list[Any]:
        """Return the arrays of inputs in order or by name."""
        return self.by_name(inputs) if isinstance(inputs, Mapping) else [*inputs]


def times_of(run: Callable[[], object], warmup: int, repeat: int, min_ns: int) -> NDArray[np.int64]:
    """Return nanoseconds of each run as a caller sees it: see :meth:`CompiledModel.time`."""
    if repeat < 1 or warmup < 0:
        raise UsageError(f"repeat must be at least 1 and warmup 0, got {repeat} and {warmup}")
    times = list[int]()
    for number in range(warmup + MAX_RUNS):
        begin = time.perf_counter_ns()
        run()
        if number >= warmup:
            times.append(time.perf_counter_ns() - begin)
        if len(times) >= repeat and sum(times) >= min_ns:
            break
    return np.asarray(times, np.int64)


__all__ = ["MAX_RUNS", "CompiledModel", "Inputs", "Results", "refuse_pickling", "times_of"]
