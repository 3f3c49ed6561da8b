"""The compiler: model, target and database in, module image out, with a report of its coverage."""

from autotune.compiler.coverage import CoverageReport, DispatchCoverage
from autotune.compiler.driver import (
    compile_in_detail,
    compile_locked,
    distinct_workloads,
    divide,
)
from autotune.compiler.explain import Compilation
from autotune.compiler.region import region_inputs, region_outputs

__all__ = [
    "Compilation",
    "CoverageReport",
    "DispatchCoverage",
    "compile_in_detail",
    "compile_locked",
    "distinct_workloads",
    "divide",
    "region_inputs",
    "region_outputs",
]
