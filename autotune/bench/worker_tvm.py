"""TVM's MetaSchedule for the benchmark worker; needs NumPy and TVM only, and is loaded by its file name.

Its tuner runs with its own defaults: an evolutionary search with a learned cost model over the whole
operator as one function, weights as arguments, in batches of 64 trials. Only its builder does not import
the instructions of accelerators, which takes each of its processes half a minute and serves no such trial.
Its JSON database and our ``progress.jsonl`` stay in a folder that the recipe names, so that nothing is tuned
twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Arrays = dict[str, Any]
PrimFunc = Callable[[Mapping[str, Any], Arrays, Arrays], tuple[Any, list[Any]]]
_PROGRESS = "progress.jsonl"


class MetaSchedule:
    """The best schedule that MetaSchedule found for an operator. ``prim_func`` makes a function of a recipe,
    and ``constants`` reads those of a recipe's folder.

    The operator has our layout; a layout of the weights that suits the schedule is not searched for,
    because a function by itself cannot keep weights in it.
    """

    module = "tvm"

    def __init__(self, prim_func: PrimFunc, constants: Callable[[Path], Arrays]) -> None:
        self._prim_func, self._constants = prim_func, constants

    def tune(self, model: str, inputs: Arrays, threads: int, trials: int) -> dict[str, Any]:
        """Tune until it had ``trials`` trials; what :func:`progress` says then."""
        work = Path(_recipe(model)["tuned"])
        work.mkdir(parents=True, exist_ok=True)
        known = progress(work)
        missing = trials - known["trials"]
        if missing > 0:
            function, _ = self._function(model, inputs)
            from tvm.s_tir import meta_schedule, tensor_intrin  # noqa: F401 - half a minute that is not tuning

            meter = _meter(meta_schedule.measure_callback, work / _PROGRESS, known)
            database = meta_schedule.database.JSONDatabase(work_dir=str(work))
            meta_schedule.tune_tir(
                function,
                _target(threads),
                str(work),
                missing,
                database=database,
                builder=meta_schedule.builder.LocalBuilder(max_workers=threads, f_build=_build),
                measure_callbacks=[*meta_schedule.measure_callback.MeasureCallback.create("default"), meter],
                num_tuning_cores=threads,
            )
        return progress(work)

    def load(self, model: str, inputs: Arrays, threads: int) -> Callable[[], None]:
        """Compile with the best of its records. Raises ValueError where there is none."""
        import tvm
        from tvm.s_tir import meta_schedule

        function, arrays = self._function(model, inputs)
        module, target = tvm.IRModule({"main": function}), _target(threads)
        database = meta_schedule.database.JSONDatabase(work_dir=_recipe(model)["tuned"])
        schedule = database.query_schedule(module, target, "main")
        if schedule is None:
            raise ValueError("MetaSchedule has no schedule that worked")
        compiled = tvm.compile(schedule.mod, target)["main"]
        tensors = [tvm.runtime.tensor(array) for array in arrays]
        self._outputs = tensors[len(arrays) - self._results :]
        return lambda: compiled(*tensors)

    def outputs(self) -> list[Any]:
        return [tensor.numpy() for tensor in self._outputs]

    def _function(self, model: str, inputs: Arrays) -> tuple[Any, list[Any]]:
        recipe = _recipe(model)
        self._results = len(recipe["outputs"])
        function, arrays = self._prim_func(recipe, inputs, self._constants(Path(model)))
        return function.with_attr("global_symbol", "main"), arrays


def _recipe(model: str) -> dict[str, Any]:
    """Read what :func:`autotune.bench.problem.write_graph` wrote; ``tuned`` is the folder of the database."""
    recipe: dict[str, Any] = json.loads((Path(model) / "recipe.json").read_text())
    return recipe


def progress(folder: Path) -> dict[str, Any]:
    """Return how many trials there were in how many seconds, and after how many the best was known.

    A batch is complete or not there: what a tuner that was killed did after its last one is lost.
    """
    trials, seconds, best_s, best = 0, 0.0, 0.0, float("inf")
    path = folder / _PROGRESS
    for line in path.read_text().splitlines() if path.exists() else ():
        batch = json.loads(line)
        trials, seconds = batch["trials"], batch["seconds"]
        if batch["best_s"] is not None and batch["best_s"] < best:
            best, best_s = batch["best_s"], seconds
    return {"trials": trials, "seconds": seconds, "until_best_s": best_s}


def _meter(callbacks: Any, path: Path, known: Mapping[str, Any]) -> Any:
    """A callback that writes a line after each batch: trials and seconds so far, the batch's best latency."""
    from tvm.ir.utils import derived_object

    begin, trials = time.perf_counter() - known["seconds"], known["trials"]

    @derived_object
    class TrialMeter(callbacks.PyMeasureCallback):  # type: ignore[misc]
        def apply(
            self, task_scheduler: Any, task_id: int, candidates: Any, builds: Any, results: Any
        ) -> None:
            nonlocal trials
            trials += len(results)
            worked = [min(map(float, r.run_secs)) for r in results if r.run_secs is not None]
            best = min(worked, default=None)
            line = {"trials": trials, "seconds": time.perf_counter() - begin, "best_s": best}
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")

    return TrialMeter()


def _build(module: Any, target: Any, _parameters: Any) -> Any:
    """Machine code of a candidate; runs in the processes of its builder."""
    from tvm.driver import build

    return build(module, target=target)


def _target(threads: int) -> Any:
    """This processor with as many cores as threads: they bound how its tuner divides loops."""
    import tvm

    cpu = tvm.get_global_func("target.llvm_get_system_cpu")()
    return tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": threads})


__all__ = ["MetaSchedule", "progress"]
