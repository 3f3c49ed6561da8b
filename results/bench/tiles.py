"""Products of few and of many rows in each precision: the share of the machine's peak, or of its bandwidth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, Record, Say, TableView
from autotune.bench.tables import duration, number, percent
from autotune.compiler import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.profiling.profile import profile
from autotune.quantization.by_blocks import quantize_weights
from autotune.runtime.module import Module
from autotune.target import Target
from cost_models import analytic
from search_spaces.spaces import space_for

SIZES = ((1024, 1024, 1024), (128, 4096, 4096), (16, 4096, 4096), (1, 4096, 4096))
"""Rows, depth and columns."""


def _product(operator: str, left: str, right: str, result: str, rng: Any, sizes: Sequence[int]) -> Any:
    """Return a model that multiplies rows by a constant matrix, of ONNX's types by name."""
    from onnx import TensorProto, helper

    m, k, n = sizes
    values = rng.integers(-127, 128, (k, n)).astype(np.float32)
    kind = {"FLOAT": np.float32, "INT8": np.int8, "BFLOAT16": ml_dtypes.bfloat16}[right]
    weights = helper.make_tensor(
        "w", TensorProto.DataType.Value(right), (k, n), values.astype(kind).tobytes(), raw=True
    )
    given, made = (
        helper.make_tensor_value_info(name, TensorProto.DataType.Value(dtype), shape)
        for name, dtype, shape in (("x", left, (m, k)), ("y", result, (m, n)))
    )
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", "w"], ["y"])], "product", [given], [made], [weights]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _int4(rng: Any, sizes: Sequence[int]) -> Any:
    return quantize_weights(_float32(rng, sizes), "int4", 32).model


def _float32(rng: Any, sizes: Sequence[int]) -> Any:
    return _product("MatMul", "FLOAT", "FLOAT", "FLOAT", rng, sizes)


def _bfloat16(rng: Any, sizes: Sequence[int]) -> Any:
    return _product("MatMul", "BFLOAT16", "BFLOAT16", "BFLOAT16", rng, sizes)


def _int8(rng: Any, sizes: Sequence[int]) -> Any:
    return _product("MatMulInteger", "UINT8", "INT8", "INT32", rng, sizes)


PRECISIONS: Mapping[str, Callable[[Any, Sequence[int]], Any]] = {
    "float32": _float32,
    "bfloat16": _bfloat16,
    "int8": _int8,
    "weights in int4": _int4,
}
"""The maker of each one's model; blocks of int4 have 32 weights."""

FEW = 16
"""Rows up to which the weights are most of the time, and precisions count that no tiles multiply."""


@dataclass
class Case:
    """A compiled product, its input, what it was predicted to take and what it took in each run, in ns."""

    sizes: Sequence[int]
    precision: str
    module: Module
    rows: Any
    predicted: float
    taken: list[float]

    def record(self, threads: int) -> Record:
        """Return the row of a table: shares are those of the fastest run."""
        found = profile(self.module, [self.rows], runs=5).dispatches
        least = sum(each.least_ns or 0.0 for each in found)
        return {
            "threads": threads,
            "product": "x".join(map(str, self.sizes)),
            "precision": self.precision,
            "time_ns": min(self.taken),
            "median_ns": float(np.median(self.taken)),
            "predicted": self.predicted / min(self.taken),
            "gflops": sum(each.flops for each in found) / min(self.taken),
            "bound": found[0].bound,
            "of_bound": least / min(self.taken),
        }


def compiled(precision: str, sizes: Sequence[int], threads: int) -> Case:
    """Compile a product untuned. Raises what compiling raises."""
    rng = np.random.default_rng(0)
    target = Target.detect(threads)
    made = compile_in_detail(CompileRequest(PRECISIONS[precision](rng, sizes), threads=threads))
    workloads = [d.workload for segment in made.segments for d in segment.partition.dispatches]
    predicted = sum(analytic.default_seconds(space_for(each, target)) for each in workloads)
    kind = {"bfloat16": ml_dtypes.bfloat16, "int8": np.uint8}.get(precision, np.float32)
    rows = rng.integers(0, 256, sizes[:2]).astype(kind)
    return Case(sizes, precision, Module(made.image, threads), rows, 1e9 * predicted, [])


def measure(say: Say, threads: int, rounds: int) -> Iterator[Sequence[Record]]:
    """Yield a record for each product and precision, interleaved. Raises what compiling raises."""
    cases = []
    for sizes in SIZES:
        for precision in PRECISIONS:
            if sizes[0] > FEW and precision in ("float32", "weights in int4"):
                continue
            say(f"{precision} {'x'.join(map(str, sizes))}: compiled")
            cases.append(compiled(precision, sizes, threads))
    for _ in range(rounds):
        for case in cases:
            case.taken += [float(ns) for ns in case.module.time([case.rows], repeat=10, warmup=2)]
    yield [case.record(threads) for case in cases]


EXPERIMENT = Experiment(
    title="Products in each precision",
    about="Untuned products of rows by a constant matrix, as the cost model chooses their schedules, beside what the "
    "machine needs at least: arithmetic at the peak that its calibration measured on all cores at once (of tiles where "
    "it has them), or bytes from where they are (autotune/profiling/roofline.py).",
    summary="Measure products in each precision: the share of the machine's peak, or of its bandwidth.",
    example="--threads 2 -o results/tiles.md",
    options=(options.workers(), options.number("--rounds", 20, "Rounds over all products.")),
    measure=measure,
    views=(
        TableView(
            "Products, {threads}",
            ("product", "precision"),
            (
                Column("rows x depth x columns", "product"),
                Column("precision", "precision"),
                Column("minimum", "time_ns", duration),
                Column("median", "median_ns", duration),
                Column("predicted ÷ minimum", "predicted", number(2)),
                Column("GFLOP/s", "gflops", number(0)),
                Column("bound", "bound"),
                Column("of bound", "of_bound", percent()),
            ),
            notes=("of bound: the least time that the machine needs ÷ the minimum",),
        ),
    ),
)

__all__ = ["EXPERIMENT", "FEW", "PRECISIONS", "SIZES", "Case", "compiled", "measure"]
