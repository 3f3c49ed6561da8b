"""The compiler: model, target and database in, module image out, with a report of its coverage."""

from autotune.compiler.coverage import CoverageReport, DispatchCoverage
from autotune.compiler.driver import (
    compile_in_detail,
    compile_locked,
    distinct_workloads,
    divide,
    predict_in_detail,
)
from autotune.compiler.explain import Compilation
from autotune.compiler.forecast import Prediction
from autotune.compiler.region import region_inputs, region_outputs

__all__ = [
    "Compilation",
    "CoverageReport",
    "DispatchCoverage",
    "Prediction",
    "compile_in_detail",
    "compile_locked",
    "distinct_workloads",
    "divide",
    "predict_in_detail",
    "region_inputs",
    "region_outputs",
]
