"""Timelines."""

from __future__ import annotations

import threading

import pytest

from autotune.errors import DeviceTimeoutError, UsageError
from autotune.runtime.hal.semaphore import MAX_VALUE, Timeline, wait_all


def test_a_timeline_only_goes_up() -> None:
    line = Timeline("requests")
    line.signal(5)
    for value in (5, 4):
        with pytest.raises(UsageError, match=rf"^requests stands at 5: it only goes up, got {value}$"):
            line.signal(value)
    line.signal(MAX_VALUE)
    assert line.query() == MAX_VALUE == 2**64 - 1
    for value in (-1, MAX_VALUE + 1):
        with pytest.raises(UsageError, match=rf"^values of requests are from 0 to 2\^64 - 1, got {value}$"):
            line.wait(value)


def test_a_failed_timeline_keeps_what_it_had_reached() -> None:
    line, first = Timeline(value=3), ValueError("first")
    line.fail(first)
    line.fail(ValueError("second"))
    line.signal(9)
    line.wait(3)
    assert line.query() == 3
    with pytest.raises(ValueError, match="first"):
        line.wait(4)


def test_whoever_waits_is_told_once_in_the_order_of_values() -> None:
    line, told = Timeline(), list[tuple[int, object]]()
    for value in (2, 1, 4, 3):
        line.when(value, lambda error, value=value: told.append((value, error)))
    forgotten = line.when(1, lambda error: told.append((0, error)))
    line.forget(forgotten)
    line.signal(1)
    assert told == [(1, None)]
    line.signal(3)
    error = ValueError()
    line.fail(error)
    assert sorted(told, key=str) == [(1, None), (2, None), (3, None), (4, error)]
    assert line.waiting == 0


def test_a_function_that_fails_keeps_nobody_from_being_told(caplog: pytest.LogCaptureFixture) -> None:
    line, told = Timeline(), list[object]()
    line.when(1, lambda error: 1 // 0)
    line.when(1, told.append)
    line.signal(1)
    assert told == [None]
    assert "a function that waited on a timeline failed" in caplog.text


def test_a_wait_ends_with_its_time() -> None:
    lines = [Timeline("a", 1), Timeline("b")]
    with pytest.raises(DeviceTimeoutError, match=r"^b did not reach 2 within .* s: it stands at 0$"):
        wait_all([(lines[0], 1), (lines[1], 2)], timeout=0.01)
    assert lines[1].waiting == 0


def test_many_threads_wait_and_signal() -> None:
    ping, pong = Timeline("ping"), Timeline("pong")

    def echo() -> None:
        for value in range(1, 501):
            ping.wait(value)
            pong.signal(value)

    waiters = [threading.Thread(target=pong.wait, args=(500,)) for _ in range(8)]
    threads = [threading.Thread(target=echo), *waiters]
    for thread in threads:
        thread.start()
    for value in range(1, 501):
        ping.signal(value)
        pong.wait(value)
    for thread in threads:
        thread.join()
