"""The vector functions on the host: their values, their assembly, their error in units in the last place."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

from autotune.target import Target
from results.bench.functions import evaluate, loop_module

FloatArray = NDArray[np.floating[Any]]


def assembly(name: str, lanes: int, dtype: str) -> str:
    """The host's assembly of the looped function, optimised."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    host = Target.detect()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=host.cpu, features=host.llvm_features, opt=2
    )
    module = llvm.parse_assembly(loop_module(name, lanes, dtype))
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(2))
    builder.getModulePassManager().run(module, builder)
    text: str = machine.emit_assembly(module)
    return text


def run(
    name: str, lanes: int, x: FloatArray, y: FloatArray | None = None, avx512: bool | None = None
) -> FloatArray:
    """The function over the flat array `x` (and `y` for pow); `avx512` None: with it if the host has it."""
    return evaluate(name, lanes, x, np.zeros_like(x) if y is None else y, avx512)


def ulp_error(got: FloatArray, exact: FloatArray) -> float:
    """Largest |got - exact| in ulp of got's format at `exact`, a wider format's values.

    Infinities and NaN must agree, where an exact value that rounds to infinity counts as one.
    """
    with np.errstate(all="ignore"):
        rounded = exact.astype(got.dtype)
    special = ~np.isfinite(rounded)
    np.testing.assert_array_equal(got[special], rounded[special])
    got, exact, rounded = got[~special], exact[~special], rounded[~special]
    with np.errstate(all="ignore"):
        distance = np.abs(got.astype(exact.dtype) - exact) / np.spacing(np.abs(rounded))
    assert np.isfinite(got).all()
    return float(distance.max(initial=0.0))
