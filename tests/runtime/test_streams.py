"""Several requests of a module at once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError

import numpy as np
import pytest

from autotune.errors import BuildError, DeviceTimeoutError, InputError, UsageError
from autotune.runtime.device import Memory
from autotune.runtime.instance import Instance
from autotune.runtime.module import Module
from tests.runtime.kernels import chain

X = np.arange(64, dtype=np.int64)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Runs on narrow instances and of the whole begin once this is set."""
    gate, run = threading.Event(), Module._answer

    def late(self: Module, arrays: tuple[object, ...], instance: Instance) -> object:
        assert gate.wait(60)
        return run(self, arrays, instance)

    monkeypatch.setattr(Module, "_answer", late)
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
                np.testing.assert_array_equal(request.result(60)[0], answer)
        assert 1 <= len(module._instances) <= 5
        np.testing.assert_array_equal(module(X)[0], expected[0])


def test_requests_run_beside_each_other_on_memory_of_their_own(held: threading.Event) -> None:
    with Module(chain(3, 64), 3) as module:
        requests = [module.submit(X * n) for n in range(6)]
        while len(module._streams._running) < 3:
            time.sleep(0.001)
        held.set()
        assert [int(request.result(60)[0][1]) for request in requests] == [n + 3 for n in range(6)]
        assert {instance.threads for instance in module._instances[1:]} == {1}


def test_a_request_that_is_alone_has_all_workers() -> None:
    with Module(chain(3, 64), 3) as module:
        for _ in range(5):
            module.submit(X).result(60)
        assert len(module._instances) == 1


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


def test_a_full_queue_waits_for_room_and_says_so(held: threading.Event) -> None:
    with Module(chain(3, 64), 1, room=2) as module:
        first = module.submit(X)
        while not module._streams._running:
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
        third.join(60)
        assert not third.is_alive()
        first.result(60)


def test_closing_ends_requests_that_have_not_begun(held: threading.Event) -> None:
    module = Module(chain(3, 64), 2)
    requests = [module.submit(X) for _ in range(5)]
    module.close()
    held.set()
    for request in requests:
        with pytest.raises(UsageError, match="module 'test' is closed"):
            request.result(60)


def test_memory_that_is_not_there_is_an_error_of_its_request(held: threading.Event) -> None:
    class Little(Memory):
        given = 0

        def allocate(self, nbytes: int, use: str) -> np.ndarray:
            self.given += use == "intermediate values"
            if self.given > 2:
                raise BuildError("no more")
            return super().allocate(nbytes, use)

    with Module(chain(3, 64), 3, memory=Little()) as module:
        requests = [module.submit(X) for _ in range(3)]
        while len(module._streams._running) < 3:
            failed = [request for request in requests if request.done()]
            if failed:
                break
            time.sleep(0.001)
        held.set()
        errors = [str(error) for request in requests if (error := request.exception(60))]
        # The first request takes the module's own memory unless it has seen the others come.
        assert errors in (["no more"], ["no more"] * 2)


@pytest.mark.parametrize(("streams", "room"), [(0, 1), (1, 0)])
def test_none_at_all_is_refused(streams: int, room: int) -> None:
    with pytest.raises(UsageError, match="streams and room for requests are 1 or more"):
        Module(chain(3, 64), 1, streams=streams, room=room)
