"""Loop nests that follow from schedules: they say of each candidate what its code does."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest

from autotune import te
from autotune.graph.region import Workload
from autotune.lower import lower_schedule
from autotune.lower.ir import expressions, nodes, walk
from autotune.schedule import Schedule
from autotune.te.expr import Select
from cost_models import analytic
from search_spaces.nest import Here, LoopNest
from search_spaces.nest.derive import About, Nests
from search_spaces.sketch import Sketch
from search_spaces.spaces import space_for
from tests.search_spaces import workloads as make
from tests.search_spaces.families import FIXED, LARGER

FEW_ROWS: dict[str, Callable[[], Workload]] = {
    "line": lambda: make.residual_add(1 << 22),
    "three rows": lambda: make.residual_add(3, 70_000),
    "fifteen rows": lambda: make.residual_add(15, 4099),
}
CASES = FIXED | LARGER | FEW_ROWS
SOME = pytest.mark.parametrize(("count", "every"), [(20, 8), pytest.param(60, 1, marks=pytest.mark.slow)])
"""So many candidates, of which one in so many is looked at alone."""


@pytest.mark.parametrize("count", [4, pytest.param(12, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", sorted(CASES))
def test_workers_share_as_many_tiles_as_the_code_has(name: str, count: int) -> None:
    """With few rows the columns are shared too: four million elements are no single tile."""
    space = space_for(CASES[name](), make.AVX512)
    population = space.population(np.random.default_rng(0), count)
    for rows, nest in space.loop_nests(population):
        for config, tiles in zip(population.take(rows), nest.tiles, strict=True):
            program = space.workload.program()
            lowered = lower_schedule(space.apply(program, config), list(program.args))
            assert tiles in {kernel.tiles for kernel in lowered.kernels}, config


@SOME
@pytest.mark.parametrize("name", sorted(CASES))
def test_a_prediction_is_the_same_in_any_company(name: str, count: int, every: int) -> None:
    space = space_for(CASES[name](), make.AVX512)
    population = space.population(np.random.default_rng(1), count)
    together = analytic.predict(space, population)
    rows = range(0, len(population), every)
    alone = [analytic.predict(space, [population.config(row)])[0] for row in rows]
    np.testing.assert_allclose(alone, together[::every], rtol=1e-9)


@SOME
@pytest.mark.parametrize("name", sorted(CASES))
def test_a_prediction_is_the_same_whichever_candidate_was_the_first(
    name: str, count: int, every: int
) -> None:
    """A path is replayed with the first candidate that takes it: panels of one row are panels of others' heights."""
    space = space_for(CASES[name](), make.AVX512)
    population = space.population(np.random.default_rng(1), count)
    together = analytic.predict(space, population)
    for row in range(0, min(12, len(population)), every):
        fresh = space_for(space.workload, make.AVX512)
        alone = analytic.predict(fresh, [population.config(row)])
        np.testing.assert_allclose(alone, together[row], rtol=1e-9, err_msg=str(population.config(row)))


@pytest.mark.parametrize("first", [2, 4, 8])
def test_pieces_of_long_rows_are_read_by_as_many_vectors_as_each_candidate_has(first: int) -> None:
    """Parts, steps and vectors are three digits of one position in the row."""
    workload = make.unary("ReduceMean", (2, 24576), axes=(1,))
    found = []
    for counts in ([2, 4, 8], [first]):
        space = space_for(workload, make.AVX512)
        base = space.default() | {"method": "partial", "parts": 4}
        seconds = analytic.predict(space, space.of([base | {"vectors": count} for count in counts]))
        found.append(dict(zip(counts, seconds, strict=True))[first])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9)


def nest_of(tensor: te.Tensor, function: Callable[[Schedule], object]) -> LoopNest:
    """The loop nest of a program under a schedule function without knobs."""
    ((_, nest),) = Nests(Sketch(function, [tensor]), About("program", 1.0, make.AVX512)).parts({})
    return nest


def stencil() -> te.Tensor:
    a = te.placeholder((130,), name="A")
    return te.compute((128,), lambda i: a[i] + a[i + 1] + a[i + 2], name="B")


def test_neighbours_in_vectors_are_loads_of_their_own() -> None:
    b = stencil()
    nest = nest_of(b, lambda s: s[b].vectorize(s[b].split(s[b].op.axis[0], factor=16)[1]))
    assert nest.body.loads.tolist() == [3]


def test_unrolled_iterations_share_the_elements_that_they_read() -> None:
    b = stencil()
    nest = nest_of(b, lambda s: s[b].unroll(s[b].split(s[b].op.axis[0], factor=4)[1]))
    assert nest.body.loads.tolist() == [6]


def test_iterations_that_are_written_out_share_arithmetic_and_have_no_conditions() -> None:
    a = te.placeholder((16,), name="A")

    def value(n: te.IterVar, i: te.IterVar) -> te.Expr:
        double = a[i] * 2.0
        return te.if_then_else(n == 0, double, double + 1.0)

    b = te.compute((2, 16), value, name="B")

    def schedule(s: Schedule) -> None:
        s[b].unroll(s[b].op.axis[0])
        s[b].vectorize(s[b].op.axis[1])

    assert nest_of(b, schedule).body.arithmetic.tolist() == [2]  # one product, one sum
    rolled = nest_of(b, lambda s: s[b].vectorize(s[b].op.axis[1]))
    assert rolled.body.arithmetic.tolist() == [2]  # the loop is cut where the condition changes
    (kernel,) = lower_schedule(te.create_schedule(b.op), [a, b]).kernels
    found = nodes(*(expr for stmt in walk(kernel.body) for expr in expressions(stmt)))
    assert not any(isinstance(node, Select) for node in found)


def test_conditions_over_lanes_are_part_of_the_body() -> None:
    a = te.placeholder((16,), name="A")
    b = te.compute((2, 16), lambda n, i: te.if_then_else(i < 9, a[i] * 2.0, a[i] + 1.0), name="B")
    nest = nest_of(b, lambda s: s[b].vectorize(s[b].op.axis[1]))
    assert nest.body.arithmetic.tolist() == [3]  # product, sum and selection


def test_the_remainder_of_a_loop_that_is_cut_decides_conditions() -> None:
    a = te.placeholder((12, 16), name="A")

    def value(h: te.IterVar, c: te.IterVar) -> te.Expr:
        others = te.if_then_else(h % 4 == 1, a[h, c] + 3.0, a[h, c] + 2.0)
        return te.if_then_else(h % 4 == 0, a[h, c] * 2.0 + 1.0, others)

    b = te.compute((12, 16), value, name="B")

    def schedule(s: Schedule) -> None:
        s[b].unroll(s[b].split(s[b].op.axis[0], factor=4)[1])
        s[b].vectorize(s[b].op.axis[1])

    assert nest_of(b, schedule).body.arithmetic.tolist() == [5]  # a product and four sums


def lines_of(nest: LoopNest, access: int, level: int) -> float:
    """Bytes of the lines that the first candidate touches in one run of a level."""
    at = Here(nest, np.asarray([level]), np.asarray([0]))
    return float(nest.touched[access].lines(at)[0])


def test_reads_at_constants_and_of_quotients_are_part_of_what_is_touched() -> None:
    a = te.placeholder((3, 4, 16), name="A")
    b = te.compute((16, 16), lambda h, c: a[0, h // 4, c] + a[2, h // 4, c], name="B")
    nest = nest_of(b, lambda s: s[b].vectorize(s[b].op.axis[1]))
    (read,) = (number for number, access in enumerate(nest.accesses) if not access.write)
    lines = [lines_of(nest, read, level) for level in range(len(nest.loops) + 1)]
    assert lines == [2 * 4 * 64, 2 * 64, 2 * 64]  # nothing is read between the two


def test_what_loops_beside_the_main_stage_walk_is_touched_too() -> None:
    a = te.placeholder((8, 64, 16), name="A")
    b = te.compute((8, 64, 16), lambda n, i, c: te.exp(a[n, i, c]), name="B")
    d = te.compute((8, 63, 16), lambda n, i, c: b[n, i, c] - b[n, i + 1, c], name="D")

    def schedule(s: Schedule) -> None:
        for stage in (s[b], s[d]):
            stage.vectorize(stage.op.axis[2])
        s[b].compute_at(s[d], s[d].op.axis[0])

    nest = nest_of(d, schedule)
    (written,) = (number for number, access in enumerate(nest.accesses) if access.write)
    assert lines_of(nest, written, 0) == 8 * 63 * 64


def test_loops_beside_the_main_stage_do_not_move_what_it_reads() -> None:
    """A block of 9 results reads 18 rows; one iteration of the main stage reads one of them."""
    a = te.placeholder((128, 16), name="A")
    b = te.compute((128, 16), lambda i, c: te.exp(a[i, c]), name="B")
    d = te.compute((63, 16), lambda i, c: b[2 * i, c] - b[2 * i + 1, c], name="D")

    def schedule(s: Schedule) -> None:
        for stage in (s[b], s[d]):
            stage.vectorize(stage.op.axis[1])
        block, _ = s[d].split(s[d].op.axis[0], factor=9)
        s[b].compute_at(s[d], block)

    nest = nest_of(d, schedule)
    (read,) = (number for number, access in enumerate(nest.accesses) if access.name == "A")
    levels = (0, 1, nest.body_level)
    assert [lines_of(nest, read, level) for level in levels] == [126 * 64, 18 * 64, 64]


def test_rows_that_are_visited_in_turns_share_sets_of_a_cache() -> None:
    """36 positions 32 KiB apart all start in one set; 36 that are 49 KiB apart start in four."""
    found = {}
    for size, channels in ((14, 512), (56, 64)):
        space = space_for(make.winograd_input((1, size, size, channels), 4), make.AVX512)
        population = space.of([{**space.default(), "walk": one, "vectors": 4} for one in ("tile", "row")])
        for rows, nest in space.loop_nests(population):
            (written,) = (number for number, access in enumerate(nest.accesses) if access.write)
            for row, count in zip(rows, nest.touched[written].in_one_set, strict=True):
                found[size, population.config(row)["walk"]] = count
    assert found == {(14, "tile"): 36, (14, "row"): 6, (56, "tile"): 9, (56, "row"): 1.5}


def test_sums_inside_a_block_share_what_they_share_in_a_dispatch_of_their_own() -> None:
    """However knobs divide rows and tiles into blocks, which sum an unrolled position takes is known."""
    last = space_for(make.winograd_output((1, 14, 14, 32), 4), make.AVX512)
    ((_, alone),) = last.loop_nests(last.of([{**last.default(), "walk": "tile"}]))
    fused = space_for(make.winograd_blocks((1, 14, 14, 16), 32, 4), make.AVX512)
    configs = [{**fused.default(), "block_rows": rows} for rows in (1, 2)]
    ((_, inside),) = fused.loop_nests(fused.of(configs))
    (sums,) = alone.rests
    assert (2 * sums.arithmetic.tolist()) in [rest.arithmetic.tolist() for rest in inside.rests]


def test_sums_of_dilated_tiles_share_what_they_share_without() -> None:
    """Phases are loops inside of those over places and around the positions: which sum one takes is known."""
    found = []
    for size, dilation in ((16, 1), (32, 2), (48, 3)):
        space = space_for(make.winograd_output((1, size, size, 32), 4, dilation=dilation), make.AVX512)
        ((_, nest),) = space.loop_nests(space.of([space.default()]))
        found.append(nest.body.arithmetic.tolist())
    assert found[0] == found[1] == found[2]


def test_a_panel_of_vectors_is_read_by_vectors() -> None:
    a = te.placeholder((9, 64), name="A")
    t = te.compute((9, 64), lambda k, n: a[k, n] * 2.0, name="T")
    k = te.reduce_axis((0, 9), name="k")
    b = te.compute((64,), lambda n: te.sum(t[k, n], axis=k), name="B")

    def schedule(s: Schedule) -> None:
        s.transform_layout(t, lambda k, n: [n // 16, k, n % 16])
        _, inner = s[b].split(s[b].op.axis[0], factor=48)
        vectors, lanes = s[b].split(inner, factor=16)
        s[b].reorder(s[b].op.reduce_axis[0], vectors, lanes)
        s[b].unroll(vectors)
        s[b].vectorize(lanes)

    assert nest_of(b, schedule).body.loads.tolist() == [3]


def test_copies_across_lines_take_instructions() -> None:
    a = te.placeholder((64, 64), name="A")
    t = te.compute((64, 64), lambda i, j: a[j, i], name="T")
    k = te.reduce_axis((0, 64), name="k")
    b = te.compute((64, 64), lambda i, j: te.sum(t[i, k] * t[k, j], axis=k), name="B")
    assert len(nest_of(b, lambda s: s[t].vectorize(s[t].op.axis[1])).rests) == 1
    assert not nest_of(b, lambda s: s[t].compute_inline()).rests


def test_conditions_that_divide_by_a_written_out_axis_are_decided_as_the_code_does() -> None:
    """At 0 the quotient is 0, as in the code."""
    a = te.placeholder((16,), name="A")
    b = te.compute((2, 2, 16), lambda n, m, i: te.if_then_else(n // m == 0, a[i], a[i] * 2.0), name="B")

    def schedule(s: Schedule) -> None:
        n, m, i = s[b].op.axis
        s[b].unroll(n)
        s[b].unroll(m)
        s[b].vectorize(i)

    assert nest_of(b, schedule).body.arithmetic.tolist() == [
        4
    ]  # one product for one of four, at least one each


@pytest.mark.parametrize("shape", [(4, 0), (0, 4), (0,)])
def test_tensors_without_elements_are_predicted_without_warnings(shape: tuple[int, ...]) -> None:
    space = space_for(make.unary("Relu", shape), make.AVX512)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seconds = analytic.predict(space, space.population(np.random.default_rng(0), 8))
    assert np.all(np.isfinite(seconds))


def test_loads_cross_lines_of_operands_that_the_call_gives_and_other_rows_load_again() -> None:
    """The begin of an array is known of constants alone; values of attention are multiplied with what is computed."""
    found = {}
    workloads = {
        "constant": make.matmul(64, 64, 64),
        "given": make.matmul(64, 64, 64, constant=False),
        "attention": make.attention((1, 2, 32, 64), 32, 64),
    }
    for name, workload in workloads.items():
        space = space_for(workload, make.AVX512)
        config = space.default() | {"pack": False, "copy_values": False}
        known = {knob: value for knob, value in config.items() if knob in space.names}
        ((_, nest),) = space.loop_nests(space.of([known]))
        found[name] = float(np.max(nest.body.split)) > 0
    assert found == {"constant": False, "given": True, "attention": False}
