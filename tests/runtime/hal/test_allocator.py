"""The allocator of a device: classes, pools, statistics, watermarks, and what its errors say."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.errors import (
    BuildError,
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
    DeviceTimeoutError,
    UsageError,
)
from autotune.runtime.hal.allocator import Allocator, Statistics, size_class
from autotune.runtime.hal.buffer import Buffer
from tests.patience import PATIENCE_S, wait_until

KIB, MIB = 1 << 10, 1 << 20


class Blocks:
    """A storage that counts: blocks are (number, bytes), there are ``most`` bytes, the rest is refused."""

    def __init__(self, most: int = 1 << 40, error: Exception | None = None) -> None:
        self.most = most
        self.error = error or MemoryError()
        self.taken: list[int] = []
        self.released: list[int] = []

    def allocate(self, nbytes: int) -> Any:
        if sum(self.taken) - sum(self.released) + nbytes > self.most:
            raise self.error
        self.taken.append(nbytes)
        return len(self.taken), nbytes

    def release(self, storage: Any) -> None:
        self.released.append(storage[1])

    def host_view(self, storage: Any) -> NDArray[np.uint8] | None:
        return None


def made(capacity: int = MIB, kept: int | None = None, most: int = 1 << 40) -> tuple[Allocator, Blocks]:
    blocks = Blocks(most)
    return Allocator("toy:0", "toy", blocks, capacity, kept), blocks


def test_classes_are_four_to_a_power_of_two() -> None:
    found = sorted({size_class(n) for n in range(4097)})
    assert found == [
        256,
        320,
        384,
        448,
        512,
        640,
        768,
        896,
        1024,
        1280,
        1536,
        1792,
        2048,
        2560,
        3072,
        3584,
        4096,
    ]
    for n in range(1, 4097):
        assert size_class(n) == min(c for c in found if c >= n)
    assert size_class(0) == size_class(256) == 256
    assert size_class((1 << 30) + 1) == 5 << 28


def test_a_buffer_is_a_block_of_its_class_and_has_the_size_that_was_wanted() -> None:
    allocator, blocks = made()
    buffer = allocator.allocate(1000, "mine")
    assert (buffer.nbytes, buffer.offset, buffer.space) == (1000, 0, "toy")
    assert (buffer.allocation.nbytes, buffer.allocation.label) == (1024, "mine")
    assert blocks.taken == [1024]
    assert allocator.allocate(0).nbytes == 0
    with pytest.raises(UsageError, match=r"^a buffer has 0 bytes or more, got -1$"):
        allocator.allocate(-1)


def test_statistics_count() -> None:
    allocator, _ = made()
    assert allocator.statistics == Statistics(0, 0, 0, 0, 0, 0, 0)
    a, b = allocator.allocate(1000), allocator.allocate(2000)
    assert allocator.statistics == Statistics(3072, 3072, 3072, 2, 0, 0, 0)
    b.free()
    assert allocator.statistics == Statistics(1024, 3072, 3072, 2, 0, 0, 0)
    more = [allocator.allocate(1024) for _ in range(3)]
    more.pop().free()
    assert allocator.statistics == Statistics(3072, 4096, 6144, 5, 0, 0, 0)
    del more
    allocator.trim()
    allocator, _ = made()
    a, b = allocator.allocate(1000), allocator.allocate(2000)
    b.free()
    c = allocator.allocate(2040)
    assert allocator.statistics == Statistics(3072, 3072, 3072, 3, 1, 0, 0)
    d = allocator.allocate(2048)
    assert allocator.statistics == Statistics(5120, 5120, 5120, 4, 1, 0, 0)
    for buffer in (a, c, d):
        buffer.free()
    assert allocator.statistics == Statistics(0, 5120, 5120, 4, 1, 0, 0)
    allocator.trim()
    assert allocator.statistics == Statistics(0, 5120, 0, 4, 1, 0, 0)


def test_statistics_are_those_of_one_moment() -> None:
    with pytest.raises(AttributeError):
        made()[0].statistics.live = 1  # type: ignore[misc]


def test_a_block_that_is_given_back_serves_its_class_only() -> None:
    allocator, blocks = made()
    first = allocator.allocate(1000)
    storage = first.allocation.storage
    first.free()
    other = allocator.allocate(1025)
    assert other.allocation.storage != storage
    again = allocator.allocate(897)
    assert again.allocation.storage == storage
    assert blocks.taken == [1024, 1280]


def test_a_quarter_of_the_capacity_is_kept_or_what_was_said_the_large_ones_go_first() -> None:
    for kept, left, gone in (
        (None, [256, 1024, 2048, 4096], [8192, 8192]),
        (4096, [256, 1024, 2048], [8192, 8192, 4096]),
        (0, [], [8192, 8192, 4096, 2048, 1024, 256]),
    ):
        allocator, blocks = made(32 * KIB, kept)
        buffers = [allocator.allocate(n) for n in (256, 8192, 1024, 4096, 2048, 8192)]
        assert blocks.released == []
        for buffer in buffers:
            buffer.allocation.free()
        assert allocator.statistics.reserved == sum(left)
        assert sorted(blocks.released, reverse=True) == gone
    allocator, blocks = made(32 * KIB)
    for buffer in [allocator.allocate(4096) for _ in range(3)]:
        buffer.allocation.free()
    assert (allocator.statistics.reserved, blocks.released) == (8192, [4096])  # exactly a quarter stays


def test_the_capacity_is_all_that_may_be_in_use() -> None:
    allocator, _ = made(4096)
    assert allocator.capacity == 4096
    whole = allocator.allocate(4096, "all of it")
    with pytest.raises(DeviceMemoryError) as caught:
        allocator.allocate(1, "one more")
    assert str(caught.value) == (
        "toy:0 has no memory for 1 bytes for one more: its capacity is 4.0 KiB\n  held by all of it (4.0 KiB)"
    )
    assert (allocator.statistics.failed, allocator.statistics.live) == (1, 4096)
    whole.free()
    with pytest.raises(DeviceMemoryError, match=r"^toy:0 has no memory for 4\.0 KiB: .*\n  held by nobody$"):
        allocator.allocate(4097)
    assert (allocator.statistics.failed, allocator.statistics.allocations) == (2, 3)


def test_free_blocks_make_room_under_the_capacity() -> None:
    allocator, blocks = made(4096, kept=4096)
    held = allocator.allocate(1024)
    for buffer in [allocator.allocate(1024), allocator.allocate(512), allocator.allocate(1024)]:
        buffer.free()
    assert allocator.statistics.reserved == 3584
    large = allocator.allocate(2048)
    assert blocks.released == [1024, 1024]  # with one of them 4608 bytes would be in use or kept
    assert allocator.statistics.reserved == 1024 + 2048 + 512
    assert [held.nbytes, large.nbytes] == [1024, 2048]


@pytest.mark.parametrize("error", [MemoryError(), BuildError("none left"), DeviceMemoryError("none left")])
def test_the_system_is_asked_again_without_what_was_kept(error: Exception) -> None:
    blocks = Blocks(4096, error)
    allocator = Allocator("toy:0", "toy", blocks, MIB)
    kept = allocator.allocate(2048)
    kept.free()
    large = allocator.allocate(4096, "large")
    assert blocks.released == [2048]
    assert allocator.statistics == Statistics(4096, 4096, 4096, 2, 0, 0, 0)
    with pytest.raises(DeviceMemoryError) as caught:
        allocator.allocate(256)
    said = str(error) or "the system has no more"
    assert str(caught.value) == f"toy:0 has no memory for 256 bytes: {said}\n  held by large (4.0 KiB)"
    assert caught.value.__cause__ is error
    assert (allocator.statistics.failed, allocator.statistics.live, large.nbytes) == (1, 4096, 4096)


def test_errors_name_the_five_that_hold_most() -> None:
    allocator, _ = made(64 * KIB)
    sizes = {"a": 1024, "b": 2048, "c": 256, "d": 512, "e": 4096, "f": 384}
    buffers = [allocator.allocate(n, label) for label, n in sizes.items() if label != "f"]
    five = "e (4.0 KiB), b (2.0 KiB), a (1.0 KiB), d (512 bytes), c (256 bytes)"
    with pytest.raises(DeviceMemoryError) as caught:
        allocator.allocate(MIB)
    assert str(caught.value) == f"toy:0 has no memory for 1.0 MiB: its capacity is 64.0 KiB\n  held by {five}"
    buffers += [allocator.allocate(sizes["f"], "f"), allocator.allocate(256, "f"), allocator.allocate(256)]
    with pytest.raises(DeviceMemoryError) as caught:
        allocator.allocate(3 * MIB // 2)
    assert str(caught.value) == (
        "toy:0 has no memory for 1.5 MiB: its capacity is 64.0 KiB\n"
        "  held by e (4.0 KiB), b (2.0 KiB), a (1.0 KiB), f (640 bytes), d (512 bytes), 2 more"
    )
    del buffers


def test_who_says_no_label_is_shown_without_one() -> None:
    allocator, _ = made(1024)
    held = allocator.allocate(1000)
    with pytest.raises(DeviceMemoryError, match=r"held by no label \(1\.0 KiB\)$"):
        allocator.allocate(1023)
    assert held.nbytes == 1000


def test_what_two_threads_give_back_at_once_counts_once() -> None:
    allocator, _ = made()
    buffer = allocator.allocate(1024)
    between = allocator.allocate(4096)
    allocator._give_back(buffer.allocation)
    allocator._give_back(buffer.allocation)
    allocator._give_back(between.allocation)
    allocator.trim()
    buffer = allocator.allocate(1024)
    allocator._give_back(buffer.allocation)
    other = allocator.allocate(2048)
    assert (allocator.statistics.live, allocator.statistics.reserved) == (2048, 3072)
    other.free()
    assert (allocator.statistics.live, allocator.statistics.reserved) == (0, 3072)


# Watermarks.


@pytest.mark.parametrize(
    ("high", "low"), [(4097, 0), (1024, 1024), (1024, 2048), (1024, -1), (0, None), (-4, None)]
)
def test_watermarks_that_are_none_are_refused(high: int, low: int | None) -> None:
    allocator, _ = made(4096)
    below = high * 3 // 4 if low is None else low
    message = f"^watermarks of toy:0: 0 <= low < high <= 4096 bytes, got {below} and {high}$"
    with pytest.raises(UsageError, match=message):
        allocator.limit(high=high, low=low)
    assert allocator.admitted == 4096


def test_work_is_held_back_from_the_high_watermark_until_the_low_one() -> None:
    allocator, _ = made(8192)
    assert allocator.admitted == 8192
    allocator.limit(high=4096)  # low: 3072
    assert allocator.admitted == 4096
    buffers = [allocator.allocate(1024) for _ in range(3)]
    assert not allocator.full
    allocator.admit()
    buffers.append(allocator.allocate(1024))
    assert allocator.full
    with pytest.raises(DeviceTimeoutError) as caught:
        allocator.admit(0.01)
    assert str(caught.value) == (
        "toy:0 let no new work begin within 0.01 s: 4.0 KiB are in use, and it waits until that is 3.0 KiB "
        "(high watermark: 4.0 KiB)\n  held by no label (4.0 KiB)"
    )
    assert allocator.statistics.held_back == 1
    buffers.append(allocator.allocate(512))
    buffers.pop().free()  # 4096 again
    assert allocator.full
    buffers.pop().free()  # 3072
    assert not allocator.full
    allocator.admit(0.0)
    assert allocator.statistics.held_back == 1
    buffers.append(allocator.allocate(512))  # between the watermarks: they are not what was reached
    assert not allocator.full
    assert not list(allocator._waiters)


def test_below_the_watermark_work_is_admitted_without_a_lock() -> None:
    allocator, _ = made(4096)
    allocator._lock = None  # type: ignore[assignment]
    allocator.admit()
    assert not allocator.full


def test_watermarks_at_the_ends_are_allowed() -> None:
    allocator, _ = made(4096)
    allocator.limit(high=4096, low=4095)
    allocator.limit(high=1, low=0)
    assert not allocator.full
    one = allocator.allocate(1)
    assert allocator.full
    one.free()
    assert not allocator.full


def test_new_watermarks_count_at_once() -> None:
    allocator, _ = made(8192)
    held = allocator.allocate(2048)
    allocator.limit(high=2048, low=1024)
    assert allocator.full
    allocator.limit(high=2049, low=1024)
    assert not allocator.full
    allocator.limit(high=2048, low=1024)
    held.free()
    assert not allocator.full


def held_back(allocator: Allocator, let_go: Callable[[], object]) -> list[DeviceError | None]:
    """Wait to be admitted in another thread; what came of it, after ``let_go``."""
    found: list[DeviceError | None] = []

    def wait() -> None:
        try:
            allocator.admit(20)
            found.append(None)
        except DeviceError as error:
            found.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: allocator.statistics.held_back, "the request is held back")
    assert found == []
    let_go()
    thread.join(PATIENCE_S)  # it is woken, not timed out
    assert not thread.is_alive()
    return found


def filled() -> tuple[Allocator, list[Buffer]]:
    allocator, _ = made(8192)
    allocator.limit(high=2048, low=1024)
    return allocator, [allocator.allocate(1024), allocator.allocate(1024)]


def test_who_is_held_back_goes_on_when_memory_is_given_back() -> None:
    allocator, buffers = filled()
    assert held_back(allocator, lambda: buffers.pop().free()) == [None]
    assert allocator.statistics.held_back == 1
    assert not allocator._waiters


def test_who_is_held_back_goes_on_with_new_watermarks() -> None:
    allocator, buffers = filled()
    assert held_back(allocator, lambda: allocator.limit(high=4096)) == [None]
    assert len(buffers) == 2


def test_who_is_held_back_or_would_be_is_told_of_the_end() -> None:
    allocator, buffers = filled()
    lost = DeviceLostError("it is gone")
    (found,) = held_back(allocator, lambda: allocator.refuse(lost))
    assert isinstance(found, DeviceLostError)
    assert (str(found), found is lost) == ("it is gone", False)
    with pytest.raises(DeviceLostError, match=r"^it is gone$"):
        allocator.admit()
    assert allocator.statistics.held_back == 1
    for buffer in buffers:
        buffer.free()
    allocator.admit()
