"""Candidates of OpenCL devices in the measuring pool: built, compiled by the driver, checked, timed, isolated."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.compiler import compile_in_detail, distinct_workloads, divide
from autotune.compiler.request import CompileRequest
from autotune.database import Database, Outcome
from autotune.errors import UsageError
from autotune.graph.region import Workload
from autotune.runtime.module import Module
from autotune.target import Target
from autotune.tuning.measure import worker
from autotune.tuning.measure.device_run import DeviceRun, device_of
from autotune.tuning.measure.interface import Built, Candidate
from autotune.tuning.measure.pool import Limits, ProcessPool
from cost_models import analytic
from search_spaces.spaces import space_for
from tests.codegen.opencl_device import needs_opencl, opencl_target
from tests.patience import PATIENCE_S
from tests.product import write_product

pytestmark = needs_opencl
Answer = dict[str, Any]


@pytest.fixture(scope="module")
def workload() -> Workload:
    """Its weights are packed, by this machine."""
    return next(w for w in distinct_workloads(divide("zoo:tiny_cnn")) if w.kind == "contraction")


@pytest.fixture(scope="module")
def built(workload: Workload) -> tuple[Answer, Answer]:
    target = opencl_target()
    config = analytic.default_config(space_for(workload, target))
    asked = {"workload": workload.text, "target": target.to_json(), "config": config, "seed": 0}
    answer = worker.build(asked)
    assert "failed" not in answer, answer
    return asked, json.loads(json.dumps(answer))


def changed(payload: Mapping[str, Any], before: str, after: str) -> Answer:
    """The same code with other text in its last kernel."""
    source = base64.b64decode(payload["object"]).decode()
    assert before in source
    source = after.join(source.rsplit(before, 1))
    return {**payload, "object": base64.b64encode(source.encode()).decode()}


def measured(asked: Answer, payload: Mapping[str, Any]) -> Answer:
    return worker.measure({**asked, "payloads": [payload], "default_ns": None})


END = "\n}\n__attribute__"


def last_buffer(payload: Mapping[str, Any]) -> str:
    return f"b{len(payload['kernels'][-1]['buffers']) - 1}"


def test_a_good_candidate_is_timed_by_the_device(built: tuple[Answer, Answer]) -> None:
    asked, answer = built
    worker.prepare(asked)
    found = measured(asked, answer["payload"])
    assert found["outcome"] == "ok", found
    assert found["latency"]["min_ns"] > 0


def test_what_a_candidate_writes_wrong_or_elsewhere_is_seen(built: tuple[Answer, Answer]) -> None:
    asked, answer = built
    payload, out = answer["payload"], last_buffer(answer["payload"])
    wrong = measured(asked, changed(payload, END, f"\n  {out}[0] = 1e6f;{END}"))
    assert (wrong["outcome"], "above the tolerance" in wrong["message"]) == ("wrong_result", True)
    beside = measured(asked, changed(payload, END, f"\n  {out}[-1] = 1.0f;{END}"))
    assert beside["outcome"] == "out_of_bounds"
    assert beside["message"] == "wrote beside its outputs, from 4 bytes before their begin"


def test_code_that_the_driver_refuses_fails_where_it_is_built(
    built: tuple[Answer, Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    from autotune.codegen.opencl import backend

    emit = backend.emit_program

    def too_much(*args: Any) -> Any:
        text, entries = emit(*args)
        return text.replace("_body(", "_body(\n#error local memory\n", 1), entries

    monkeypatch.setattr(backend, "emit_program", too_much)
    failed = worker.build(built[0])["failed"]
    assert failed["outcome"] == "compile_error"
    assert "the OpenCL driver does not compile the code" in failed["message"]


def test_a_group_too_large_is_an_error_of_the_candidate(built: tuple[Answer, Answer]) -> None:
    asked, answer = built
    huge = opencl_target().group_items * 2
    source = base64.b64decode(answer["payload"]["object"]).decode()
    source = source.replace('"block":[1,1,1]', f'"block":[{huge},1,1]').replace(
        "(1, 1, 1)", f"({huge}, 1, 1)"
    )
    payload = {**answer["payload"], "object": base64.b64encode(source.encode()).decode()}
    found = measured(asked, payload)
    assert (found["outcome"], found.get("latency")) == ("crashed", None)


def test_a_kernel_that_hangs_is_one_timeout_and_the_next_is_measured(
    workload: Workload, built: tuple[Answer, Answer]
) -> None:
    asked, answer = built
    candidate = Candidate(workload.text, asked["target"], asked["config"])
    good = Built(candidate, answer["trace_key"], answer["trace_json"], payload=answer["payload"])
    out = f"((volatile __global float *){last_buffer(answer['payload'])})[0]"
    endless = f"\n  while ({out} == {out}) {{}}{END}"
    bad = replace(good, payload=changed(answer["payload"], END, endless))
    with closing(ProcessPool(1, Limits(run_s=1.0))) as pool:
        assert pool.measure(bad, float("inf")).outcome is Outcome.TIMEOUT
        pool.limits = Limits(run_s=PATIENCE_S)
        assert pool.measure(good, float("inf")).outcome is Outcome.OK


def test_readings_of_a_model_have_a_row_a_run_and_a_column_a_dispatch() -> None:
    image = compile_in_detail(CompileRequest("zoo:mlp", target="opencl")).image
    x = np.random.default_rng(0).standard_normal((32, 784), dtype=np.float32)
    run = DeviceRun(image, device_of(image.target), [x])
    assert run.profiles(3).shape == (3, len(image.dispatches))
    assert (run.profiles(1) > 0).all()
    assert (run.time(2) > 0).all()
    with Module(image) as module:
        np.testing.assert_array_equal(run.outputs()[0], module(x)[0])


@pytest.mark.usefixtures("shared_pools")
def test_runs_are_stored_under_the_device_and_found_when_compiling(tmp_path: Path) -> None:
    database, model = tmp_path / "opencl.db", write_product(tmp_path / "product.onnx")

    def enough(event: autotune.TuningEvent) -> None:
        if event.trials >= 2:
            raise autotune.StopTuning

    many = autotune.Budget(trials=1000)
    autotune.tune(model, target="opencl", budget=many, database=database, quiet=True, callback=enough)
    with Database(database) as store:
        runs = list(store.records(target=opencl_target().key))
        assert len(runs) >= 2
        assert {run.outcome for run in runs} == {Outcome.OK}
    with autotune.compile(model, target="opencl", database=database) as module:
        sources = {dispatch.schedule_source for dispatch in module.dispatches}
        assert any(source != "default, not searched" for source in sources), sources


def test_targets_that_are_not_here_are_refused() -> None:
    with pytest.raises(UsageError, match="tuning measures on devices of this machine, and none is"):
        autotune.tune("zoo:tiny_cnn", target="opencl-generic", budget="1s", quiet=True)
    with pytest.raises(UsageError, match="compute units and uses them all: leave out threads"):
        autotune.tune(
            "zoo:tiny_cnn", target="opencl", threads=opencl_target().cores + 1, budget="1s", quiet=True
        )


def test_another_version_of_the_driver_is_another_target() -> None:
    target = opencl_target()
    assert target.driver
    assert replace(target, driver="later").key != target.key
    assert Target.from_json(target.to_json()) == target
