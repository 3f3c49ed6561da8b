"""Several requests of a module at once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, wait
from contextlib import contextmanager

import numpy as np
import pytest

from autotune.errors import BuildError, DeviceTimeoutError, InputError, UsageError
from autotune.runtime.cpu import layout
from autotune.runtime.cpu.device import Memory, address_of
from autotune.runtime.cpu.loaded import LoadedHere
from autotune.runtime.image import ModuleImage
from autotune.runtime.module import Module
from autotune.runtime.requests.request import Request
from tests.patience import PATIENCE_S
from tests.runtime.kernels import chain

X = np.arange(64, dtype=np.int64)
ONE = np.ones(1, np.int64)


def waiting() -> ModuleImage:
    """y = x, of one element, in a kernel that waits until x is not 0."""
    return chain(1, 1, body="await")


@contextmanager
def in_flight(module: Module, **options: float) -> Iterator[Request[list[np.ndarray]]]:
    """A request that runs and does not end before the block does, or was late before it ran."""
    x = np.zeros(1, np.int64)
    request = module.submit(x, **options)
    while not (taken(module) or request.done()):
        time.sleep(0.001)
    try:
        yield request
    finally:
        x[0] = 1
        wait([request], PATIENCE_S)


def taken(module: Module) -> bool:
    """Return whether the instance with all workers is in use."""
    return bool(module.loaded._whole._calls._memory[layout.MUTEX])


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Requests begin to run once this is set."""
    gate, run = threading.Event(), LoadedHere.answer

    def late(self: Module, arrays: tuple[object, ...], out: None, request: Request[object]) -> object:
        assert gate.wait(PATIENCE_S)
        return run(self, arrays, out, request)  # type: ignore[arg-type]

    monkeypatch.setattr(LoadedHere, "answer", late)
    yield gate
    gate.set()


def test_eight_requests_in_flight_have_the_right_answers() -> None:
    model = chain(9, 64, body="late")
    with Module(model, 1) as module:
        expected = [module(X + n)[0] for n in range(8)]
    with Module(model, 4, streams=4) as module:
        for _ in range(20):
            requests = module.submit_all([(X + n,) for n in range(8)])
            for request, answer in zip(requests, expected, strict=True):
                np.testing.assert_array_equal(request.result(PATIENCE_S)[0], answer)
        assert 1 <= len(module.loaded._instances) <= 5
        np.testing.assert_array_equal(module(X)[0], expected[0])


def test_requests_run_beside_each_other_on_memory_of_their_own(held: threading.Event) -> None:
    with Module(chain(3, 64), 3) as module:
        requests = [module.submit(X * n) for n in range(6)]
        while len(module.loaded._streams._running) < 3:
            time.sleep(0.001)
        held.set()
        assert [int(request.result(PATIENCE_S)[0][1]) for request in requests] == [n + 3 for n in range(6)]
        assert {instance.threads for instance in module.loaded._instances[1:]} == {1}


def test_a_request_that_is_alone_has_all_workers() -> None:
    with Module(chain(3, 64), 3) as module:
        for _ in range(5):
            module.submit(X).result(PATIENCE_S)
        assert len(module.loaded._instances) == 1


def test_requests_can_be_awaited() -> None:
    async def main(module: Module) -> list[int]:
        answers = await asyncio.gather(*(module.submit(X + n) for n in range(5)))
        with pytest.raises(InputError):
            await module.submit(np.zeros(3))
        return [int(answer[0][0]) for answer in answers]

    with Module(chain(3, 64), 2) as module:
        assert asyncio.run(main(module)) == [3, 4, 5, 6, 7]


def test_a_cancelled_request_does_not_run(held: threading.Event) -> None:
    async def main(module: Module) -> None:
        first, second = module.submit(X), module.submit(X)
        task = asyncio.ensure_future(_awaited(second))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert second.cancelled()
        held.set()
        assert (await first)[0][0] == 3

    with Module(chain(3, 64), 1) as module:
        asyncio.run(main(module))
        request = module.submit(X)
        while not request.cancel():
            request = module.submit(X)
        with pytest.raises(CancelledError):
            request.result()


async def _awaited(request: object) -> object:
    return await request  # type: ignore[misc]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_request_that_runs_can_be_cancelled_and_be_late(threads: int) -> None:
    async def main(module: Module) -> None:
        with in_flight(module) as request:
            task = asyncio.ensure_future(_awaited(request))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert request.cancelled()

    with Module(chain(2, 1, body="await"), threads) as module:
        with in_flight(module) as request:
            assert request.cancel()
            assert request.cancel()
            assert not request.cancelled()
        assert request.cancelled()
        for outcome in (request.result, request.exception):
            with pytest.raises(CancelledError):
                outcome()
        with in_flight(module, deadline=0.01) as late:
            time.sleep(0.02)
        with pytest.raises(
            DeviceTimeoutError, match=r"^a request of module 'test' did not end within 0.01 s, its deadline$"
        ):
            late.result()
        assert not late.cancelled()
        asyncio.run(main(module))
        assert module(ONE)[0][0] == 1


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_commands_of_a_cancelled_run_do_nothing_and_the_next_run_is_whole(threads: int) -> None:
    row, out = np.zeros(layout.REQUEST_SLOTS, np.int64), np.zeros(64, np.int64)
    with Module(chain(5, 64), threads) as module:
        addresses = [address_of(X), address_of(out)]
        for cancelled, deadline in ((1, 0), (0, 1)):
            row[layout.CANCELLED], row[layout.DEADLINE_NS] = cancelled, deadline
            assert not module.loaded._whole.run(addresses, request=address_of(row))
            assert not out.any()
            assert row[layout.CANCELLED] == (1 if cancelled else layout.LATE)
        row[:] = 0
        row[layout.DEADLINE_NS] = time.monotonic_ns() + 10**12
        assert module.loaded._whole.run(addresses, request=address_of(row))
        np.testing.assert_array_equal(out, X + 5)
        row[layout.CANCELLED] = 1
        out[:] = 0
        np.testing.assert_array_equal(module(X, out=[out])[0], X + 5)


def test_a_request_that_has_ended_is_not_cancelled() -> None:
    with Module(chain(3, 64), 1) as module:
        request = module.submit(X)
        request.result(PATIENCE_S)
        assert not request.cancel()
        assert not request.cancelled()
        assert request.exception() is None


def test_a_request_behind_its_deadline_does_not_begin(held: threading.Event) -> None:
    with Module(chain(3, 64), 1) as module:
        first, late = module.submit(X), module.submit(X, deadline=1e-6)
        held.set()
        assert first.result(PATIENCE_S)[0][0] == 3
        with pytest.raises(DeviceTimeoutError, match="did not end within 1e-06 s, its deadline"):
            late.result(PATIENCE_S)
        with pytest.raises(
            UsageError, match=r"^the deadline of a request is in more than 0 seconds, got 0\n"
        ):
            module.submit(X, deadline=0)


def test_calls_of_threads_run_beside_each_other() -> None:
    with Module(waiting(), 1, streams=2) as module, in_flight(module) as first:
        for n in (1, 2, 3):
            assert module(ONE * n)[0][0] == n
            assert module(np.array([n, 0])[::2])[0][0] == n  # converted
        second, third = np.zeros(1, np.int64), np.zeros(1, np.int64)
        threads = [threading.Thread(target=module, args=(x,)) for x in (second, third)]
        for thread in threads:
            thread.start()
        second[0] = third[0] = 1  # more calls than instances take turns
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        assert not first.done()
        assert len(module.loaded._instances) == 3


def test_closing_waits_for_what_runs() -> None:
    module = Module(waiting(), 1, streams=2)
    with in_flight(module) as request:
        closing = threading.Thread(target=module.close)
        closing.start()
        while not module.loaded._closed:
            time.sleep(0.001)
        with pytest.raises(UsageError, match="module 'test' is closed"):
            module.submit(ONE)
    closing.join(PATIENCE_S)
    assert not closing.is_alive()
    assert request.result(PATIENCE_S)[0][0] == 1
    with pytest.raises(UsageError, match="module 'test' is closed"):
        module(ONE)


def waiters(module: Module) -> int:
    """Return how many calls have waited for an instance, or do."""
    return int(module.loaded._whole._calls._memory[layout.TICKETS])


def calling(module: Module, x: np.ndarray, ends: list[object]) -> threading.Thread:
    """A thread that calls, and adds what it got to a list."""

    def call() -> None:
        try:
            ends.append(int(module(x)[0][0]))
        except UsageError as error:
            ends.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    return thread


def test_calls_that_wait_come_in_the_order_of_their_coming() -> None:
    with Module(waiting(), 1) as module:
        ends, inputs, threads = list[object](), [np.zeros(1, np.int64) for _ in range(3)], []
        with in_flight(module):
            for number, x in enumerate(inputs, start=1):
                threads.append(calling(module, x, ends))
                while waiters(module) < number:
                    time.sleep(0.001)
        for number, (x, thread) in enumerate(zip(inputs, threads, strict=True)):
            x[0] = number + 2  # those behind it would not end
            thread.join(PATIENCE_S)
            assert ends == [2, 3, 4][: number + 1]


def test_closing_ends_calls_that_wait() -> None:
    module, ends = Module(waiting(), 1, streams=2), list[object]()
    held = [np.zeros(1, np.int64) for _ in range(2)]
    with in_flight(module):
        threads = [calling(module, x, ends) for x in held]
        while module.loaded._whole._calls._memory[layout.BESIDE] < 2:
            time.sleep(0.001)
        threads += [calling(module, ONE * n, ends) for n in (1, 2, 3)]
        while waiters(module) < 3:
            time.sleep(0.001)
        closing = threading.Thread(target=module.close)
        closing.start()
        while not module.loaded._closed:
            time.sleep(0.001)
        for x in held:
            x[0] = 7
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
    closing.join(PATIENCE_S)
    assert not closing.is_alive()
    assert ends.count(7) == 2
    assert set(ends) <= {7, 1, 2, 3, "module 'test' is closed"}


def test_more_requests_than_there_is_room_for_are_handed_over_in_parts(held: threading.Event) -> None:
    with Module(chain(3, 64), 2, room=3) as module:
        with pytest.raises(DeviceTimeoutError, match=r"had no room for a request within 0\.1 s: "):
            module.submit_all([(X,)] * 7, timeout=0.1)
        held.set()
        requests = module.submit_all([(X + n,) for n in range(20)])
        assert [int(request.result(PATIENCE_S)[0][0]) for request in requests] == [n + 3 for n in range(20)]
        assert module.submit_all([]) == []


def test_a_full_queue_waits_for_room_and_says_so(held: threading.Event) -> None:
    with Module(chain(3, 64), 1, room=2) as module:
        first = module.submit(X)
        while not module.loaded._streams._running:
            time.sleep(0.001)
        second = module.submit(X)
        with pytest.raises(
            DeviceTimeoutError,
            match=r"^module 'test' had no room for a request within 0 s: 1 run and 1 wait, of 2 at most$",
        ):
            module.submit(X, timeout=0)
        second.cancel()
        third = threading.Thread(target=module.submit, args=(X,))
        third.start()
        held.set()
        third.join(PATIENCE_S)
        assert not third.is_alive()
        first.result(PATIENCE_S)


def test_closing_ends_requests_that_have_not_begun(held: threading.Event) -> None:
    module = Module(chain(3, 64), 2)
    requests = [module.submit(X) for _ in range(5)]
    module.close()
    held.set()
    for request in requests:
        with pytest.raises(UsageError, match="module 'test' is closed"):
            request.result(PATIENCE_S)


def test_memory_that_is_not_there_is_an_error_of_its_request() -> None:
    class Little(Memory):
        given = 0

        def allocate(self, nbytes: int, use: str) -> np.ndarray:
            self.given += use == "intermediate values"
            if self.given > 1:
                raise BuildError("no more")
            return super().allocate(nbytes, use)

    with Module(waiting(), 1, streams=2, memory=Little()) as module, in_flight(module):
        with pytest.raises(BuildError, match=r"^no more$"):
            module.submit(ONE).result(PATIENCE_S)
        with pytest.raises(BuildError, match=r"^no more$"):
            module(ONE)


@pytest.mark.parametrize(("streams", "room"), [(0, 1), (1, 0)])
def test_none_at_all_is_refused(streams: int, room: int) -> None:
    with pytest.raises(UsageError, match="streams and room for requests are 1 or more"):
        Module(chain(3, 64), 1, streams=streams, room=room)


def test_a_run_that_was_cancelled_says_nothing_of_how_long_the_next_takes() -> None:
    with Module(waiting(), 1) as module:
        module(ONE)
        memory = module.loaded._whole._calls._memory
        before = memory[layout.RUN_NS]
        row = np.zeros(layout.REQUEST_SLOTS, np.int64)
        row[layout.CANCELLED] = 1
        assert module.loaded._native_call((ONE,), None, row) is None
        assert memory[layout.RUN_NS] == before > 0
