"""Bodies with inlined stages in them, of several schedules of one program."""

from __future__ import annotations

from autotune import te
from autotune.lower.examples import chain
from autotune.lower.inlining import Inlined, inlined_bodies
from autotune.te.expr import Expr
from autotune.te.traversal import reads


def read_by(body: tuple[Expr, ...]) -> list[str]:
    return [read.tensor.name for expr in body for read in reads(expr)]


def test_schedules_of_one_program_share_the_bodies_that_are_the_same_in_them() -> None:
    _, _, b, c = chain(8)
    known: dict[tuple[object, ...], Inlined] = {}
    found = []
    for inline in (True, False, True):
        s = te.create_schedule(c)
        if inline:
            s[b].compute_inline()
        bodies, _ = inlined_bodies(s.order(), known)
        found.append(bodies[s[c]])
    assert [read_by(body) for body in found] == [["A"], ["B"], ["A"]]
    assert found[0] is found[2]
    assert found[1] is c.op.body
