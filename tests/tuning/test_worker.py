"""The real worker, in this process: candidates of a small region are built, checked and timed."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from autotune.codegen import wire
from autotune.compiler import distinct_workloads, divide
from autotune.errors import LoweringError
from autotune.graph.build import GraphBuilder
from autotune.graph.region import Workload
from autotune.passes.options import options_of
from autotune.schedule.trace import Trace
from autotune.target import Target
from autotune.tuning.measure import check, timing, worker
from cost_models import analytic
from search_spaces.space import Space
from search_spaces.spaces import space_for
from tests.search_spaces import workloads as make

TARGET = Target.detect(threads=1)


@pytest.fixture(scope="module")
def workload() -> Workload:
    found = [w for w in distinct_workloads(divide("zoo:tiny_cnn")) if w.kind == "contraction"]
    return found[0]


@pytest.fixture(scope="module")
def space(workload: Workload) -> Space:
    return space_for(workload, TARGET)


def request(space: Space, config: Any) -> dict[str, Any]:
    texts = {"workload": space.workload.text, "target": TARGET.to_json()}
    return {**texts, "config": config, "seed": 0}


def through_a_pipe(value: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(json.dumps(value)))


def built(space: Space) -> tuple[dict[str, Any], dict[str, Any]]:
    asked = through_a_pipe(request(space, analytic.default_config(space)))
    answer = through_a_pipe(worker.build(asked))
    assert "failed" not in answer, answer
    return asked, answer


def test_a_good_candidate_is_ok_and_its_trace_replays(space: Space) -> None:
    asked, answer = built(space)
    measured = worker.measure({**asked, "payloads": [answer["payload"]], "default_ns": None})
    assert measured["outcome"] == "ok"
    assert measured["error"] <= 1e-4
    assert 0 < measured["latency"]["min_ns"] <= measured["latency"]["median_ns"]
    assert Trace.from_json(answer["trace_json"]).key == answer["trace_key"]


def test_a_wrong_candidate_is_never_timed(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answer = built(space)
    prepared = worker._prepared(asked["workload"], 0)
    wrong = dataclasses.replace(prepared, reference=[r + 0.01 for r in prepared.reference])
    monkeypatch.setattr(worker, "_prepared", lambda *_: wrong)
    monkeypatch.setattr(worker, "time_candidate", lambda *_: pytest.fail("was timed"))
    measured = worker.measure({**asked, "payloads": [answer["payload"]], "default_ns": 1e6})
    assert measured["outcome"] == "wrong_result"
    assert "is above the tolerance" in measured["message"]


def test_what_was_prepared_is_kept_while_there_is_room(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    text = space.workload.text
    first = worker._prepared(text, 0)
    assert worker._prepared(text, 0) is first
    other = worker._prepared(text, 1)
    assert worker._prepared(text, 0) is first
    monkeypatch.setattr(worker, "_ROOM", 1)
    assert worker._prepared(text, 0) is first
    assert worker._prepared(text, 1) is not other


def test_an_illegal_configuration_says_what_is_wrong(space: Space) -> None:
    answer = worker.build(request(space, {"nonsense": 1}))
    assert answer["failed"]["outcome"] == "illegal"
    assert "nonsense" in answer["failed"]["message"]


@pytest.mark.parametrize(
    ("error", "outcome", "words"),
    [
        (LoweringError("no such loop"), "illegal", "no such loop"),
        (ZeroDivisionError("oops"), "compile_error", "ZeroDivisionError: oops at "),
        (MemoryError(), "out_of_memory", "out of memory"),
    ],
)
def test_every_exception_of_building_is_an_outcome(
    space: Space, monkeypatch: pytest.MonkeyPatch, error: Exception, outcome: str, words: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("autotune.lower.program.lower_schedule", fail)
    answer = worker.build(request(space, analytic.default_config(space)))
    assert answer["failed"]["outcome"] == outcome
    assert words in answer["failed"]["message"]
    assert answer["trace_key"]


def test_damaged_code_is_a_crash_not_an_exception(space: Space) -> None:
    asked, answer = built(space)
    payload = {**answer["payload"], "object": "AAAA"}
    measured = worker.measure({**asked, "payloads": [payload], "default_ns": None})
    assert measured["outcome"] == "crashed"
    assert measured["message"]


def test_code_survives_the_wire(space: Space) -> None:
    _, answer = built(space)
    code = wire.from_json(answer["payload"])
    assert through_a_pipe(wire.to_json(code)) == answer["payload"]


@pytest.mark.parametrize(
    ("output", "reference", "error"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.2], [1.0, 2.0], 0.1),
        ([1.0, np.nan], [1.0, np.nan], 0.0),
        ([1.0, np.nan], [1.0, 2.0], np.inf),
        ([1.0, np.inf], [1.0, -np.inf], np.inf),
        ([1e-3, 0.0], [0.0, 0.0], np.inf),
        ([], [], 0.0),
    ],
)
def test_relative_error(output: list[float], reference: list[float], error: float) -> None:
    found = check.relative_error([np.array(output)], [np.array(reference)])
    assert found == pytest.approx(error, abs=1e-12)


def test_relative_error_of_integers_and_other_shapes() -> None:
    ones = np.ones(3, np.int64)
    assert check.relative_error([ones], [ones]) == 0.0
    assert check.relative_error([ones + 1], [ones]) == float("inf")
    assert check.relative_error([ones], [np.ones(4, np.int64)]) == float("inf")
    assert check.relative_error([ones], [np.ones(3, np.int32)]) == float("inf")


def test_tolerance_grows_with_the_sum_up_to_a_limit() -> None:
    assert check.tolerance("float32", 1) < check.tolerance("float32", 100)
    assert check.tolerance("float32", 10**9) == 1e-4
    assert check.tolerance("int32", 100) == 0.0


def test_sums_of_one_sign_are_checked_where_they_are_long_enough_to_show_anything() -> None:
    short, long = check.can_lose_precision("float32", 1000), check.can_lose_precision("float32", 10_000)
    assert (short, long) == (False, True)
    assert not check.can_lose_precision("int32", 10**9)
    values = np.abs(np.random.default_rng(0).standard_normal(1 << 20, np.float32))
    exact = values.sum(dtype=np.float64)
    assert abs(values.sum() - exact) / exact < check.same_sign_tolerance("float32", values.size) < 0.005
    halves = float(np.add.accumulate(values.astype(np.float16))[-1])
    assert abs(halves - exact) / exact > check.same_sign_tolerance("float16", values.size)


def test_a_candidate_that_loses_precision_in_sums_of_one_sign_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space = space_for(make.matmul(3, 4096, 5, relu=False), TARGET)
    asked, answer = built(space)
    request = {**asked, "payloads": [answer["payload"]], "default_ns": None}
    prepared = worker._prepared(asked["workload"], 0)
    assert prepared.same_sign is not None
    assert all(array.min() >= 0 for array in prepared.same_sign.arrays)
    assert worker.measure(request)["outcome"] == "ok"
    lossy = [reference * np.float32(1.001) for reference in prepared.same_sign.reference]
    again = dataclasses.replace(prepared.same_sign, reference=lossy)
    monkeypatch.setattr(worker, "_prepared", lambda *_: dataclasses.replace(prepared, same_sign=again))
    measured = worker.measure(request)
    assert measured["outcome"] == "wrong_result"
    assert measured["message"].endswith("for inputs of one sign: its sums lose precision")


def test_a_candidate_that_seems_slow_gets_more_time_to_show_how_fast_it_is() -> None:
    def found(*times: float) -> float:
        source = iter(times)
        return timing.time_candidate(lambda n: np.array([next(source) for _ in range(n)]), 4e6).min_ns

    assert found(9e6, 9e6, 6.1e6, *[9e6, 4e6] * 100) == 4e6
    assert found(5e6, 9e6, 9e6, *[9e6, 4e6] * 100) == 5e6
    always = timing.time_candidate(lambda n: np.resize([1e6, 3e6, 3e6], n), np.inf)
    never = timing.time_candidate(lambda n: np.full(n, 1e6), np.inf)
    assert never.n < always.n < 10 * never.n


def test_timing_stops_early_when_not_clearly_slower() -> None:
    def sampler(ns: float) -> tuple[timing.Sample, list[int]]:
        asked: list[int] = []

        def sample(repeat: int) -> Any:
            asked.append(repeat)
            return np.full(repeat, ns)

        return sample, asked

    slow, slow_asked = sampler(1e6)
    fast, fast_asked = sampler(1e6)
    assert timing.time_candidate(slow, 1e5).min_ns == timing.time_candidate(fast, 2e6).min_ns == 1e6
    assert sum(fast_asked) < sum(slow_asked)
    found = timing.statistics(np.array([4.0, 1.0, 3.0, 2.0]))
    assert (found.n, found.min_ns, found.median_ns, found.spread_ns) == (4, 1.0, 2.5, 1.5)


@pytest.fixture(scope="module")
def convolution() -> Workload:
    b = GraphBuilder("convolution")
    w = np.random.default_rng(0).standard_normal((8, 4, 3, 3)).astype(np.float32)
    x = b.node("Conv", b.input("x", (1, 4, 9, 9)), b.constant("w", w), pads=(1, 1, 1, 1))
    return divide(b.graph(b.node("Relu", x))).dispatches[0].workload


def built_options(workload: Workload) -> list[dict[str, Any]]:
    asked = []
    for option in options_of(workload):
        payloads = {}
        for region in option.regions:
            _, answer = built(space_for(region, TARGET))
            payloads[region.key] = answer["payload"]
        common = {"workload": workload.text, "target": TARGET.to_json(), "seed": 0}
        asked.append({**common, "name": option.name, "payloads": payloads})
    return asked


def test_whole_options_are_checked(convolution: Workload) -> None:
    results = [through_a_pipe(worker.check(asked)) for asked in built_options(convolution)]
    assert [result["outcome"] for result in results] == ["ok"] * len(options_of(convolution))
    for result, option in zip(results[1:], options_of(convolution)[1:], strict=True):
        assert result["error"] < (option.error or 1e-6)


def test_options_of_products_that_take_no_float64_are_checked() -> None:
    b = GraphBuilder("convolution")
    x, w = b.input("x", (1, 9, 9, 4), "bfloat16"), b.input("w", (3, 3, 4, 16), "bfloat16")
    y = b.node("ShortConv", x, w, layout="NHWC", pads=(1, 1, 1, 1))
    asked = built_options(make.of(b, b.node("Relu", y), {"w"}))
    assert len(asked) > 1
    assert [worker.check(each)["outcome"] for each in asked] == ["ok"] * len(asked)


def test_an_option_that_is_less_exact_than_it_declares_is_wrong(
    convolution: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = built_options(convolution)
    *others, last = options_of(convolution)
    proud = dataclasses.replace(last, error=1e-12)
    monkeypatch.setattr(worker, "options_of", lambda _: (*others, proud))
    assert [worker.check(one)["outcome"] for one in asked] == ["ok"] * len(others) + ["wrong_result"]
