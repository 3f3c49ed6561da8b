"""The compiler: model, target and database in, module image out, with a report of its coverage."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.compiler.coverage import CoverageReport, DispatchCoverage
    from autotune.compiler.dividing import distinct_workloads, divide
    from autotune.compiler.driver import compile_in_detail, predict_in_detail, predict_ns
    from autotune.compiler.explain import Compilation
    from autotune.compiler.forecast import Prediction
    from autotune.compiler.region import region_inputs, region_outputs
    from autotune.compiler.request import CompileRequest

_WHERE = {
    "Compilation": "explain",
    "CompileRequest": "request",
    "CoverageReport": "coverage",
    "DispatchCoverage": "coverage",
    "Prediction": "forecast",
    "compile_in_detail": "driver",
    "distinct_workloads": "dividing",
    "divide": "dividing",
    "predict_in_detail": "driver",
    "predict_ns": "driver",
    "region_inputs": "region",
    "region_outputs": "region",
}
"""Module of each name: what only looks up schedules loads nothing that makes machine code."""


def __getattr__(name: str) -> Any:
    """Load a name; called once for each."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


__all__ = [
    "Compilation",
    "CompileRequest",
    "CoverageReport",
    "DispatchCoverage",
    "Prediction",
    "compile_in_detail",
    "distinct_workloads",
    "divide",
    "predict_in_detail",
    "predict_ns",
    "region_inputs",
    "region_outputs",
]
