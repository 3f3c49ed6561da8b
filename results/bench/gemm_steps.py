"""The classic tutorial "optimise GEMM step by step", as schedules; ``docs/gemm.md`` is made from this file.

The steps are those of TVM's tutorial "How to optimize GEMM on CPU", in our names, and one more.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from autotune import te
from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView
from autotune.bench.tables import number
from autotune.errors import InternalError
from autotune.schedule.schedule import Schedule
from autotune.te.tensor import Tensor

BLOCK = 32
"""Rows and columns of a block; a power of two that divides the sizes below."""


def matmul(size: int) -> tuple[Schedule, Tensor, Tensor, Tensor]:
    """``C = A B`` of square float32 matrices: a fresh schedule, A, B, C."""
    A = te.placeholder((size, size), name="A")
    B = te.placeholder((size, size), name="B")
    k = te.reduce_axis((0, size), name="k")
    C = te.compute((size, size), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return te.create_schedule(C.op), A, B, C


def baseline(s: Schedule, A: Tensor, B: Tensor, C: Tensor) -> None:
    """Three loops, in the order of the axes. B is read down its columns: nearly every read misses the cache."""


def blocking(s: Schedule, A: Tensor, B: Tensor, C: Tensor) -> None:
    """Compute C in blocks: the rows of A and columns of B that a block needs stay in the cache for all of it."""
    i, j = s[C].op.axis
    (k,) = s[C].op.reduce_axis
    io, jo, ii, ji = s[C].tile(i, j, BLOCK, BLOCK)
    ko, ki = s[C].split(k, factor=4)
    s[C].reorder(io, jo, ko, ki, ii, ji)


def vectorization(s: Schedule, A: Tensor, B: Tensor, C: Tensor) -> None:
    """Neighbours in a row of C come from neighbours in a row of B: the innermost loop runs in vector lanes."""
    i, j = s[C].op.axis
    (k,) = s[C].op.reduce_axis
    io, jo, ii, ji = s[C].tile(i, j, BLOCK, BLOCK)
    ko, ki = s[C].split(k, factor=4)
    s[C].reorder(io, jo, ko, ki, ii, ji)
    s[C].vectorize(ji)


def permutation(s: Schedule, A: Tensor, B: Tensor, C: Tensor) -> None:
    """With the rows outside of the inner part of k, A is read along its rows, and a row of C stays in registers."""
    i, j = s[C].op.axis
    (k,) = s[C].op.reduce_axis
    io, jo, ii, ji = s[C].tile(i, j, BLOCK, BLOCK)
    ko, ki = s[C].split(k, factor=4)
    s[C].reorder(io, jo, ko, ii, ki, ji)
    s[C].vectorize(ji)


def packing(s: Schedule, A: Tensor, B: Tensor, C: Tensor) -> None:
    """Copy B first, so that the columns of a block are one after another in memory: reads become sequential."""
    packed = s.cache_read(B, "global", [C])
    packed = s.transform_layout(packed, lambda k, j: [j // BLOCK, k, j % BLOCK])
    _, _, lanes = s[packed].op.axis
    s[packed].vectorize(lanes)
    i, j = s[C].op.axis
    (k,) = s[C].op.reduce_axis
    io, jo, ii, ji = s[C].tile(i, j, BLOCK, BLOCK)
    ko, ki = s[C].split(k, factor=4)
    s[C].reorder(io, jo, ko, ii, ki, ji)
    s[C].vectorize(ji)


def write_cache(s: Schedule, A: Tensor, B: Tensor, C: Tensor) -> None:
    """Accumulate a block in a small buffer of its own, and write it to C once, when it is finished."""
    packed = s.cache_read(B, "global", [C])
    packed = s.transform_layout(packed, lambda k, j: [j // BLOCK, k, j % BLOCK])
    s[packed].vectorize(s[packed].op.axis[2])
    CC = s.cache_write(C, "global")
    i, j = s[C].op.axis
    _, jo, _, ji = s[C].tile(i, j, BLOCK, BLOCK)
    s[C].vectorize(ji)
    s[CC].compute_at(s[C], jo)
    ic, jc = s[CC].op.axis
    (k,) = s[CC].op.reduce_axis
    ko, ki = s[CC].split(k, factor=4)
    s[CC].reorder(ko, ic, ki, jc)
    s[CC].unroll(ki)
    s[CC].vectorize(jc)


def parallel(s: Schedule, A: Tensor, B: Tensor, C: Tensor) -> None:
    """Rows of blocks are independent: share them among the cores, and the panels of the packed copy too."""
    write_cache(s, A, B, C)
    s["B.global"].parallel(s["B.global"].op.axis[0])
    s[C].parallel(s[C].leaf_iter_vars[0])


def registers(s: Schedule, A: Tensor, B: Tensor, C: Tensor) -> None:
    """Beyond the tutorial: a tile of 8 rows accumulates in vector registers over the whole of k, rows unrolled."""
    packed = s.cache_read(B, "global", [C])
    packed = s.transform_layout(packed, lambda k, j: [j // BLOCK, k, j % BLOCK])
    s[packed].vectorize(s[packed].op.axis[2])
    s[packed].parallel(s[packed].op.axis[0])
    CC = s.cache_write(C, "local")
    i, j = s[C].op.axis
    io, jo, ii, ji = s[C].tile(i, j, 8, BLOCK)
    block, io = s[C].split(io, factor=8)
    s[C].reorder(block, jo, io, ii, ji)
    s[C].parallel(block)
    s[C].unroll(ii)
    s[C].vectorize(ji)
    s[CC].compute_at(s[C], io)
    ic, jc = s[CC].op.axis
    (k,) = s[CC].op.reduce_axis
    ko, ki = s[CC].split(k, factor=4)
    s[CC].reorder(ko, ki, ic, jc)
    s[CC].unroll(ki)
    s[CC].unroll(ic)
    s[CC].vectorize(jc)


Steps = Callable[[Schedule, Tensor, Tensor, Tensor], None]

STEPS: tuple[Steps, ...] = (
    baseline,
    blocking,
    vectorization,
    permutation,
    packing,
    write_cache,
    parallel,
    registers,
)
"""The steps in order; each is a whole schedule for a fresh program."""


@dataclass(frozen=True)
class StepTime:
    """The time of one step: the fastest and the median run in seconds, and 2 n^3 over the fastest in GFLOP/s."""

    name: str
    minimum_s: float
    median_s: float
    gflops: float


def scheduled(step: Steps, size: int) -> tuple[Schedule, list[Tensor]]:
    """The schedule of a step and its arguments."""
    s, A, B, C = matmul(size)
    step(s, A, B, C)
    return s, [A, B, C]


def step_times(size: int, repeat: int, threads: int | None, steps: Sequence[Steps] = STEPS) -> list[StepTime]:
    """Time every step, and NumPy's BLAS after them; raises InternalError when one computes something else."""
    from autotune.functions.function import build

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, size), dtype=np.float32) for _ in range(2))
    wanted = a @ b
    found = []
    for step in steps:
        s, args = scheduled(step, size)
        function = build(s, args, threads=threads)
        c = np.zeros((size, size), np.float32)
        function(a, b, c)
        if not np.allclose(c, wanted, rtol=1e-3, atol=1e-3 * size**0.5):
            raise InternalError(f"step {step.__name__} computes something else")
        found.append(_time(step.__name__, size, function.time(a, b, c, repeat=repeat)))
    found.append(_time("NumPy", size, _numpy_times(a, b, repeat)))
    return found


def _numpy_times(a: Any, b: Any, repeat: int) -> Any:
    import time

    times = []
    for _ in range(repeat + 1):
        started = time.perf_counter_ns()
        np.matmul(a, b)
        times.append(time.perf_counter_ns() - started)
    return np.array(times[1:])


def _time(name: str, size: int, nanoseconds: Any) -> StepTime:
    best = float(np.min(nanoseconds)) * 1e-9
    return StepTime(name, best, float(np.median(nanoseconds)) * 1e-9, 2e-9 * size**3 / best)


def measure(say: Say, size: int, repeat: int, threads: int | None) -> Iterator[Sequence[Record]]:
    """Yield a record for each step, and one for NumPy."""
    yield [{"size": size, **asdict(step)} for step in step_times(size, repeat, threads)]


def _speed_ups(rows: FrameRows) -> list[Column]:
    first = rows.where(name=STEPS[0].__name__).get("minimum_s")
    return [
        Column("step", "name"),
        Column("minimum ms", "minimum_s", number(2, scale=1e-3)),
        Column("median ms", "median_s", number(2, scale=1e-3)),
        Column("GFLOP/s", "gflops", number(1)),
        Column("times the baseline", lambda one: first / one.get("minimum_s"), number(1, "×")),
    ]


ABOUT = (
    "The speed after each step of the tutorial docs/gemm.md, and NumPy's beside it: float32, each step the one "
    "before with one more idea."
)

EXPERIMENT = Experiment(
    title="GEMM step by step",
    about=ABOUT,
    summary="""Measure the speed after each step of the tutorial docs/gemm.md, and NumPy's.

    Times are of float32 matrices already in the cache or in memory as the size has it; GFLOP/s is 2 n^3 over the
    fastest run.""",
    example="--size 1024 -o results/gemm-steps.md",
    options=(
        options.number("--size", 1024, "Rows and columns of the matrices."),
        options.number("--repeat", 5, "Runs of each step."),
        options.number("--threads", None, "Workers of the parallel steps. [default: all usable cores]"),
    ),
    measure=measure,
    views=(
        TableView(
            "{size} × {size} × {size}",
            ("name",),
            _speed_ups,
            notes=("GFLOP/s is 2 n³ over the fastest run.",),
        ),
    ),
)

# -- the page ----------------------------------------------------------------------------------------------

_INTRODUCTION = """\
# Optimising matrix multiplication, step by step

Made from `results/bench/gemm_steps.py` by `python -m results.bench.gemm_steps`; a test compares this page, and
checks that every step computes what NumPy does. The steps are those of TVM's tutorial "How to optimize GEMM on
CPU"; its programs run here with the import changed. To see the speed after each step on your machine:

```
python -m results.bench gemm-steps --size 1024
```

The program is the same all the way; only the schedule changes. `autotune.lower(s, [A, B, C], simple_mode=True)`
prints the loops, shown below for matrices of 64 by 64, without the partial sums that
[sums of more than 128 terms](kernels/matmul.md#long-sums) are made of.
"""


_IMPORTS = """\
from autotune import te
from autotune.schedule.schedule import Schedule
from autotune.te.tensor import Tensor
"""


def page() -> str:
    """The tutorial as Markdown."""
    parts = [_INTRODUCTION, f"```python\n{_IMPORTS}\nBLOCK = {BLOCK}\n\n\n{inspect.getsource(matmul)}```\n"]
    for count, step in enumerate(STEPS):
        title = step.__name__.replace("_", " ")
        prose = inspect.cleandoc(step.__doc__ or "")
        parts.append(f"## {count}. {title[0].upper()}{title[1:]}\n\n{prose}\n")
        if step is not baseline:
            parts.append(f"```python\ns, A, B, C = matmul(64)\n{_code(step)}```\n")
        parts.append(f"```\n{_loops(step)}\n```\n")
    return "\n".join(parts)


def _code(step: Steps) -> str:
    """The body of a step without its docstring, with those of other steps in the place of their calls."""
    lines = inspect.getsource(step).splitlines()
    first = next(n for n, line in enumerate(lines) if line.endswith('"""'))
    code = inspect.cleandoc("\n".join(lines[first + 1 :])) + "\n"
    for other in STEPS:
        call = f"{other.__name__}(s, A, B, C)\n"
        if call in code:
            code = code.replace(call, _code(other))
    return code


def _loops(step: Steps) -> str:
    from autotune.lower.printer import program_text
    from autotune.lower.program import lower_schedule

    return program_text(lower_schedule(*scheduled(step, 64)))


if __name__ == "__main__":
    sys.stdout.write(page())

__all__ = ["BLOCK", "EXPERIMENT", "STEPS", "StepTime", "matmul", "page", "scheduled", "step_times"]
