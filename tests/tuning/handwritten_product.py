"""The automatic default of a batched product with bias and GELU beside a sketch written by hand, at its best.

``python -m tests.tuning.handwritten_product`` measures the default and a grid of the sketch's configurations in turns,
on one thread, and prints the default's time in parts of that of the fastest.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

import autotune
from autotune import te
from autotune.schedule import Schedule
from autotune.target import Target
from search_spaces.sketch import Sketch
from tests.tuning.sweep_of_defaults import default_of, interleaved

BATCH, ROWS, COLUMNS, STEPS = 8, 128, 512, 256


def program() -> tuple[te.Tensor, ...]:
    """The arguments, the result last."""
    x, w = te.placeholder((BATCH, ROWS, STEPS), name="x"), te.placeholder((BATCH, STEPS, COLUMNS), name="w")
    bias, k = te.placeholder((COLUMNS,), name="bias"), te.reduce_axis((0, STEPS), name="k")
    shape = (BATCH, ROWS, COLUMNS)
    y = te.compute(shape, lambda b, i, j: te.sum(x[b, i, k] * w[b, k, j], axis=k), name="y")
    z = te.compute(shape, lambda b, i, j: y[b, i, j] + bias[j], name="biased")
    gelu = te.compute(
        shape, lambda b, i, j: z[b, i, j] * 0.5 * (1.0 + te.erf(z[b, i, j] * math.sqrt(0.5))), name="gelu"
    )
    return x, w, bias, gelu


def by_hand(s: Schedule, lanes: int) -> None:
    """Register tiles of rows and vectors, panels of the right operand packed before, the epilogue on each tile."""
    rows = s.knob("rows", (4, 6), default=6)
    vectors = s.knob("vectors", (1, 2), default=2)
    panel = s.knob("panel", (16, 32, 64), default=32, help="rows of a block that read a panel")
    s["biased"].compute_inline()
    out, sums = s["gelu"], s["y"]
    b, i, j = out.op.axis
    columns, inside = out.split(j, factor=vectors * lanes)
    block, i = out.split(i, factor=panel)
    tile, row = out.split(i, factor=rows)
    out.reorder(b, block, columns, tile, row, inside)
    vector, lane = out.split(inside, factor=lanes)
    for loop in (vector,):
        out.unroll(loop)
    out.vectorize(lane)
    sums.compute_at(out, tile)
    sums.set_scope("local")
    packed = s[
        s.transform_layout(
            s.cache_read(s["w"].tensor, "global", [sums]),
            lambda n, k, j: [n, j // (vectors * lanes), k, j % (vectors * lanes)],
        )
    ]
    packed.vectorize(packed.split(packed.op.axis[-1], factor=lanes)[1])
    n, i, j = sums.op.axis
    vector, lane = sums.split(j, factor=lanes)
    k, step = sums.split(sums.op.reduce_axis[0], factor=4)
    sums.reorder(n, k, step, i, vector, lane)
    for loop in (step, i, vector):
        sums.unroll(loop)
    sums.vectorize(lane)


def main() -> None:
    """Measure and print."""
    args, target = program(), Target.parse("host", 1)
    lanes = target.lanes("float32")
    sketch = Sketch(lambda s: by_hand(s, lanes), args[-1:])
    configs = [
        dict(zip((knob.name for knob in sketch.knobs), values, strict=True))
        for values in itertools.product(*(knob.values for knob in sketch.knobs))
    ]
    modules = [autotune.build(sketch.schedule(config), args, target).module for config in configs]
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-1, 1, t.shape).astype(t.dtype) for t in args[:-1]]
    default = default_of(args, target)
    worst = max(float(np.abs(module(*arrays)[0] - default(*arrays)[0]).max()) for module in modules)
    mine, *others = interleaved([default, *modules], arrays)
    best = min(others)
    print(f"default {mine / 1e6:.3f} ms, by hand {best / 1e6:.3f} ms with {configs[others.index(best)]}")
    print(f"default / by hand: {mine / best:.2f}; results differ by {worst:.1e}")


if __name__ == "__main__":
    main()
