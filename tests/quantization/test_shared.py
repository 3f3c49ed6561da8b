"""Compilations and predictions of one choice of precisions share work, and give what they would without."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotune.compiler import CompileRequest, compile_in_detail
from autotune.compiler.build.build import BuildTask
from autotune.compiler.devices.segments import part_of
from autotune.compiler.driver import predict_dispatches
from autotune.compiler.estimate import EstimateTask
from autotune.compiler.shared import SharedWork
from autotune.frontends import zoo
from autotune.passes.preference import Preference
from autotune.quantization.latencies import MixedModel
from autotune.quantization.precision import BFLOAT16, FLOAT32, INT8
from autotune.quantization.quantize import calibrate_model
from autotune.target import Target

SOME = {"x": np.random.default_rng(0).standard_normal((2, 3, 16, 16), dtype=np.float32)}


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_BUILDERS", "1")


@pytest.fixture(scope="module")
def mixed() -> MixedModel:
    model = zoo.load("tiny_cnn")
    request = CompileRequest(model, target=Target.parse("x86-64-v4", 1))
    return MixedModel(calibrate_model(model, SOME, threads=1), request, SOME)


def requests(mixed: MixedModel) -> list[CompileRequest]:
    """Return the model in float32, in eight bits, and in changing precisions, which share work."""
    kinds = (FLOAT32, INT8, "int8 weights", BFLOAT16)
    mixes = ((FLOAT32,), (INT8,), kinds, kinds[::-1])
    plans = [{p: mix[at % len(mix)] for at, p in enumerate(mixed.products)} for mix in mixes]
    return [mixed.request(plan) for plan in plans]


def counted(monkeypatch: pytest.MonkeyPatch, task: type[BuildTask] | type[EstimateTask]) -> list[Any]:
    """Return a list that gets each task of a type that runs."""
    ran, run = list[Any](), task.run

    def running(self: Any) -> Any:
        ran.append(self)
        return run(self)

    monkeypatch.setattr(task, "run", running)
    return ran


def test_shared_work_changes_no_code_and_no_prediction(mixed: MixedModel) -> None:
    for shared in requests(mixed):
        alone = replace(shared, shared=None)
        assert compile_in_detail(shared).image.same_code(compile_in_detail(alone).image)
        assert predict_dispatches(shared) == predict_dispatches(alone)


def test_code_and_estimates_of_a_workload_are_made_once(
    mixed: MixedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, estimates = counted(monkeypatch, BuildTask), counted(monkeypatch, EstimateTask)
    shared = SharedWork()
    for request in requests(mixed):
        compile_in_detail(replace(request, shared=shared))
    assert estimates
    assert len(built) == len({(task.planned.workload.key, task.planned.trace.key) for task in built})
    done = len(built), len(estimates)
    for request in requests(mixed):
        compile_in_detail(replace(request, shared=shared))
    assert (len(built), len(estimates)) == done


def test_a_model_is_divided_once_while_it_is_among_the_last(mixed: MixedModel) -> None:
    request = mixed.request(mixed.in_float32)
    target = request.one_target()
    first = part_of(request, target, None)
    assert part_of(mixed.request(mixed.in_float32), target, None) is first
    assert part_of(replace(request, layout="NCHW"), target, None) is not first
    for precision in (INT8, BFLOAT16):
        part_of(mixed.request(dict.fromkeys(mixed.products, precision)), target, None)
    assert part_of(request, target, None) is not first


def test_a_tolerance_has_rankings_of_its_own(mixed: MixedModel) -> None:
    request = mixed.request(mixed.in_float32)
    target = request.one_target()
    workloads = [dispatch.workload for dispatch in part_of(request, target, None).dispatches]
    shared = SharedWork()
    assert shared.rankings(workloads, target, Preference(), lambda new: {}) == {}
    assert shared.new(workloads, target, Preference()) == []
    assert shared.new(workloads, target, Preference(1e-2)) == workloads
    key = workloads[0].key
    assert shared.new(workloads, target, Preference(tolerances={key: 1e-2}))[0].key == key
