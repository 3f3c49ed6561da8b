"""Build workers: a helper gives what this process gives."""

import json

import pytest

from autotune.codegen import wire
from autotune.compiler.build.build import BuildTask, answer_build
from autotune.compiler.dividing import distinct_workloads, divide
from autotune.compiler.estimate import EstimateTask, answer_estimate
from autotune.compiler.planned import GIVEN, Planned, schedule_for
from autotune.passes.options import options_of
from autotune.target import Target
from cost_models import analytic

TARGET = Target.parse("x86-64-v3")
DEVICES = {
    "groups": Target.parse("opencl-generic"),
    "an item a tile": Target("opencl", "opencl", ("cpu", "fp64"), 256, cores=4, threads=4, group_items=4096),
    "PTX": Target.parse("cuda:sm_80"),
}


@pytest.fixture
def workload():
    return next(w for w in distinct_workloads(divide("zoo:tiny_cnn")) if len(options_of(w)) > 1)


def through_a_pipe(data):
    return json.loads(json.dumps(data))


def test_code_of_a_helper(workload):
    task = BuildTask(schedule_for(workload, TARGET, None, {}), TARGET)
    made = task.result(through_a_pipe(answer_build(through_a_pipe(task.request()))))
    assert wire.to_json(made) == wire.to_json(task.run())


@pytest.mark.parametrize("name", DEVICES)
def test_code_of_devices_of_a_helper(workload, name):
    task = BuildTask(schedule_for(workload, DEVICES[name], None, {}), DEVICES[name])
    made, own = task.result(through_a_pipe(answer_build(through_a_pipe(task.request())))), task.run()
    assert made.kernels == own.kernels
    assert (made.kernels[0].launch.grid is None) == (name == "an item a tile")


def test_estimates_of_a_helper_and_the_defaults_behind_them(workload):
    task = EstimateTask(options_of(workload), TARGET, 1.02)
    answer = through_a_pipe(answer_estimate(through_a_pipe(task.request())))
    assert task.result(answer) == task.run()
    assert answer["defaults"]
    found = analytic.remembered({key for key, *_ in answer["defaults"]})
    assert all(default in through_a_pipe(found) for default in answer["defaults"])


def test_only_this_process_builds_what_a_helper_may_not_know_or_tell(workload, monkeypatch, tmp_path):
    planned = schedule_for(workload, TARGET, None, {})
    assert BuildTask(Planned(workload, planned.trace, GIVEN), TARGET).request() is None
    monkeypatch.setenv("AUTOTUNE_DUMP", str(tmp_path))
    assert BuildTask(planned, TARGET).request() is None
