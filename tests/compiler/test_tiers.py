"""The schedule of a workload that was measured for other targets or in other sizes only."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autotune.compiler import compile_in_detail
from autotune.compiler.planned import Planned, schedule_for
from autotune.compiler.request import CompileRequest
from autotune.compiler.tiers import Tier
from autotune.database import (
    Comparison,
    Database,
    Key,
    Latency,
    Origin,
    Outcome,
    Ratio,
    Run,
    State,
    WorkloadRow,
)
from autotune.database.records import SAME_CODE
from autotune.errors import MissError
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.graph.region import Workload
from autotune.schedule.knob import Config, config_to_json
from autotune.target import Target
from autotune.tuning.api import query
from cost_models import analytic
from search_spaces.projection import projected
from search_spaces.spaces import space_for

TWO = Target.parse("x86-64-v3", threads=2)
ONE = Target.parse("x86-64-v3", threads=1)


def product(m: int, k: int, n: int) -> Graph:
    b = GraphBuilder("product")
    w = np.ones((k, n), dtype=np.float32)
    return b.graph(b.node("MatMul", b.input("x", (m, k)), b.constant("w", w), name="y"))


def workload_of(m: int, k: int, n: int) -> Workload:
    from autotune.compiler import divide

    return divide(product(m, k, n)).dispatches[0].workload


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuning.db") as store:
        yield store


def other_config(workload: Workload, target: Target) -> Config:
    """A candidate of other code near the analytic default, that the model likes almost as much."""
    space = space_for(workload, target)
    default = analytic.default_config(space)
    around = space.neighbourhood(space.of([default]))
    liked = (around.config(int(row)) for row in np.argsort(analytic.predict(space, around)))
    trace = space.schedule(default).trace
    return next(config for config in liked if space.schedule(config).trace != trace)


def tuned(
    store: Database, workload: Workload, target: Target, gain: float, chosen: Config | None = None
) -> Config:
    """Store the default and a candidate that was confirmed to take ``gain`` of its latency."""
    space = space_for(workload, target)
    key = Key(workload.key, target.key, space.key)
    store.add_workload(
        WorkloadRow(workload.key, workload.text, workload.kind, workload.flops, workload.bytes)
    )
    store.add_target(target)
    store.add_space(space.key, workload.key, json.dumps(space.to_json()))
    configs = {
        Origin.DEFAULT: analytic.default_config(space),
        Origin.SEARCH: chosen or other_config(workload, target),
    }
    for origin, config in configs.items():
        trace, took = space.schedule(config).trace, Latency(5, 1e5, 1e5, 0.0)
        text = config_to_json(config)
        store.record(
            Run(key, trace.key, trace.to_json(), text, Outcome.OK, took, origin=origin, created=time.time())
        )
    default, best = store.records(workload=workload.key, target=target.key)
    changed = gain != 1
    rows = [
        Comparison(default.trace_key, space.key, Latency(9, 1e5, 1e5, 1.0), not changed, run=default.id),
        Comparison(
            best.trace_key,
            space.key,
            Latency(9, 1e5 * gain, 1e5 * gain, 1.0),
            changed,
            Ratio(gain, (0.99 * gain, 1.01 * gain)),
            run=best.id,
        ),
    ]
    store.compared(workload.key, target.key, "schedule", rows, "net")
    return configs[Origin.SEARCH]


def served(workload: Workload, target: Target, store: Database) -> Planned:
    return schedule_for(workload, target, store, {})


def test_what_was_tuned_with_two_threads_serves_one(database: Database) -> None:
    workload = workload_of(64, 64, 64)
    best = tuned(database, workload, TWO, 0.5)
    found = served(workload, ONE, database)
    space = space_for(workload, ONE)
    assert (found.tier, found.evidence.state) == (Tier.TARGET, State.TRANSFERRED)
    config = projected(space, best, analytic.default_config(space))
    assert found.trace == space.schedule(config).trace
    assert found.transfer is not None
    assert found.transfer.ratio.median < 0.6
    assert "threads: 1 here, 2 there" in found.reason


def test_compile_and_query_resolve_alike_and_say_from_which_tier(database: Database) -> None:
    workload = workload_of(64, 64, 64)
    tuned(database, workload, TWO, 0.5)
    model = product(64, 64, 64)
    compilation = compile_in_detail(CompileRequest(model, target=ONE, database=database))
    (answer,) = query(model, target=ONE, database=database)
    assert str(compilation.coverage) == (
        "0 of 1 dispatch tuned, 0 % of FLOPs; 1 transferred; schedules: 1 compatible target"
    )
    assert answer.planned is not None
    assert answer.planned.trace == served(workload, ONE, database).trace
    assert answer.tier is Tier.TARGET
    assert answer.transfer is not None
    assert answer.latency_ns is not None
    assert answer.default_ns == pytest.approx(answer.latency_ns / answer.transfer.ratio.median)
    assert compilation.coverage.dispatches[0].known.startswith("compatible target: expected ")


def test_requiring_hits_refuses_what_was_not_searched_here(database: Database) -> None:
    tuned(database, workload_of(64, 64, 64), TWO, 0.5)
    with pytest.raises(MissError, match="nothing was searched for 1 of 1 dispatch"):
        compile_in_detail(
            CompileRequest(product(64, 64, 64), target=ONE, require_hit=True, database=database)
        )


def test_a_schedule_that_is_expected_to_be_slower_is_not_used(database: Database) -> None:
    workload = workload_of(64, 64, 64)
    tuned(database, workload, TWO, 1.5)
    space = space_for(workload, ONE)
    found = served(workload, ONE, database)
    assert found.trace == space.schedule(analytic.default_config(space)).trace


def test_where_only_the_default_was_measured_its_latency_is_what_is_transferred(database: Database) -> None:
    from tests.database.examples import record

    workload = workload_of(64, 64, 64)
    space = space_for(workload, TWO)
    default = analytic.default_config(space)
    trace = space.schedule(default).trace.to_json()
    record(database, workload, TWO, trace, 1e5, origin=Origin.DEFAULT, config=config_to_json(default))
    found = served(workload, ONE, database)
    here = space_for(workload, ONE)
    assert found.trace == here.schedule(analytic.default_config(here)).trace
    assert (found.tier, found.evidence.state) == (Tier.TARGET, State.DEFAULT)
    assert found.transfer is not None
    assert found.transfer.ratio == SAME_CODE
    predicted = analytic.default_seconds(here) / analytic.default_seconds(space)
    assert found.transfer.latency_ns == pytest.approx(1e5 * predicted)
    low, high = found.transfer.interval_ns
    assert low < 0.6 * found.transfer.latency_ns
    assert high > 1.7 * found.transfer.latency_ns
    assert "there default, not searched" in found.reason


def test_what_was_measured_of_the_workload_itself_says_more_than_a_default_of_other_sizes(
    database: Database,
) -> None:
    from tests.database.examples import record

    known, asked = workload_of(64, 64, 64), workload_of(128, 64, 64)
    tuned(database, known, ONE, 1.0)  # where the default won
    assert served(asked, ONE, database).tier is Tier.SHAPE
    space = space_for(asked, TWO)
    default = analytic.default_config(space)
    trace = space.schedule(default).trace.to_json()
    record(database, asked, TWO, trace, 1e5, origin=Origin.DEFAULT, config=config_to_json(default))
    assert served(asked, ONE, database).tier is Tier.TARGET


@pytest.mark.parametrize(
    "other",
    [
        Target.parse("x86-64-v4", threads=1),
        replace(ONE, features=(*ONE.features, "avxvnni")),
        Target.parse("x86-64-v2", threads=1),
    ],
    ids=["wider vectors", "an instruction that is lacking", "narrower vectors"],
)
def test_what_is_not_compatible_is_never_used(database: Database, other: Target) -> None:
    workload = workload_of(64, 64, 64)
    tuned(database, workload, other, 0.5)
    found = served(workload, ONE, database)
    assert (found.tier, found.evidence.state) == (Tier.ANALYTIC, State.DEFAULT)


@pytest.mark.parametrize(
    "asked",
    [
        replace(TWO, cores=3),
        replace(TWO, cores=1, threads=1),
        replace(TWO, threads=4, cores=4),
        replace(TWO, l2_bytes=8 * TWO.l2_bytes),
        replace(TWO, cpu="other", device="another processor"),
        replace(TWO, features=(*TWO.features, "avxvnni"), cpu="other", cores=3),
    ],
    ids=["a core more", "a core fewer", "more threads", "another cache", "another name", "more instructions"],
)
def test_what_is_compatible_serves(database: Database, asked: Target) -> None:
    workload = workload_of(64, 64, 64)
    tuned(database, workload, TWO, 0.5)
    found = served(workload, asked, database)
    assert found.tier is Tier.TARGET
    assert found.transfer is not None
    named = {difference.field for difference in found.transfer.source.differences}
    fields = {"l2_bytes": "l2", "features": "instructions"}
    changed = {name for name, value in vars(asked).items() if value != getattr(TWO, name)}
    assert named == {fields.get(name, name) for name in changed}


def test_the_farther_a_target_the_less_is_known_and_the_more_must_be_gained(database: Database) -> None:
    workload = workload_of(64, 64, 64)
    far = replace(ONE, cores=64, l1_bytes=48 << 10, l2_bytes=2 << 20, l3_bytes=480 << 20, device="another")
    targets = [replace(ONE, l2_bytes=2 * ONE.l2_bytes), TWO, far, far.with_threads(64)]
    tuned(database, workload, ONE, 0.5)
    found = [served(workload, target, database).transfer for target in targets]
    assert all(transfer is not None and transfer.tier is Tier.TARGET for transfer in found)
    widths = [one.ratio.interval[1] / one.ratio.interval[0] for one in found if one and one.ratio.interval]
    assert sorted(widths) == widths
    assert len({round(width, 3) for width in widths}) == 4
    losses = [one.source.apart.loss for one in found if one is not None]
    assert sorted(losses) == losses
    assert losses[0] > 0


@pytest.mark.parametrize("gain", [0.5, 0.93])
def test_a_small_gain_is_used_near_and_not_far(database: Database, gain: float) -> None:
    workload = workload_of(64, 64, 64)
    tuned(database, workload, ONE, gain)
    near, far = replace(ONE, cores=2), replace(ONE, cores=64, l3_bytes=480 << 20, device="another")
    taken = [served(workload, target, database).transfer for target in (near, far)]
    assert all(transfer is not None for transfer in taken)
    kept = [transfer.ratio != SAME_CODE for transfer in taken if transfer is not None]
    # The model's opinion of the candidate is the same on both.
    assert kept == [True, gain == 0.5]


def test_the_nearest_shape_serves_where_the_workload_is_unknown(database: Database) -> None:
    for m, gain in ((64, 0.5), (256, 0.4)):
        tuned(database, workload_of(m, 64, 64), ONE, gain)
    asked = workload_of(72, 64, 64)
    found = served(asked, ONE, database)
    assert (found.tier, found.evidence.state) == (Tier.SHAPE, State.TRANSFERRED)
    assert found.transfer is not None
    assert found.transfer.source.key.workload == workload_of(64, 64, 64).key
    assert str(found.transfer.source.differences[0]) == ("i0: float32[72, 64] here, float32[64, 64] there")
    tuned(database, asked, TWO, 0.5)
    assert served(asked, ONE, database).tier is Tier.TARGET  # the same workload comes first


def test_what_the_model_dislikes_here_is_not_taken_from_another_size(database: Database) -> None:
    known, asked = workload_of(64, 64, 64), workload_of(72, 64, 64)
    space, other = space_for(known, ONE), space_for(asked, ONE)
    otherwise = analytic.default_config(other)
    candidates = space.random(np.random.default_rng(0), 64)
    there = [projected(other, config, otherwise) for config in candidates]
    found = dict(zip(map(float, analytic.predict(other, there)), candidates, strict=True))
    twice = 2 * analytic.default_seconds(other)
    disliked = min(found, key=lambda seconds: abs(seconds - twice))
    assert 1.3 < disliked / analytic.default_seconds(other) < 4
    tuned(database, known, ONE, 0.2, found[disliked])
    assert served(asked, ONE, database).tier is Tier.ANALYTIC
    assert served(known, TWO, database).tier is Tier.TARGET


def test_what_is_projected_is_legal_in_any_space() -> None:
    rng = np.random.default_rng(0)
    sizes = [(1, 32, 10), (64, 64, 64), (72, 300, 17), (3, 2048, 130)]
    targets = [ONE, TWO, Target.parse("x86-64-v4", threads=4)]
    spaces = [space_for(workload_of(*size), target) for size in sizes for target in targets]
    for space in spaces:
        otherwise = space.default()
        for other in spaces:
            for config in other.random(rng, 5):
                found = projected(space, config, otherwise)
                assert space.check(found) == found
    for space in spaces:
        (config,) = space.random(rng, 1)
        assert projected(space, config, space.default()) == config
