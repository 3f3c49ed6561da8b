"""Each primitive: the loops it makes, the numbers they compute, and the whole message when refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from autotune import te
from autotune.errors import ScheduleError
from autotune.lower import lower_schedule, program_text
from autotune.schedule import Schedule, Trace
from tests.schedule import loop_interpreter
from tests.schedule.machine import run_machine_code


@dataclass
class Pipeline:
    """A padded blur of a scaled image, then sums of its rows: four stages, two of them reductions.

    ``scaled`` (7, 10) from ``image``, ``blur`` (7, 10) over three columns, ``rows`` (7,).
    """

    image: te.Tensor
    scaled: te.Tensor
    blur: te.Tensor
    rows: te.Tensor
    d: Any
    c: Any
    s: Schedule

    @property
    def args(self) -> list[te.Tensor]:
        return [self.image, self.rows]


def pipeline() -> Pipeline:
    image = te.placeholder((7, 12), name="image")
    scaled = te.compute((7, 12), lambda i, j: image[i, j] * 2 + 1, name="scaled")
    d = te.reduce_axis((0, 3), name="d")
    blur = te.compute((7, 10), lambda i, j: te.sum(scaled[i, j + d], axis=d), name="blur")
    c = te.reduce_axis((0, 10), name="c")
    rows = te.compute((7,), lambda i: te.sum(blur[i, c], axis=c), name="rows")
    return Pipeline(image, scaled, blur, rows, d, c, te.create_schedule(rows))


Step = Callable[[Pipeline], Any]


def tile_blur(p: Pipeline) -> None:
    i, j = p.blur.op.axis
    p.s[p.blur].tile(i, j, 2, 4)


def reorder_blur(p: Pipeline) -> None:
    i, j = p.blur.op.axis
    p.s[p.blur].reorder(p.d, j, i)


def vectorize_rest(p: Pipeline) -> None:
    j = p.scaled.op.axis[1]
    _, inner = p.s[p.scaled].split(j, factor=8)
    p.s[p.scaled].vectorize(inner)


def split_and_rfactor(p: Pipeline) -> None:
    outer, _ = p.s[p.rows].split(p.c, factor=5)
    p.s.rfactor(p.rows, outer)


def compute_at_tiles(p: Pipeline) -> None:
    i, j = p.blur.op.axis
    _, j_outer, _, _ = p.s[p.blur].tile(i, j, 2, 4)
    p.s[p.scaled].compute_at(p.s[p.blur], j_outer)


def transform_scaled(p: Pipeline) -> None:
    p.s.transform_layout(p.scaled, lambda i, j: [j // 4, i, j % 4])


def parallel_fused(p: Pipeline) -> None:
    stage = p.s[p.blur]
    stage.parallel(stage.fuse(*p.blur.op.axis))


def pragma_rows(p: Pipeline) -> None:
    p.s[p.rows].pragma(p.c, "unroll_and_jam", 2)


def back_to_root(p: Pipeline) -> None:
    p.s[p.scaled].compute_inline()
    p.s[p.scaled].compute_root()


WORKS: dict[str, Step] = {
    "split": lambda p: p.s[p.rows].split(p.c, nparts=3),
    "split_overlap": lambda p: p.s[p.scaled].split(p.scaled.op.axis[1], factor=8, tail="overlap"),
    "split_guard": lambda p: p.s[p.scaled].split(p.scaled.op.axis[1], factor=8, tail="guard"),
    "split_peel": lambda p: p.s[p.scaled].split(p.scaled.op.axis[1], factor=8, tail="peel"),
    "fuse": lambda p: p.s[p.scaled].fuse(*p.scaled.op.axis),
    "reorder": reorder_blur,
    "tile": tile_blur,
    "vectorize": vectorize_rest,
    "vectorize_reduction": lambda p: p.s[p.rows].vectorize(p.c),
    "unroll": lambda p: p.s[p.blur].unroll(p.d),
    "parallel": parallel_fused,
    "pragma": pragma_rows,
    "compute_at": compute_at_tiles,
    "compute_inline": lambda p: p.s[p.scaled].compute_inline(),
    "compute_root": back_to_root,
    "set_scope": lambda p: p.s[p.scaled].set_scope("local"),
    "cache_read": lambda p: p.s.cache_read(p.scaled, "local", [p.blur]),
    "cache_write": lambda p: p.s.cache_write(p.rows, "local"),
    "rfactor": split_and_rfactor,
    "transform_layout": transform_scaled,
}

REFUSED: dict[str, Step] = {
    "split": lambda p: p.s[p.rows].split(p.c, factor=2, tail="overlap"),
    "fuse": lambda p: p.s[p.blur].fuse(p.blur.op.axis[0], p.d),
    "reorder": lambda p: p.s[p.blur].reorder(p.d, p.c),
    "tile": lambda p: p.s[p.blur].tile(*p.blur.op.axis, 0, 4),
    "vectorize": lambda p: [p.s[p.blur].unroll(p.d), p.s[p.blur].vectorize(p.d)],
    "unroll": lambda p: p.s[p.blur].unroll(p.c),
    "parallel": lambda p: p.s[p.blur].parallel(p.d),
    "pragma": lambda p: p.s[p.blur].pragma(p.c, "unroll_and_jam"),
    "compute_at": lambda p: p.s[p.rows].compute_at(p.s[p.blur], p.d),
    "compute_inline": lambda p: p.s[p.blur].compute_inline(),
    "compute_root": lambda p: p.s["blurred"].compute_root(),
    "set_scope": lambda p: p.s[p.blur].set_scope("register"),
    "cache_read": lambda p: p.s.cache_read(p.scaled, "local", [p.rows]),
    "cache_write": lambda p: [p.s[p.rows].unroll(p.c), p.s.cache_write(p.rows, "local")],
    "rfactor": lambda p: p.s.rfactor(p.rows, p.rows.op.axis[0]),
    "transform_layout": lambda p: p.s.transform_layout(p.rows, lambda i: [i // 2, i % 2]),
}


@pytest.mark.parametrize("name", WORKS)
def test_makes_these_loops(name: str, golden: Callable[[str], None]) -> None:
    p = pipeline()
    WORKS[name](p)
    golden(f"{p.s.trace.to_python()}\n\n{program_text(lower_schedule(p.s, p.args))}")


@pytest.mark.parametrize("name", WORKS)
def test_computes_the_same_numbers(name: str) -> None:
    p = pipeline()
    image = np.arange(84, dtype="float32").reshape(7, 12) % 5
    (wanted,) = te.evaluate([p.rows], {p.image: image})
    WORKS[name](p)
    program = lower_schedule(p.s, p.args)
    np.testing.assert_array_equal(loop_interpreter.run_program(program, {"image": image})["rows"], wanted)
    np.testing.assert_array_equal(run_machine_code(p.s, p.args, {"image": image})["rows"], wanted)


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_with_this_message(name: str, golden: Callable[[str], None]) -> None:
    p = pipeline()
    with pytest.raises(ScheduleError) as refusal:
        REFUSED[name](p)
    golden(str(refusal.value))


@pytest.mark.parametrize("name", WORKS)
def test_traces_replay_from_json(name: str) -> None:
    p, again = pipeline(), pipeline()
    WORKS[name](p)
    Trace.from_json(p.s.trace.to_json()).apply(again.s)
    assert again.s.trace.key == p.s.trace.key
    assert program_text(lower_schedule(again.s, again.args)) == program_text(lower_schedule(p.s, p.args))
