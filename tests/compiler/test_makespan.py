"""The makespan of tasks with durations that are made up, and programs as tasks."""

from __future__ import annotations

import random

import pytest

from autotune.compiler.devices.makespan import LaneTask, makespan
from autotune.compiler.devices.tasks import FlowStep, TaskFlow, tasks_of
from autotune.runtime.hal.buffer import HOST_SPACE
from autotune.runtime.hal.rates import DeviceRates


def test_devices_work_beside_each_other_and_one_at_a_time_each():
    branches = [
        LaneTask("a", 2.0),
        LaneTask("a", 3.0, (0,)),
        LaneTask("b", 4.0, (0,)),
        LaneTask("a", 1.0, (1, 2)),
    ]
    run = makespan(branches)
    assert [(t.task, t.begin, t.end) for t in run.tasks] == [(0, 0, 2), (1, 2, 5), (2, 2, 6), (3, 6, 7)]
    assert run.total == 7.0
    assert run.busy == {"a": 6.0, "b": 4.0}
    assert makespan([]).total == 0.0


def test_what_is_ready_first_begins_first():
    tasks = [LaneTask("a", 5.0), LaneTask("b", 1.0), LaneTask("b", 9.0, (0,)), LaneTask("b", 2.0, (1,))]
    assert [task.task for task in makespan(tasks).tasks] == [0, 1, 3, 2]


def test_a_lane_that_is_free_does_not_begin_before_a_handover():
    tasks = [LaneTask("a", 1.0), LaneTask("b", 0.5), LaneTask("b", 1.0, (0,), handover=10.0)]
    assert makespan(tasks).tasks[-1].begin == 11.0


def test_submitting_takes_the_caller_time_and_another_lane_is_woken():
    first = LaneTask("a", 1.0, submission=0.5, handover=0.25)
    then = LaneTask("a", 1.0, (0,), submission=0.5, handover=0.25)
    other = LaneTask("b", 1.0, (1,), submission=0.5, handover=0.25)
    begins = [task.begin for task in makespan([first, then, other]).tasks]
    assert begins == [1.75, 2.75, 4.0]  # awake after the first; woken for the last
    assert [
        t.begin for t in makespan([LaneTask("a", submission=9.0), LaneTask("b", submission=9.0)]).tasks
    ] == [18.0] * 2


def test_a_task_without_a_lane_takes_nothing():
    run = makespan(
        [LaneTask("a", 1.0), LaneTask("", 7.0, (0,)), LaneTask("b", 1.0, (1,)), LaneTask("c", 1.0, (1,))]
    )
    assert [task.begin for task in run.tasks] == [0.0, 1.0, 1.0, 1.0]
    assert set(run.busy) == {"a", "b", "c"}


def test_lanes_that_share_a_core_take_turns():
    both, one, other = frozenset((0, 1)), frozenset((0,)), frozenset((1,))
    tasks = [
        LaneTask("both", 4.0, cores=both),
        LaneTask("one", 2.0, cores=one),
        LaneTask("other", 3.0, cores=other),
        LaneTask("both", 1.0, (1,), cores=both),
    ]
    assert [(t.task, t.begin) for t in makespan(tasks).tasks] == [(0, 0.0), (1, 4.0), (2, 4.0), (3, 7.0)]


def test_a_task_cannot_wait_for_a_later_one():
    with pytest.raises(ValueError, match=r"^task 0 waits for task 1, which does not come before it$"):
        makespan([LaneTask("a", waits=(1,)), LaneTask("a")])


def test_what_waits_for_the_cores_of_another_lane_is_not_forgotten():
    both, one = frozenset({0, 1}), frozenset({0})
    tasks = [
        LaneTask("b", 5.0, cores=both),
        LaneTask("c", 1.0),
        LaneTask("a", 2.0, (1,), cores=one),
        LaneTask("b", 1.0, (2,), cores=both),
    ]
    found = makespan(tasks)
    assert sorted(task.task for task in found.tasks) == [0, 1, 2, 3]
    assert [(task.task, task.begin) for task in found.tasks] == [(0, 0.0), (1, 0.0), (2, 5.0), (3, 7.0)]
    assert found.total == 8.0


def test_only_the_cores_of_the_task_that_is_first_are_waited_for():
    one, other = frozenset({0}), frozenset({1})
    tasks = [LaneTask("a", 5.0, cores=one), LaneTask("b", 1.0, cores=other), LaneTask("b", 1.0, cores=one)]
    assert [(each.task, each.begin) for each in makespan(tasks).tasks] == [(0, 0.0), (1, 0.0), (2, 5.0)]


RATES = dict.fromkeys(("cpu:0", "cpu:1", "far"), DeviceRates(0.0, 0.5, 0.01))
CORES = {"cpu:0": (0,), "cpu:1": (1,), "far": ()}
SPACES = {"cpu:0": HOST_SPACE, "cpu:1": HOST_SPACE, "far": "far"}


def flow(devices: list[str]) -> TaskFlow:
    """Stages on devices, one after another, with copies between them."""
    steps, homes = list[FlowStep](), {"x": devices[0]}
    value = "x"
    for number, device in enumerate(devices):
        if homes[value] != device:
            steps.append(FlowStep(True, device, (value,), (f"{value}@{device}",)))
            value = f"{value}@{device}"
            homes[value] = device
        steps.append(FlowStep(False, device, (value,), (f"y{number}",)))
        value = f"y{number}"
        homes[value] = device
    return TaskFlow(tuple(steps), ("x",), (value,), homes, dict.fromkeys(homes, 100))


def test_a_copy_within_one_memory_is_nothing():
    tasks = tasks_of(flow(["cpu:0", "cpu:1"]), [2.0, 0.0, 3.0], RATES, SPACES, CORES)
    assert [(task.lane, task.duration) for task in tasks] == [("cpu:0", 2.0), ("", 0.0), ("cpu:1", 3.0)]
    assert makespan(tasks).total == 0.5 + 2.0 + 0.5 + 3.0


def test_a_device_with_memory_of_its_own_copies_what_goes_there_and_back():
    tasks = tasks_of(flow(["cpu:0", "far", "cpu:0"]), [2.0, 0.0, 3.0, 0.0, 1.0], RATES, SPACES, CORES)
    lanes = [task.lane for task in tasks]
    assert lanes == ["cpu:0", "far transfers", "far", "far transfers", "cpu:0"]
    assert makespan(tasks).total == 0.5 + 2.0 + 0.5 + 1.0 + 0.5 + 3.0 + 0.5 + 1.0 + 0.5 + 1.0
    alone = tasks_of(flow(["far"]), [3.0], RATES, SPACES, CORES)
    assert [task.lane for task in alone] == ["far transfers", "far", "far transfers"]


def test_runs_do_not_change():
    run = makespan([LaneTask("a", 1.0)])
    for value in (LaneTask("a"), run, run.tasks[0]):
        with pytest.raises(AttributeError):
            value.lane = "b"
    assert LaneTask("a") == LaneTask("a", 0.0, (), 0.0, 0.0, frozenset())


def random_tasks(rng):
    """Tasks of a few lanes that wait for earlier ones, in whole units of time."""
    cores = {"a": frozenset({0}), "b": frozenset({0, 1}), "c": frozenset({2}), "d": frozenset()}
    tasks = []
    for number in range(rng.randint(1, 9)):
        lane = rng.choice(["a", "b", "c", "d", ""])
        waits = tuple(sorted(rng.sample(range(number), min(number, rng.randint(0, 3)))))
        times = [rng.randint(0, 4) / 2 for _ in range(3)]
        tasks.append(LaneTask(lane, times[0], waits, times[1] / 4, times[2], cores.get(lane, frozenset())))
    return tasks


@pytest.mark.parametrize("seed", range(200))
def test_any_run_keeps_the_rules_of_lanes_cores_and_waiting(seed):
    tasks = random_tasks(random.Random(seed))
    run = makespan(tasks)
    submitted = sum(task.submission for task in tasks)
    when = {each.task: each for each in run.tasks}
    assert sorted(when) == list(range(len(tasks))) == sorted(each.task for each in run.tasks)
    assert [each.begin for each in run.tasks] == sorted(each.begin for each in run.tasks)
    assert run.total == max(each.end for each in run.tasks)
    busy = dict.fromkeys((task.lane for task in tasks if task.lane), 0.0)
    ready = {}
    for number, task in enumerate(tasks):
        each = when[number]
        assert (each.lane, each.end - each.begin) == (task.lane, task.duration if task.lane else 0.0)
        if task.lane:
            busy[task.lane] += task.duration
        woken = [when[w].end + (task.handover if tasks[w].lane != task.lane else 0.0) for w in task.waits]
        ready[number] = max([submitted + task.handover, *woken])
        assert each.begin >= ready[number]
    assert run.busy == busy
    for first in range(len(tasks)):
        for other in range(first):
            a, b = tasks[first], tasks[other]
            if a.lane and b.lane and (a.lane == b.lane or a.cores & b.cores):
                assert when[first].begin >= when[other].end or when[other].begin >= when[first].end
            if a.lane and a.lane == b.lane:  # what was ready first begins first
                early, late = sorted((first, other), key=ready.__getitem__)
                assert ready[early] == ready[late] or when[early].begin <= when[late].begin


def test_nothing_waits_that_could_begin():
    """A task begins when it is ready, or when its lane or a core of it gets free."""
    for seed in range(200):
        tasks = random_tasks(random.Random(seed))
        run = makespan(tasks)
        submitted = sum(task.submission for task in tasks)
        when = {each.task: each for each in run.tasks}
        for number, task in enumerate(tasks):
            woken = [when[w].end + (task.handover if tasks[w].lane != task.lane else 0.0) for w in task.waits]
            blockers = [
                when[n].end
                for n, other in enumerate(tasks)
                if task.lane
                and n != number
                and other.lane
                and (other.lane == task.lane or other.cores & task.cores)
            ]
            assert when[number].begin in {submitted + task.handover, *woken, *blockers}
