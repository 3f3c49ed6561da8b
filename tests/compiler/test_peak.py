"""The least peak memory of a model: what saves nothing at the peak stays as fast as it is."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from autotune.compiler import compile_in_detail, distinct_workloads, divide
from autotune.compiler.build.workers import BuildWorkers
from autotune.compiler.memory.peak import least_peak
from autotune.compiler.memory.saving import Footprints
from autotune.compiler.plan import Plan
from autotune.compiler.planned import GIVEN, Planned
from autotune.compiler.request import CompileRequest
from autotune.database import Footprint
from autotune.database.goal import Goal, Objective
from autotune.target import Target

PARTS = divide("zoo:tiny_cnn")
WORKLOADS = distinct_workloads(PARTS)
TARGET = Target.detect(threads=2)
A, B = WORKLOADS[0].key, WORKLOADS[-1].key
LARGE = 64 << 20
"""More than everything else in the model."""


def takes(workspace: int, scratch: int) -> Footprint:
    return Footprint(workspace + scratch, 1000, scratch)


def chosen(
    fast: Mapping[str, Footprint], small: Mapping[str, Footprint]
) -> tuple[set[str], list[int | None]]:
    """The workloads that are not as in the fastest plan, and the limits of scratch memory that were tried."""
    limits: list[int | None] = []

    def planned(goal: Goal) -> Plan:
        limits.append(goal.most_scratch)
        schedules = {}
        for workload in WORKLOADS:
            ways = {"fast": fast.get(workload.key, takes(0, 0))}
            if workload.key in small and not goal.is_latency:
                ways["small"] = small[workload.key]
            name = min(ways, key=lambda name: goal.order(ways[name], 1.0)) if len(ways) > 1 else "fast"
            trace = cast(Any, SimpleNamespace(key=name))
            schedules[workload.key] = Planned(workload, trace, GIVEN, footprint=ways[name])
        return Plan({}, schedules, dict.fromkeys(schedules, goal))

    goal = Goal(Objective.MEMORY)
    plan = least_peak(PARTS, WORKLOADS, goal, planned, Footprints(TARGET, BuildWorkers()))
    return {key for key, found in plan.schedules.items() if found.trace.key == "small"}, limits


def test_only_what_lowers_the_peak_is_used() -> None:
    fast = {A: takes(2 * LARGE, 0), B: takes(LARGE, 0)}
    assert chosen(fast, {A: takes(LARGE, 0), B: takes(64, 0)})[0] == {A}
    assert chosen(fast, {A: takes(64, 0), B: takes(64, 0)})[0] == {A, B}


def test_scratch_memory_that_others_need_anyway_is_free() -> None:
    fast = {A: takes(LARGE, 0), B: takes(0, LARGE // 2)}
    small = {A: takes(0, LARGE // 2)}
    assert chosen(fast, small)[0] == {A}
    assert chosen(fast, {A: takes(0, LARGE)})[0] == set()  # it would be the most scratch memory of all


def test_less_scratch_memory_is_tried_until_there_is_no_way_with_less() -> None:
    fast = {A: takes(0, LARGE), B: takes(0, LARGE // 2)}
    found, limits = chosen(fast, {A: takes(LARGE // 4, 0)})
    assert found == {A}
    assert limits == [None, LARGE, LARGE - 1, LARGE // 2 - 1]


@pytest.mark.parametrize("slowdown", [1.0, 100.0])
def test_a_compilation_for_memory_takes_no_more_than_the_fastest(slowdown: float) -> None:
    fastest, least = (
        compile_in_detail(
            CompileRequest("zoo:tiny_cnn", target=TARGET, objective=objective, max_slowdown=slowdown)
        )
        for objective in ("latency", "memory")
    )
    peaks = [done.image.arena_bytes + done.image.scratch_bytes(2) for done in (fastest, least)]
    assert peaks[1] <= peaks[0]
    assert len(least.image.objects) == len({d.workload_key for d in least.image.dispatches})
