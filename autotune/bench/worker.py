"""A benchmark worker: runs one system, ours or a peer, and answers JSON lines.

Also run as a script by the Python of another environment, so it needs NumPy and that system only, and ties itself to
its parent.
Requests: ``tune`` (peers that tune only), ``load`` a model with its inputs (.npy files), write the
``outputs``, ``time`` runs as calls from Python (the same loop for every system), time them ``native`` where a
system has a loop of its own, and ``profile`` (ours only).
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import runpy
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

Arrays = dict[str, Any]
Run = Callable[[], Any]
_PROFILES = 10
_LIFETIME = Path(__file__).parents[1] / "workers" / "lifetime.py"


class SystemRunner(Protocol):
    """Something that runs models. ``module`` is what it imports, whose version it reports."""

    module: str

    def load(self, model: str, inputs: Arrays, threads: int) -> Run:
        """A function of no arguments that runs the model once on the inputs."""

    def outputs(self) -> list[Any]:
        """NumPy arrays of the last run."""


@runtime_checkable
class Tuner(SystemRunner, Protocol):
    """A system that searches for a schedule before it loads a model."""

    def tune(self, model: str, inputs: Arrays, threads: int, trials: int) -> dict[str, Any]:
        """Tune until it had so many trials; how many those were, their seconds, and those until its best."""


class Autotune:
    """Our artifacts; outputs go to arrays allocated once, as for the peers."""

    module = "autotune"

    def load(self, model: str, inputs: Arrays, threads: int) -> Run:
        from autotune.runtime.artifacts import artifact
        from autotune.runtime.module import Module

        self._compiled = compiled = Module(artifact.load_image(model), threads)
        return self._bound(compiled, inputs)

    def _bound(self, compiled: Any, inputs: Arrays) -> Run:
        self._arguments = arguments = [inputs[spec.name] for spec in compiled.inputs]
        self._out = out = [_aligned(spec.shape, spec.dtype) for spec in compiled.outputs]
        return lambda: compiled(*arguments, out=out)

    def outputs(self) -> list[Any]:
        return self._out

    def native(self, seconds: float) -> float:
        """Nanoseconds of a run in native code, without Python's share; the fastest of ten stretches."""
        times = self._compiled.time(self._arguments, repeat=10, min_ns=int(seconds * 1e9))
        return min(float(stretch.mean()) for stretch in np.array_split(times, 10))

    def profile(self) -> dict[str, float]:
        """Nanoseconds of a run by kind of dispatch: of each dispatch the fastest of a few runs."""
        kinds: dict[str, float] = {}
        profiles = [self._compiled.profile(self._arguments, repeat=1) for _ in range(_PROFILES)]
        times = np.min(profiles, axis=0)
        for dispatch, spent in zip(self._compiled.dispatches, times, strict=True):
            kinds[dispatch.kind] = kinds.get(dispatch.kind, 0.0) + float(spent)
        return kinds


class Earlier(Autotune):
    """Another version of this package, which compiles our graph itself, untuned: before and after a change."""

    def load(self, model: str, inputs: Arrays, threads: int) -> Run:
        import autotune
        from autotune.graph.text import parse_graph

        folder = Path(model)
        constants = recipe_constants(folder)
        graph = parse_graph((folder / "graph.txt").read_text(), constants)
        compiled = autotune.compile(graph, threads=threads)
        self._compiled = compiled
        return self._bound(compiled, inputs)


class OnnxRuntime:
    """ONNX Runtime's CPU provider; bound inputs and outputs, so that no call copies."""

    module = "onnxruntime"

    def load(self, model: str, inputs: Arrays, threads: int) -> Run:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = session = onnxruntime.InferenceSession(
            model, options, providers=["CPUExecutionProvider"]
        )
        self._binding = binding = session.io_binding()
        for name, array in inputs.items():
            binding.bind_cpu_input(name, array)
        for output in session.get_outputs():
            binding.bind_output(output.name, "cpu")
        return lambda: session.run_with_iobinding(binding)

    def outputs(self) -> list[Any]:
        return [array.copy() for array in self._binding.copy_outputs_to_cpu()]


class OpenVino:
    """OpenVINO's CPU plugin in float32; inputs shared, outputs left in the request's memory."""

    module = "openvino"
    precision: Mapping[str, Any] = {"INFERENCE_PRECISION_HINT": "f32"}

    def load(self, model: str, inputs: Arrays, threads: int) -> Run:
        import openvino

        hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, **self.precision}
        compiled = openvino.Core().compile_model(model, "CPU", hints)
        self._request = request = compiled.create_infer_request()
        self._kept = list(inputs.values())
        for name, array in inputs.items():
            request.set_tensor(name, openvino.Tensor(array, shared_memory=True))
        self._count = len(compiled.outputs)

        def run() -> None:
            request.start_async()
            request.wait()

        return run

    def outputs(self) -> list[Any]:
        return [np.array(self._request.get_output_tensor(i).data) for i in range(self._count)]


class OpenVinoDefault(OpenVino):
    """The same in the precision that it chooses itself: bfloat16 where the processor multiplies it."""

    precision: Mapping[str, Any] = {}


class NumPy:
    """NumPy: ``matmul`` of the two inputs (its OpenBLAS takes its threads from the environment)."""

    module = "numpy"

    def load(self, model: str, inputs: Arrays, threads: int) -> Run:
        a, b = inputs.values()
        self._out = out = np.empty((*a.shape[:-1], b.shape[-1]), a.dtype)
        self._operands = a, b
        return lambda: np.matmul(a, b, out=out)

    def native(self, seconds: float) -> float:
        """Nanoseconds of a product in a compiled loop, without Python's share."""
        from autotune.bench.blas import native_matmul_ns

        return native_matmul_ns(*self._operands, self._out, seconds)

    def outputs(self) -> list[Any]:
        return [self._out]


class CopyFloor:
    """The floor of moving bytes: the inputs are copied, each thread its part. ``model`` is how many bytes."""

    module = "numpy"

    def load(self, model: str, inputs: Arrays, threads: int) -> Run:
        source = np.zeros(int(model), np.uint8)
        target = np.ones_like(source)
        pairs = list(zip(np.array_split(target, threads), np.array_split(source, threads), strict=True))
        if threads == 1:
            return lambda: np.copyto(*pairs[0])
        pool = ThreadPoolExecutor(threads - 1)

        def run() -> None:
            others = [pool.submit(np.copyto, *pair) for pair in pairs[1:]]
            np.copyto(*pairs[0])
            for other in others:
                other.result()

        return run

    def outputs(self) -> list[Any]:
        return []


def _beside(name: str) -> Any:
    """A module next to this file, which may run where the package is not installed."""
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SYSTEMS: Mapping[str, Callable[[], SystemRunner]] = {
    "autotune": Autotune,
    "earlier": Earlier,
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
    "openvino-default": OpenVinoDefault,
    "torch": lambda: _beside("worker_torch").PyTorch(recipe_constants),
    "metaschedule": lambda: _beside("worker_tvm").MetaSchedule(
        _beside("worker_tvm_ops").prim_func, recipe_constants
    ),
    "numpy": NumPy,
    "copy": CopyFloor,
}


def recipe_constants(folder: Path) -> Arrays:
    """The constants of a recipe by name."""
    names = json.loads((folder / "recipe.json").read_text())["constants"]
    return {
        name: np.load(folder / "constants" / f"{number}.npy", allow_pickle=False)
        for number, name in enumerate(names)
    }


def _aligned(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return an array at a multiple of 64 bytes, made here because ``earlier`` may have no such function there."""
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.empty(nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + nbytes].view(dtype).reshape(shape)


def _arrays(paths: Mapping[str, str]) -> Arrays:
    return {name: np.load(path, allow_pickle=False) for name, path in paths.items()}


def timed(run: Run, seconds: float, least: int, most: int) -> list[int]:
    """Nanoseconds of each call, after one call that is not counted."""
    run()
    times: list[int] = []
    collecting = gc.isenabled()
    gc.disable()
    try:
        end = time.perf_counter_ns() + int(seconds * 1e9)
        while len(times) < least or (len(times) < most and time.perf_counter_ns() < end):
            begin = time.perf_counter_ns()
            run()
            times.append(time.perf_counter_ns() - begin)
    finally:
        if collecting:
            gc.enable()
    return times


class Worker:
    """Answers requests for one system."""

    def __init__(self, make: Callable[[], SystemRunner]) -> None:
        self._make = make
        self._system: SystemRunner = make()
        self._run: Run = lambda: None

    def tune(self, model: str, threads: int, inputs: Mapping[str, str], trials: int) -> dict[str, Any]:
        """Tune a model; what was done for it so far."""
        system = self._make()
        if not isinstance(system, Tuner):
            raise TypeError(f"{system.module} does not tune")
        return system.tune(model, _arrays(inputs), threads, trials)

    def load(self, model: str, threads: int, inputs: Mapping[str, str]) -> dict[str, Any]:
        """Load a model; the seconds that took, and the system's version."""
        self._run = lambda: None  # frees the previous model first
        self._system = self._make()
        arrays = _arrays(inputs)
        begin = time.perf_counter()
        self._run = self._system.load(model, arrays, threads)
        seconds = time.perf_counter() - begin
        version = getattr(importlib.import_module(self._system.module), "__version__", "")
        return {"seconds": seconds, "version": str(version).split("-")[0]}

    def outputs(self, folder: str) -> dict[str, Any]:
        """Run once and write the outputs to a folder; their paths in order."""
        self._run()
        paths = []
        for index, array in enumerate(self._system.outputs()):
            paths.append(str(Path(folder) / f"{index}.npy"))
            np.save(paths[-1], array, allow_pickle=False)
        return {"paths": paths}

    def time(self, seconds: float, least: int, most: int) -> dict[str, Any]:
        """Time runs."""
        return {"ns": timed(self._run, seconds, least, most)}

    def native(self, seconds: float) -> dict[str, Any]:
        """Nanoseconds of a run without Python's share, from the systems that can say."""
        system = self._system
        return {"ns": system.native(seconds) if isinstance(system, (Autotune, NumPy)) else None}

    def profile(self) -> dict[str, Any]:
        """Nanoseconds by kind of dispatch."""
        return {"kinds": self._system.profile() if isinstance(self._system, Autotune) else {}}


def serve(worker: Worker, requests: Iterator[str], answer: Callable[[str], None]) -> None:
    """Answer every line; a system's own errors are answers too."""
    for line in requests:
        request = json.loads(line)
        method = getattr(worker, request.pop("do"))
        try:
            reply = method(**request)
        except Exception as error:  # noqa: BLE001 - any system may raise anything; it is shown in the table
            reply = {"error": f"{type(error).__name__}: {error}"}
        answer(json.dumps(reply))


def main(systems: Mapping[str, Callable[[], SystemRunner]] = SYSTEMS) -> None:
    """Serve the one of the systems that the first argument names; what it prints goes to standard error."""
    if (
        not __package__
    ):  # a script: autotune.workers.launch, which does this before anything else, is not there
        runpy.run_path(str(_LIFETIME))["die_with_parent"]()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(text: str) -> None:
        out.write(text + "\n")
        out.flush()

    worker = Worker(systems[sys.argv[1]])
    answer(json.dumps({"ready": sys.argv[1]}))
    serve(worker, iter(sys.stdin.readline, ""), answer)


if __name__ == "__main__":
    main()

__all__ = ["SYSTEMS", "SystemRunner", "Worker", "serve", "timed"]
