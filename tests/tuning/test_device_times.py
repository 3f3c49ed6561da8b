"""Times of compiled parts on devices, and the makespan that they promise."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from autotune.compiler import Compilation, CompileRequest, compile_in_detail
from autotune.errors import UsageError
from autotune.runtime.hal.cpu.cores import core_ids
from autotune.runtime.hal.cpu.driver import open_cores
from autotune.tuning.placement.device_times import around, expected_of, image_times, whole_seconds
from tests.compiler.test_placed import info
from tests.graph.graphs import small_convnet
from tests.tuning.simulated import Ticks


def compiled(rules: dict[str, str]) -> Compilation:
    request = CompileRequest(small_convnet(), placement=rules)
    return compile_in_detail(request, devices={name: info(name) for name in ("one", "two")})


@pytest.fixture
def devices():
    with open_cores("one", core_ids()[:1]) as one, open_cores("two", core_ids()[-1:]) as two:
        yield {"one": one, "two": two}


def test_the_makespan_of_a_program_has_its_steps_in_their_order(devices):
    done = compiled({"Conv": "two", "*": "one"})
    expected = expected_of(done.program, devices)
    runs = [step.device for step in done.program.steps if step.kind == "run"]
    assert [task.lane for task in expected.run.tasks if task.lane] == runs
    assert all(task.duration > 0 for task in expected.tasks if task.lane)
    assert 0 < sum(expected.run.busy.values()) < expected.run.total < expected.seconds


def test_dispatches_add_up_to_the_whole(devices):
    image = compiled({"*": "one"}).program.images[0]
    times = image_times(devices["one"], image)
    assert len(times.dispatches) == len(image.dispatches)
    assert times.launch + sum(times.dispatches) == pytest.approx(times.whole)
    assert min(times.dispatches) >= 0


def test_a_device_may_be_slowed_for_tests(monkeypatch):
    rested: list[float] = []
    clock = SimpleNamespace(perf_counter=Ticks(1.0), sleep=rested.append)
    monkeypatch.setattr("autotune.runtime.hal.slowdown.time", clock)
    image = compiled({"*": "one"}).program.images[0]
    with open_cores("one", core_ids()[:1]) as device:
        assert whole_seconds(device, image) > 0
    assert rested == []
    monkeypatch.setenv("AUTOTUNE_SLOWDOWN", "other=2,one=100")
    with open_cores("one", core_ids()[:1]) as device:
        assert whole_seconds(device, image) > 0
    assert {*rested} == {99.0}  # each run takes a second of this clock
    for wrong in ("one", "one=0.5", "one=much", "=2"):
        monkeypatch.setenv("AUTOTUNE_SLOWDOWN", wrong)
        with pytest.raises(UsageError) as caught:
            open_cores("one", core_ids()[:1])
        assert str(caught.value) == (
            f"AUTOTUNE_SLOWDOWN={wrong!r}: {wrong!r} is not DEVICE=FACTOR, a factor from 1 to 1000"
        )


def test_a_request_has_a_beginning_and_an_answer():
    from autotune.runtime.hal.rates import DeviceRates

    one, two = DeviceRates(1.0, 2.0, 3.0, 5.0, 0.25), DeviceRates(1.0, 4.0, 3.0, 4.0, 0.5)
    assert around({"one": one, "two": two}) == 5.5
