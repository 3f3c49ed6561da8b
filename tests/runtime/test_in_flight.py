"""Requests in flight over several devices: stages overlap, errors and cancellations stay where they belong."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.errors import (
    DeviceClosedError,
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
    DeviceTimeoutError,
    InputError,
    UsageError,
)
from autotune.graph.text import parse_graph
from autotune.runtime.cpu import layout
from autotune.runtime.hal.cpu.cores import core_ids, parts
from autotune.runtime.hal.cpu.driver import open_cores
from autotune.runtime.hal.device import Device
from autotune.runtime.hal.queue import Submission
from autotune.runtime.module import Module
from autotune.runtime.programs.device_program import DeviceProgram
from autotune.runtime.programs.program_request import RequestMemory, Submitted
from tests.patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.skipif(len(core_ids()) < 2, reason="one core is no two devices")

STAGES = """graph stages {
  input x: float32[4, 8]
  a = Mul(x, x) : float32[4, 8] on cpu:0
  b = Softmax(a) {axis=1} : float32[4, 8] on cpu:1
  y = Neg(b) : float32[4, 8] on cpu:0
  output y
}"""
X = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)


def answer(x: np.ndarray) -> np.ndarray:
    e = np.exp(x * x - (x * x).max(axis=1, keepdims=True))
    return np.asarray(-e / e.sum(axis=1, keepdims=True))


@pytest.fixture(scope="module")
def program() -> DeviceProgram:
    with autotune.compile(parse_graph(STAGES)) as made:
        return made.compiled.cases[0].program


@pytest.fixture
def devices() -> Iterator[dict[str, Device]]:
    opened = {f"cpu:{n}": open_cores(f"cpu:{n}", cores) for n, cores in enumerate(parts()[:2])}
    yield opened
    for device in opened.values():
        device.close()


class Gate:
    """Lets a device's runs begin one by one, or fail."""

    def __init__(self, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered = threading.Semaphore(0)
        self.let = threading.Semaphore(0)
        self.errors: dict[int, Exception] = {}
        self.count = 0
        run = device.engine.run

        def gated(*arguments: Any) -> bool:
            number = self.count
            self.count += 1
            self.entered.release()
            assert self.let.acquire(timeout=PATIENCE_S)
            if number in self.errors:
                raise self.errors[number]
            return run(*arguments)

        monkeypatch.setattr(device.engine, "run", gated)

    def open(self) -> None:
        for _ in range(1000):
            self.let.release()


def first_step(submitted: Submitted) -> Submission:
    """That of a request, once it has begun."""
    wait_until(lambda: len(submitted) >= 3, "a request begins")
    return submitted[0][1]


def check(requests: list[Any], inputs: list[np.ndarray]) -> None:
    for request, x in zip(requests, inputs, strict=True):
        np.testing.assert_allclose(request.result(PATIENCE_S)[0], answer(x), 1e-5, 1e-6)


def test_a_stage_of_the_next_request_runs_beside_the_next_stage_of_this_one(program, devices, monkeypatch):
    gate = Gate(devices["cpu:1"], monkeypatch)
    inputs = [X + n for n in range(4)]
    with Module(program, devices=devices) as module:
        made: list[Submitted] = [[] for _ in inputs]
        requests = [
            module.loaded._submit([x], None, None, each) for x, each in zip(inputs, made, strict=True)
        ]
        assert gate.entered.acquire(timeout=PATIENCE_S)  # the first one is in its second stage
        for each in made[:3]:
            first_step(each).wait(PATIENCE_S)  # and the first stage of all that are in flight has ended
        assert not any(request.done() for request in requests)
        assert [len(each) for each in made] == [3, 3, 3, 0]  # the fourth has not begun
        gate.open()
        check(requests, inputs)


def test_many_threads_submit_and_each_gets_its_own_answer(program, devices):
    wrong: list[object] = []
    with Module(program, devices=devices) as module:

        def client(number: int) -> None:
            inputs = [X + np.float32(0.01 * (50 * number + n)) for n in range(50)]
            try:
                check(module.submit_all([(x,) for x in inputs]), inputs)
                check([module.submit(inputs[0])], [module(inputs[0])[0] * 0 + inputs[0]])
            except Exception as error:  # noqa: BLE001 - shown below
                wrong.append(error)

        threads = [threading.Thread(target=client, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert module.loaded._requests.memories <= 3


def test_memory_stays_as_it_is(program, devices):
    allocators = [device.allocator for device in devices.values()]
    with Module(program, devices=devices, in_flight=2) as module:
        check(module.submit_all([(X,)] * 4), [X] * 4)
        module(X)
        before = [allocator.statistics.live for allocator in allocators]
        check(module.submit_all([(X,)] * 100), [X] * 100)
        assert module.loaded._requests.memories == 2
        assert [allocator.statistics.live for allocator in allocators] == before
    assert [allocator.statistics.live for allocator in allocators] == [0, 0]


def test_requests_can_be_awaited_and_cancelled(program, devices, monkeypatch):
    gate = Gate(devices["cpu:1"], monkeypatch)

    async def main() -> list[list[np.ndarray]]:
        return await asyncio.gather(*(module.submit(X + n) for n in range(5)))

    with Module(program, devices=devices, in_flight=1) as module:
        first, second, third = module.submit_all([(X + n,) for n in range(3)])
        assert gate.entered.acquire(timeout=PATIENCE_S)
        assert second.cancel()
        gate.open()
        check([first, third], [X, X + 2])
        with pytest.raises(CancelledError):
            second.result()
        for found, n in zip(asyncio.run(main()), range(5), strict=True):
            np.testing.assert_allclose(found[0], answer(X + n), 1e-5, 1e-6)


def test_a_request_that_runs_is_cancelled_alone(program, devices, monkeypatch):
    gate = Gate(devices["cpu:1"], monkeypatch)
    with Module(program, devices=devices) as module:
        made: list[Submitted] = [[], []]
        first, second = (module.loaded._submit([X + n], None, None, each) for n, each in enumerate(made))
        assert gate.entered.acquire(timeout=PATIENCE_S)  # the first is in its second stage
        assert second.cancel()
        with pytest.raises(CancelledError):
            second.result(PATIENCE_S)
        assert second.cancelled()
        gate.open()
        check([first], [X])
        assert not first.cancel()
        assert gate.count == 1  # the second stage of the cancelled one never began
        check([module.submit(X)], [X])


def test_a_request_behind_its_deadline_fails_alone(program, devices, monkeypatch):
    gate = Gate(devices["cpu:1"], monkeypatch)
    with Module(program, devices=devices, in_flight=2) as module:
        made: list[Submitted] = [[], [], [], []]
        first = module.loaded._submit([X], None, None, made[0])
        assert gate.entered.acquire(
            timeout=PATIENCE_S
        )  # the first is in its second stage, for which the second one waits
        second, third, fourth = (
            module.loaded._submit([X + n], None, None, made[n], deadline=600) for n in range(1, 4)
        )
        first_step(made[1]).wait(PATIENCE_S)
        for request, submitted in (
            (second, made[1]),
            (third, made[2]),
        ):  # of these the third has no memory yet
            request.row[layout.DEADLINE_NS] = 1
            for _, submission in submitted:
                submission._deadline_ns = 1
        gate.open()
        check([first, fourth], [X, X + 3])
        for late in (second, third):
            with pytest.raises(
                DeviceTimeoutError,
                match=r"^a request of module 'stages' did not end within 600 s, its deadline$",
            ):
                late.result(PATIENCE_S)
        assert gate.count == 2  # the second stage of those that were late never began
        assert made[2] == []
        with pytest.raises(UsageError, match="the deadline of a request is in more than 0 seconds, got 0"):
            module.submit(X, deadline=0)
        check([module.submit(X)], [X])


def test_of_requests_in_flight_the_oldest_comes_first(program, devices, monkeypatch):
    gate, made = Gate(devices["cpu:0"], monkeypatch), list[Submitted]()
    with Module(program, devices=devices, in_flight=3) as module:
        made = [[] for _ in range(3)]
        requests = [module.loaded._submit([X + n], None, None, each) for n, each in enumerate(made)]
        for _ in range(6):  # a run of cpu:0 at a time, and then cpu:1 hands back what it has
            assert gate.entered.acquire(timeout=PATIENCE_S)
            _idle(devices["cpu:1"], module)
            gate.let.release()
        check(requests, [X, X + 1, X + 2])
    # The first stage of the third one could have run before the last one of the first.
    assert made[0][2][1].end_ns <= made[2][0][1].begin_ns


def _idle(device: Device, module: Module) -> None:
    """Wait until all that the device can do now is done."""
    queue = module.loaded._loaded.queues[device.name]
    wait_until(
        lambda: all(each._state not in (1, 2) for each in list(queue._open.values())), "the queue is idle"
    )


def test_models_of_one_device_and_of_several_are_used_alike(program, devices):
    def answers(model: autotune.Module) -> list[np.ndarray]:
        with model:
            requests = model.submit_all([(X,), (X + 1,)], timeout=PATIENCE_S, deadline=PATIENCE_S)
            return [request.result(PATIENCE_S)[0] for request in requests]

    whole = autotune.compile(parse_graph(STAGES.replace(" on cpu:0", "").replace(" on cpu:1", "")), threads=1)
    for model in (whole, Module(program, devices=devices)):
        for found, x in zip(answers(model), (X, X + 1), strict=True):
            np.testing.assert_allclose(found, answer(x), 1e-5, 1e-6)


def test_room_is_bounded(program, devices, monkeypatch):
    gate = Gate(devices["cpu:1"], monkeypatch)
    with Module(program, devices=devices, in_flight=1, room=2) as module:
        requests = [module.submit(X), module.submit(X)]
        assert gate.entered.acquire(timeout=PATIENCE_S)
        with pytest.raises(DeviceTimeoutError) as caught:
            module.submit_all([(X,)], timeout=0)
        assert str(caught.value) == (
            "module 'stages' had no room for a request within 0 s: 1 run and 1 wait, of 2 at most"
        )
        requests[1].cancel()
        requests[1] = module.submit(X, timeout=PATIENCE_S)
        gate.open()
        check(requests, [X, X])
    with pytest.raises(
        UsageError, match="requests in flight and room for requests are 1 or more, got 0 and 1024"
    ):
        Module(program, devices=devices, in_flight=0)


def test_an_error_in_the_middle_is_that_of_its_request(program, devices, monkeypatch):
    gate = Gate(devices["cpu:1"], monkeypatch)
    gate.errors[1] = InputError("no")
    gate.open()
    with Module(program, devices=devices) as module:
        requests = module.submit_all([(X + n,) for n in range(6)])
        failed = [n for n, request in enumerate(requests) if request.exception(PATIENCE_S) is not None]
        assert len(failed) == 1
        with pytest.raises(InputError, match="no"):
            requests[failed[0]].result()
        good = [n for n in range(6) if n not in failed]
        check([requests[n] for n in good], [X + n for n in good])


def test_a_device_that_is_lost_ends_all_that_need_it(program, devices, monkeypatch):
    gate = Gate(devices["cpu:1"], monkeypatch)
    gate.errors[2] = DeviceLostError("cpu:1 is gone")
    gate.open()
    with Module(program, devices=devices) as module:
        requests = module.submit_all([(X + n,) for n in range(8)])
        errors = [request.exception(PATIENCE_S) for request in requests]
        assert sum(error is None for error in errors) == 2
        assert {type(error) for error in errors if error is not None} == {DeviceLostError}
        with pytest.raises(DeviceLostError, match="cpu:1 is gone"):
            module(X)


def test_closed_with_requests_in_flight_each_of_them_ends(program, devices, monkeypatch):
    gate = Gate(devices["cpu:1"], monkeypatch)
    module = Module(program, devices=devices, in_flight=2)
    requests = module.submit_all([(X,)] * 5)
    assert gate.entered.acquire(timeout=PATIENCE_S)
    closing = threading.Thread(target=module.close)
    closing.start()
    with suppress(DeviceError):
        requests[1].result(PATIENCE_S)
    gate.open()
    closing.join()
    kinds = [type(request.exception(PATIENCE_S)) for request in requests]
    assert kinds == [DeviceClosedError] * 2 + [UsageError] * 3
    assert [device.allocator.statistics.live for device in devices.values()] == [0, 0]
    with pytest.raises(UsageError, match="module 'stages' is closed"):
        module.submit(X)


def test_watermarks_hold_requests_back_but_those_that_run(program, devices, monkeypatch):
    allocator = devices["cpu:0"].allocator
    gate = Gate(devices["cpu:1"], monkeypatch)
    with Module(program, devices=devices) as module:
        held = devices["cpu:0"].allocate(1 << 20, "somebody else")
        allocator.limit(high=1 << 20)
        with pytest.raises(DeviceTimeoutError, match="held by somebody else"):
            module.submit(X, timeout=0)
        held.free()
        requests = [module.submit(X)]
        assert gate.entered.acquire(timeout=PATIENCE_S)
        held = devices["cpu:0"].allocate(1 << 20, "somebody else")
        requests += module.submit_all([(X,)] * 5)
        assert module.loaded._requests.memories == 1  # they share the memory that there is
        gate.open()
        check(requests, [X] * 6)
        assert module.loaded._requests.memories == 1


def test_without_memory_for_more_requests_take_turns(program, devices, monkeypatch):
    made: list[RequestMemory] = []

    def once(loaded: Any) -> RequestMemory:
        if made:
            raise DeviceMemoryError("cpu:0 has no memory")
        made.append(RequestMemory(loaded))
        return made[0]

    monkeypatch.setattr("autotune.runtime.programs.in_flight.RequestMemory", once)
    with Module(program, devices=devices) as module:
        inputs = [X + n for n in range(20)]
        check(module.submit_all([(x,) for x in inputs]), inputs)
    with (
        Module(program, devices=devices) as module,
        pytest.raises(DeviceMemoryError, match="cpu:0 has no memory"),
    ):
        module(X)
