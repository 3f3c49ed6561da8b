"""An autotuning compiler: tune a model overnight, compile it from the database, retrain the cost model.

Everything here is loaded on first use: importing the package costs milliseconds, and neither Optuna nor
XGBoost nor a compiler is loaded before it is needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from autotune.garbage import collector_paused

if TYPE_CHECKING:
    from autotune import errors, lower, te, tir
    from autotune.database.store import Database
    from autotune.functions.function import build
    from autotune.profiling.profile import profile
    from autotune.quantization.compiling import compile
    from autotune.runtime.executable import load
    from autotune.runtime.module import Module
    from autotune.target import Target
    from autotune.tuning.api import compile_for_sizes, predict, query, retrain, tune
    from autotune.tuning.jobs.budget import Budget
    from autotune.tuning.jobs.events import StopTuning, TuningEvent
    from autotune.tuning.jobs.program import TunedSchedule, tune_schedule
    from autotune.tuning.jobs.tune_devices import tune_on_devices
    from autotune.tuning.jobs.tune_sizes import tune_for_sizes
    from autotune.tuning.placement.place import place

__version__ = "0.1.0"

_WHERE = {
    "Budget": "autotune.tuning.jobs.budget",
    "Database": "autotune.database.store",
    "Module": "autotune.runtime.module",
    "StopTuning": "autotune.tuning.jobs.events",
    "Target": "autotune.target",
    "TunedSchedule": "autotune.tuning.jobs.program",
    "TuningEvent": "autotune.tuning.jobs.events",
    "build": "autotune.functions.function",
    "compile": "autotune.quantization.compiling",
    "compile_for_sizes": "autotune.tuning.api",
    "load": "autotune.runtime.executable",
    "place": "autotune.tuning.placement.place",
    "predict": "autotune.tuning.api",
    "profile": "autotune.profiling.profile",
    "query": "autotune.tuning.api",
    "retrain": "autotune.tuning.api",
    "tune": "autotune.tuning.api",
    "tune_for_sizes": "autotune.tuning.jobs.tune_sizes",
    "tune_on_devices": "autotune.tuning.jobs.tune_devices",
    "tune_schedule": "autotune.tuning.jobs.program",
}
"""Module of each public name; packages such as ``te`` are imported by their own name."""

_PACKAGES = ("errors", "lower", "te", "tir")


def __getattr__(name: str) -> Any:
    """Load a public name; called once for each."""
    if name not in _WHERE and name not in _PACKAGES:
        raise AttributeError(f"module 'autotune' has no attribute {name!r}")
    try:
        if name in _PACKAGES:
            return importlib.import_module(f"autotune.{name}")
        with collector_paused():  # modules stay
            value = getattr(importlib.import_module(_WHERE[name]), name)
    except ModuleNotFoundError as error:
        raise _not_installed(name, error) from error
    globals()[name] = value
    return value


def _not_installed(name: str, error: ModuleNotFoundError) -> Exception:
    """Return the error of a part that only the whole package has; what another package lacks is as it is."""
    from autotune.distribution import RUNTIME, install
    from autotune.errors import MissingExtraError

    if not (error.name or "").startswith("autotune."):
        return error
    return MissingExtraError(
        f"autotune.{name} is not in {RUNTIME}, which loads and runs artifacts: {install()}"
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "Budget",
    "Database",
    "Module",
    "StopTuning",
    "Target",
    "TunedSchedule",
    "TuningEvent",
    "build",
    "compile",
    "compile_for_sizes",
    "errors",
    "load",
    "lower",
    "place",
    "predict",
    "profile",
    "query",
    "retrain",
    "te",
    "tir",
    "tune",
    "tune_for_sizes",
    "tune_on_devices",
    "tune_schedule",
]
