"""One life of a system: import it, load a model, run it once, and say what that took, as a line of JSON.

Run as a script by any Python that has NumPy and the system. Arguments: ``autotune`` or ``onnxruntime``, the folder to
import it from or ``-``, the model, how many threads, ``yes`` or ``no`` for whether ONNX Runtime still optimizes it or
our constants are mapped, and the inputs as .npy files, in order. Memory is the kernel's own account
(``/proc/self/smaps_rollup``), in bytes.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def main() -> None:
    """Live, and tell."""
    system, folder, model, threads, way, *inputs = sys.argv[1:]
    if folder != "-":
        sys.path.insert(0, folder)
    begin = time.perf_counter_ns()
    import numpy as np

    load = _importer(system)
    imported = time.perf_counter_ns()
    run = load(model, int(threads), way == "yes")
    loaded = time.perf_counter_ns()
    arrays = [np.load(path) for path in inputs]  # not counted: the caller's
    ready = time.perf_counter_ns()
    outputs = run(arrays)
    done = time.perf_counter_ns()
    processor_ns = time.process_time_ns()
    facts = {
        "import_ns": imported - begin,
        "load_ns": loaded - imported,
        "run_ns": done - ready,
        "processor_ns": processor_ns,
        **_memory(),
        "finite": all(bool(np.isfinite(output).all()) for output in outputs),
    }
    print(json.dumps(facts))


def _importer(system: str) -> Callable[[str, int, bool], Callable[[list[Any]], list[Any]]]:
    """Return the function that loads a model, with everything imported that it needs."""
    return _autotune() if system == "autotune" else _onnxruntime()


def _autotune() -> Callable[[str, int, bool], Callable[[list[Any]], list[Any]]]:
    import autotune

    read = autotune.load

    def load(model: str, threads: int, mapped: bool) -> Callable[[list[Any]], list[Any]]:
        module = read(model, threads, mapped=mapped)
        return lambda arrays: list(module(*arrays))

    return load


def _onnxruntime() -> Callable[[str, int, bool], Callable[[list[Any]], list[Any]]]:
    import onnxruntime

    def load(model: str, threads: int, optimize: bool) -> Callable[[list[Any]], list[Any]]:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        if not optimize:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        names = [each.name for each in session.get_inputs()]
        return lambda arrays: list(session.run(None, dict(zip(names, arrays, strict=True))))

    return load


def _memory() -> dict[str, int]:
    """Resident bytes: this process's share, what it has alone, and the most that it ever had."""
    found = {"Pss": 0, "Private_Clean": 0, "Private_Dirty": 0, "VmHWM": 0}
    for path in ("/proc/self/smaps_rollup", "/proc/self/status"):
        for line in Path(path).read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in found:
                found[name] = int(rest.split()[0]) << 10
    own = found["Private_Clean"] + found["Private_Dirty"]
    return {"pss_bytes": found["Pss"], "uss_bytes": own, "peak_bytes": found["VmHWM"]}


if __name__ == "__main__":
    main()
