"""The plain schedule: which loops workers share."""

import pytest

from autotune import te
from search_spaces.families.plain import schedule_plain


@pytest.mark.parametrize(
    ("shape", "shared", "left"),
    [
        ((1, 226, 226, 3), 226, 226),
        ((8, 8, 40, 64), 64, 40),
        ((2, 3, 5, 1024), 30, 1),
        ((100_000,), 100_000 // 16, 1),
    ],
)
def test_as_few_outer_loops_are_fused_as_have_enough_iterations(shape, shared, left):
    a = te.placeholder(shape, name="a")
    b = te.compute(shape, lambda *i: a(*i) + 1.0, name="b")
    schedule = te.create_schedule(b.op)
    schedule_plain(schedule[b], 16, inline=False)
    first, *rest = schedule[b].leaf_iter_vars
    assert first.extent == shared
    assert (rest[0].extent if left > 1 else 1) == left
