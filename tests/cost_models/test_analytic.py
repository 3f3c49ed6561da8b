"""The analytic model's choice among candidates that it cannot tell apart."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from autotune.errors import KnobError
from autotune.graph.build import GraphBuilder
from autotune.schedule.knob import Config
from cost_models import analytic
from cost_models.machine import Machine
from cost_models.terms import Terms, terms
from search_spaces.space import Space
from search_spaces.spaces import space_for
from tests.search_spaces.workloads import (
    AVX512,
    conv,
    host,
    matmul,
    of,
    pool,
    unary,
    winograd_input,
    winograd_output,
)


def test_weights_from_memory_hide_behind_arithmetic_for_the_most_part() -> None:
    workload, machine = conv((1, 14, 14, 256), 256, 3, pad=1), Machine.of(AVX512)
    streamed = (
        9 * 256 * 256 * 4 / min(machine.core_stream * AVX512.threads, machine.all_streams) / machine.hertz
    )
    assert streamed < analytic.in_model(1e-6, workload, AVX512) < 1.01 * streamed + 1e-6
    found = analytic.in_model(1e-2, workload, AVX512)
    assert found == pytest.approx(1e-2 + machine.exposed * streamed, rel=1e-3)


def test_equal_candidates_keep_their_knobs_at_the_defaults() -> None:
    space = space_for(conv((1, 7, 7, 64), 64, 3, pad=1), host())
    chosen = analytic.default_config(space)
    others = space.neighbourhood(space.of([chosen]))
    equal = np.flatnonzero(analytic.predict(space, others) == analytic.default_seconds(space))

    def departures(config: Config) -> int:
        return sum(config[knob.name] != knob.default for knob in space.knobs)

    assert len(equal)
    assert all(departures(others.config(row)) >= departures(chosen) for row in equal)
    assert analytic.default_config(space)["pack"]


def test_staging_in_blocks_that_hang_over_the_edge_is_charged() -> None:
    """Rows of 28: blocks of 4 divide them, blocks of 6 do not, and test each vector that they stage.

    With first-level caches of 32 KiB; in those of 48 KiB the blocks that are staged stay, which pays for the tests.
    """
    target = replace(AVX512, cpu="cascadelake", l1_bytes=32 << 10, l2_bytes=1 << 20, l3_bytes=32 << 20)
    space = space_for(conv((1, 56, 56, 16), 64, 3, pad=1, stride=2), target)

    def extra(outer_rows: int, row_block: int) -> float:
        common = {**space.default(), "rows": 2, "outer_rows": outer_rows, "row_block": row_block}
        staged, whole = (space.check({**common, "stage": where}) for where in ("block", "root"))
        seconds = analytic.predict(space, [staged, whole])
        return float(seconds[0] - seconds[1])

    assert extra(3, 1) > extra(2, 1)
    assert extra(3, 1) > 0


def test_pools_larger_than_the_caches_visit_pixels_from_end_to_end() -> None:
    """The farther apart neighbouring vectors of channels are visited, the worse do prefetchers follow."""
    space = space_for(pool((1, 764, 764, 64), op="AveragePool", kernel_shape=(3, 3), strides=(1, 1)), AVX512)
    best = {**analytic.default_config(space), "row_block": 0}
    assert best["vectors"] == 4
    walks = [{**best, "vectors": 1, "rows": 2, "tile_order": order} for order in ("rows", "vector")]
    whole, near, far = analytic.predict(space, [best, *walks])
    assert whole < near < far


def test_a_large_transpose_reads_lines_of_a_page_each_side_by_side() -> None:
    """Prefetchers follow a few lines in pages of their own, so wide blocks that walk along them are no worse."""
    b = GraphBuilder("transpose")
    found = of(b, b.node("Transpose", b.input("x", (1, 64, 764, 764)), perm=(0, 2, 3, 1)))
    config = analytic.default_config(space_for(found, AVX512))
    assert config["walk"] == "input"
    assert config["tile"] >= 16
    assert config["parallel"]


def test_vectors_of_an_operand_given_at_the_call_may_cross_lines() -> None:
    """NumPy's arrays begin anywhere at multiples of 16 bytes; panels begin at lines."""
    given, constant = (
        space_for(matmul(256, 256, 256, constant=known, relu=False), AVX512) for known in (False, True)
    )
    assert analytic.default_config(given)["pack"]
    here, there = (space.check({**space.default(), "pack": False}) for space in (given, constant))
    assert analytic.predict(given, [here])[0] > analytic.predict(constant, [there])[0]


def test_a_large_transpose_reads_no_more_lines_than_prefetchers_follow() -> None:
    b = GraphBuilder("transpose")
    found = of(b, b.node("Transpose", b.input("x", (6112, 6112)), perm=(1, 0)))
    space = space_for(found, AVX512)
    config = analytic.default_config(space)
    assert (config["vectors"], config["ahead"], config["stream"]) == (1, 256, True)
    with pytest.raises(KnobError, match="lines are not walked along"):
        space.check({**config, "walk": "output"})


def test_windows_whose_positions_lie_in_one_set_are_walked_by_rows() -> None:
    """Positions 32 KiB apart evict each other from the first cache; 12.25 pages apart they do not."""
    zen4 = replace(AVX512, cpu="znver4")
    apart = space_for(winograd_input((1, 14, 14, 512), 4), zen4)
    assert analytic.default_config(apart)["walk"] == "row"
    spread = space_for(winograd_output((1, 56, 56, 64), 4), zen4)
    assert analytic.default_config(spread)["walk"] == "tile"


@pytest.mark.parametrize(("mebibytes", "streams"), [(4, False), (32, True)])
def test_a_zen4_streams_what_its_last_cache_loses_and_fetches_no_long_runs(
    mebibytes: int, streams: bool
) -> None:
    """Relu takes 1.4 times as long with streaming in 4 MiB, 0.65 of the time in 32 MiB; fetching never gains."""
    zen4 = replace(AVX512, cpu="znver4", l3_bytes=32 << 20)
    config = analytic.default_config(space_for(unary("Relu", (mebibytes << 18,)), zen4))
    assert (config["ahead"], config["stream"]) == (0, streams)
    rows = analytic.default_config(space_for(unary("Softmax", (mebibytes << 7, 2048)), zen4))
    assert rows["stream"] == streams


@pytest.mark.parametrize(("rows", "columns"), [(1024, 768), (1024, 896), (2048, 768)])
def test_a_transpose_that_stays_in_the_last_cache_is_not_stored_past_it(rows: int, columns: int) -> None:
    """On a Zen 4 storing past the caches takes 1.1 to 1.3 times as long, whichever way blocks of lines go."""
    b = GraphBuilder("transpose")
    found = of(b, b.node("Transpose", b.input("x", (rows, columns)), perm=(1, 0)))
    space = space_for(found, replace(AVX512, cpu="znver4", l3_bytes=32 << 20).with_threads(1))
    assert not analytic.default_config(space)["stream"]
    for tile, walk in itertools.product((8, 16, 32), ("input", "output")):
        common = {**space.default(), "tile": tile, "walk": walk}
        kept, streamed = analytic.predict(space, [{**common, "stream": stream} for stream in (False, True)])
        assert kept < streamed


def test_packed_panels_have_no_rows_that_evict_each_other() -> None:
    """The rows of the weights lie 4 KiB apart, but are read as panels; those of an unpacked matrix evict each other."""
    zen4 = replace(AVX512, cpu="znver4")
    space = space_for(matmul(1024, 1024, 1024), zen4)
    common = {**space.default(), "rows": 6, "vectors": 4, "row_block": 0, "vector_block": 1, "tail": "peel"}
    packed, plain = (space.check({**common, "pack": pack}) for pack in (True, False))
    evicted = [found(space, config).conflicts[0] for config in (packed, plain)]
    assert evicted[0] == 0.0
    assert evicted[1] > 0.0


def test_a_row_that_is_written_again_and_again_stays_in_the_first_cache() -> None:
    """Memory moves a softmax's input and output only, stored exponentials or not."""
    space = space_for(unary("Softmax", (2048, 2048)), host())
    stored, inline = (
        space.check({**analytic.default_config(space), "method": "partial", "store": store})
        for store in ("row", "inline")
    )
    moved = [found(space, config).traffic.l2[0] for config in (stored, inline)]
    assert moved[0] <= 1.05 * moved[1]


def found(space: Space, config: Config) -> Terms:
    """The terms of one candidate."""
    ((_, nest),) = space.loop_nests(space.of([config]))
    return terms(nest, Machine.of(space.target))
