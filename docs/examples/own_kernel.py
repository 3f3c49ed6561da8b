"""Tune a kernel of one's own, and check it against NumPy."""

import numpy as np

import autotune
from autotune import te

A, B = te.placeholder((96, 64), name="A"), te.placeholder((64, 128), name="B")
k = te.reduce_axis((0, 64), name="k")
C = te.compute((96, 128), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")


def schedule(s):
    """Tile rows and columns in registers; how far, the search decides."""
    rows, columns = s.knob("rows", (2, 4, 6, 8)), s.knob("columns", (16, 32))
    i, j, ii, jj = s[C].tile(*s[C].op.axis, rows, columns)
    s[C].reorder(i, j, k, ii, jj)
    s[C].unroll(ii)
    s[C].vectorize(jj)


best = autotune.tune_schedule(schedule, [A, B, C], budget="30s", database="tuning.db")
gemm = autotune.build(best.schedule, best.args)
a, b = (np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in ((96, 64), (64, 128)))
c = np.empty((96, 128), np.float32)
gemm(a, b, c)
np.testing.assert_allclose(c, a @ b, rtol=1e-3, atol=1e-4)
print(best)
