"""The contract of devices: a driver's tests inherit :class:`DeviceConformance` and give it a device and kernels."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from autotune.errors import (
    CancelledWorkError,
    DeviceClosedError,
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
    DeviceTimeoutError,
    UsageError,
)
from autotune.runtime.hal.buffer import HOST_SPACE, Buffer, host_buffer
from autotune.runtime.hal.command_buffer import CheckIndices, CommandBuffer, Slot
from autotune.runtime.hal.device import Device
from autotune.runtime.hal.executable import Code, Executable
from autotune.runtime.hal.queue import Queue, Submission
from autotune.runtime.hal.semaphore import Timeline
from tests.patience import PATIENCE_S

COUNT = 64
X = np.arange(COUNT, dtype=np.int64)


class DeviceConformance:
    """Give ``open`` and ``code``; every test gets a device of its own."""

    def open(self) -> Device:
        """A device that is not open elsewhere."""
        raise NotImplementedError

    def code(self) -> Code:
        """Entry 0 of two bindings ``a`` and ``b`` of 64 int64: tile i computes b[i] = a[i] + 1."""
        raise NotImplementedError

    @pytest.fixture
    def device(self) -> Iterator[Device]:
        with self.open() as device:
            yield device

    @pytest.fixture
    def executable(self, device: Device) -> Executable:
        return device.load(self.code())

    # Memory.

    @pytest.mark.parametrize("nbytes", [0, 1, 255, 4096, 3_000_001])
    def test_what_is_uploaded_comes_back(self, device: Device, nbytes: int) -> None:
        data = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
        buffer = device.upload(data)
        assert (buffer.nbytes, buffer.space) == (nbytes, device.space)
        np.testing.assert_array_equal(device.download(buffer, np.uint8, (nbytes,)), data)

    def test_slices_are_parts_of_their_buffer(self, device: Device) -> None:
        buffer = device.upload(X)
        part = buffer.slice(80, 160).slice(8, 16)
        assert device.download(part, np.int64, (2,)).tolist() == [11, 12]
        with pytest.raises(UsageError, match="bytes 500 to 513 are not inside of a buffer of 512"):
            buffer.slice(500, 13)

    @pytest.mark.parametrize("pattern", [b"\x07", b"\x01\x02", b"\x01\x02\x03\x04", bytes(range(8))])
    def test_fills_repeat_their_pattern(self, device: Device, pattern: bytes) -> None:
        buffer = device.upload(np.zeros(64, np.uint8))
        recorder = device.record()
        recorder.fill(buffer.slice(8, 48), pattern)
        device.transfers.submit(recorder.finish()).wait()
        expected = bytes(8) + pattern * (48 // len(pattern)) + bytes(8)
        assert device.download(buffer, np.uint8, (64,)).tobytes() == expected

    def test_copies_go_from_slice_to_slice(self, device: Device) -> None:
        source, target = device.upload(X), device.upload(np.zeros(COUNT, np.int64))
        recorder = device.record()
        recorder.copy(source.slice(8, 80), target.slice(160, 80))
        device.transfers.submit(recorder.finish()).wait()
        found = device.download(target, np.int64, (COUNT,))
        assert found.tolist() == [0] * 20 + list(range(1, 11)) + [0] * 34

    def test_statistics_follow_what_is_in_use(self, device: Device) -> None:
        before = device.allocator.statistics
        buffer = device.allocate(1 << 20)
        during = device.allocator.statistics
        buffer.free()
        after = device.allocator.statistics
        assert during.live == before.live + (1 << 20)
        assert (after.live, after.peak) == (before.live, during.peak)
        assert after.reserved >= 1 << 20  # kept for the next
        again = device.allocate((1 << 20) - 5)
        assert device.allocator.statistics.reused == before.reused + 1
        again.free()
        device.allocator.trim()
        assert device.allocator.statistics.reserved == device.allocator.statistics.live

    def test_pinned_memory_is_this_process_s_and_goes_back(self, device: Device) -> None:
        allocator = device.host_allocator
        if allocator is None:
            assert device.space == HOST_SPACE  # any memory is as good
            return
        pinned, there = allocator.allocate(X.nbytes, "pinned"), device.upload(np.zeros_like(X))
        assert pinned.space == HOST_SPACE
        found = pinned.array(np.int64, (COUNT,))
        found[...] = X
        for source, target in ((pinned, there), (there, pinned)):
            recorder = device.record()
            recorder.copy(source, target)
            device.transfers.submit(recorder.finish()).wait()
            assert device.download(there, np.int64, (COUNT,)).tolist() == X.tolist()
            if target is there:
                found[...] = 0
        assert found.tolist() == X.tolist()
        del recorder, source, target
        pinned.free()
        allocator.trim()
        assert (allocator.statistics.live, allocator.statistics.reserved) == (0, 0)

    def test_memory_goes_back_with_its_last_reference(self, device: Device) -> None:
        before = device.allocator.statistics.live
        buffer: Buffer | None = device.allocate(5000)
        part = buffer.slice(0, 10) if buffer else None
        buffer = None
        gc.collect()
        assert device.allocator.statistics.live > before
        part = None
        gc.collect()
        assert (part, device.allocator.statistics.live) == (None, before)

    def test_memory_that_is_not_there_is_one_error_to_its_caller(self, device: Device) -> None:
        mine = device.upload(X, label="mine")
        with pytest.raises(DeviceMemoryError, match=r"has no memory for .* for yours: .*\n  held by .*mine"):
            device.allocate(device.allocator.capacity, label="yours")
        np.testing.assert_array_equal(device.download(mine, np.int64, (COUNT,)), X)
        assert device.allocator.statistics.failed == 1

    def test_new_work_is_held_back_above_the_watermark(self, device: Device, executable: Executable) -> None:
        commands = self.steps(device, executable, 1)
        slots = [device.upload(X), device.allocate(X.nbytes)]
        held = device.allocate(1 << 20, label="a large request")
        device.allocator.limit(high=1 << 20, low=1 << 19)
        with pytest.raises(
            DeviceTimeoutError, match=r"until that is 512\.0 KiB.*\n  held by a large request"
        ):
            device.compute.submit(commands, slots, timeout=0.01)
        device.compute.submit(commands, slots, new=False, timeout=0.01).wait()
        began: list[Submission] = []
        thread = threading.Thread(target=lambda: began.append(device.compute.submit(commands, slots)))
        thread.start()
        held.free()
        thread.join(PATIENCE_S)
        began[0].wait()
        assert device.allocator.statistics.held_back >= 1

    # Dispatches.

    def test_a_dispatch_runs_every_tile(self, device: Device, executable: Executable) -> None:
        source, target = device.upload(X), device.upload(np.full(COUNT, -1))
        recorder = device.record()
        recorder.dispatch(executable, 0, [source, target], 40)
        device.compute.submit(recorder.finish()).wait()
        found = device.download(target, np.int64, (COUNT,))
        assert found.tolist() == [*range(1, 41), *[-1] * 24]

    def test_commands_are_replayed_with_other_buffers(self, device: Device, executable: Executable) -> None:
        commands = self.steps(device, executable, 3)
        for start in (0, 100, -7):
            slots = [device.upload(X + start), device.allocate(X.nbytes)]
            for _ in range(2):
                device.compute.submit(commands, slots).wait()
            assert device.download(slots[1], np.int64, (COUNT,)).tolist() == (X + start + 3).tolist()

    def test_copies_and_fills_between_dispatches_keep_their_order(
        self, device: Device, executable: Executable
    ) -> None:
        one, other = device.upload(X), device.allocate(X.nbytes)
        recorder = device.record()
        for _ in range(3):
            recorder.dispatch(executable, 0, [one, other], COUNT)
            recorder.barrier()
            recorder.copy(other, one)
            recorder.barrier()
        recorder.fill(one.slice(0, 8), bytes(8))
        recorder.barrier()
        recorder.dispatch(executable, 0, [one, other], COUNT)
        device.compute.submit(recorder.finish()).wait()
        assert device.download(other, np.int64, (COUNT,)).tolist() == [1, *(X + 4)[1:]]

    def test_a_wrong_index_is_an_error_with_its_origin(self, device: Device) -> None:
        indices = device.upload(np.array([0, 3, -3, 5], np.int64))
        recorder = device.record("lookup")
        recorder.fill(device.allocate(8), b"\0")
        recorder.check_indices(CheckIndices(indices, 8, 1, 0, 4, 5, "dispatch 'gather'"))
        submission = device.compute.submit(recorder.finish())
        with pytest.raises(
            UsageError,
            match=rf"index 5 is out of range: dispatch 'gather'\n  at command 1 of lookup on {device.name}",
        ):
            submission.wait()

    def test_what_cannot_run_is_refused_when_it_is_recorded(
        self, device: Device, executable: Executable
    ) -> None:
        buffer, recorder = device.upload(X), device.record("wrong")
        with pytest.raises(
            UsageError, match="wrong, command 0: the executable has 1 entry points, got number 1"
        ):
            recorder.dispatch(executable, 1, [buffer, buffer], 1)
        with pytest.raises(UsageError, match="takes 2 bindings, got 1"):
            recorder.dispatch(executable, 0, [buffer], 1)
        with pytest.raises(UsageError, match="tiles, got -1"):
            recorder.dispatch(executable, 0, [buffer, buffer], -1)
        with pytest.raises(UsageError, match="a copy has one size, got 512 and 8 bytes"):
            recorder.copy(buffer, buffer.slice(0, 8))
        with pytest.raises(UsageError, match="overlap"):
            recorder.copy(buffer.slice(0, 16), buffer.slice(8, 16))
        with pytest.raises(UsageError, match="a pattern has 1, 2, 4 or 8 bytes"):
            recorder.fill(buffer, b"abc")
        with pytest.raises(UsageError, match="index, offset and size of a slot are 0 or more"):
            recorder.fill(Slot(-1, 0, 8), b"a")
        assert recorder.finish().commands == ()

    def test_buffers_that_do_not_fit_are_refused_at_submission(
        self, device: Device, executable: Executable
    ) -> None:
        commands = self.steps(device, executable, 1)
        whole, small = device.upload(X), device.allocate(8)
        with pytest.raises(UsageError, match="takes 2 buffers, got 1"):
            device.compute.submit(commands, [whole])
        with pytest.raises(UsageError, match="slot 1 takes 512 bytes, got a buffer"):
            device.compute.submit(commands, [whole, small])
        freed = device.allocate(X.nbytes)
        freed.free()
        with pytest.raises(UsageError, match="uses memory that was freed"):
            device.compute.submit(commands, [whole, freed])

    def test_memory_freed_in_flight_stays_until_the_end(self, device: Device, executable: Executable) -> None:
        gate = Timeline("gate")
        slots = [device.upload(X), device.upload(X)]
        submission = device.compute.submit(self.steps(device, executable, 1), slots, wait=[(gate, 1)])
        live = device.allocator.statistics.live
        slots[0].free()
        assert device.allocator.statistics.live == live
        gate.signal(1)
        submission.wait()
        assert device.allocator.statistics.live < live

    # Order.

    def test_timelines_order_queues(self, device: Device, executable: Executable) -> None:
        line, queues = Timeline("steps"), [device.compute, device.transfers, device.queue("third")]
        one, other = device.upload(X), device.allocate(X.nbytes)
        forth, back = (self.step(device, executable, *pair) for pair in ((one, other), (other, one)))
        for index in range(30):
            queues[index % 3].submit(
                (forth, back)[index % 2], wait=[(line, index)], signal=[(line, index + 1)]
            )
        line.wait(30)
        assert device.download(one, np.int64, (COUNT,)).tolist() == (X + 30).tolist()

    def test_values_have_64_bits(self, device: Device, executable: Executable) -> None:
        top = (1 << 64) - 1
        line, slots = Timeline("wide", top - 2), [device.upload(X), device.allocate(X.nbytes)]
        last = device.compute.submit(
            self.steps(device, executable, 1), slots, wait=[(line, top - 1)], signal=[(line, top)]
        )
        assert not last.done
        line.signal(top - 1)
        line.wait(top)
        with pytest.raises(UsageError, match="cannot signal"):
            device.compute.submit(self.steps(device, executable, 1), slots, signal=[(line, top)])

    def test_a_queue_keeps_the_order_of_submission(self, device: Device, executable: Executable) -> None:
        gate, commands = Timeline("gate"), self.steps(device, executable, 1)
        slots = [device.upload(X), device.allocate(X.nbytes)]
        first = device.compute.submit(commands, slots, wait=[(gate, 1)])
        second = device.compute.submit(commands, slots)
        with pytest.raises(DeviceTimeoutError, match=r"did not reach 1 within 0\.01 s: it stands at 0"):
            second.wait(0.01)
        free = device.queue("free", in_order=False)
        waiting = free.submit(commands, slots, wait=[(gate, 1)])
        free.submit(commands, slots).wait()
        assert not first.done
        assert not waiting.done
        gate.signal(1)
        for each in (first, second, waiting):
            each.wait()
        assert first.end_ns <= second.begin_ns

    def test_of_several_that_could_run_the_first_submitted_does(
        self, device: Device, executable: Executable
    ) -> None:
        commands, slots = self.steps(device, executable, 1), [device.upload(X), device.allocate(X.nbytes)]
        free, holds = device.queue("free", in_order=False), Timeline("holds")
        entered, let = threading.Event(), threading.Event()
        holds.when(1, lambda _: (entered.set(), let.wait(PATIENCE_S)))  # in the queue's thread
        free.submit(commands, slots, signal=[(holds, 1)])
        assert entered.wait(PATIENCE_S)
        gates = [Timeline(f"gate {number}") for number in range(3)]
        made = [free.submit(commands, slots, wait=[(gate, 1)]) for gate in gates]
        for gate in reversed(gates):
            gate.signal(1)
        let.set()
        for submission in made:
            submission.wait(PATIENCE_S)
        assert [each.begin_ns for each in made] == sorted(each.begin_ns for each in made)

    def test_what_is_late_does_not_begin(self, device: Device, executable: Executable) -> None:
        commands, gate = self.steps(device, executable, 1), Timeline("gate")
        slots, line = [device.upload(X), device.upload(X)], Timeline("line")
        at = time.monotonic_ns()
        late = device.compute.submit(commands, slots, wait=[(gate, 1)], signal=[(line, 1)], deadline_ns=at)
        soon = device.compute.submit(commands, slots[::-1], deadline_ns=at + 60_000_000_000)
        gate.signal(1)
        with pytest.raises(DeviceTimeoutError, match=r"^steps did not end by its deadline\n  on .* compute$"):
            late.wait(PATIENCE_S)
        assert line.error is late.error
        soon.wait(PATIENCE_S)
        assert device.download(slots[1], np.int64, (COUNT,)).tolist() == X.tolist()
        assert device.download(slots[0], np.int64, (COUNT,)).tolist() == (X + 1).tolist()

    def test_a_full_queue_says_so(self, device: Device, executable: Executable) -> None:
        gate, queue = Timeline("gate"), device.queue("short", limit=2)
        commands, slots = self.steps(device, executable, 1), [device.upload(X), device.allocate(X.nbytes)]
        for _ in range(2):
            queue.submit(commands, slots, wait=[(gate, 1)])
        with pytest.raises(
            DeviceTimeoutError, match="had no room within 0 s: 2 submissions are under way, of 2"
        ):
            queue.submit(commands, slots, timeout=0)
        gate.signal(1)
        queue.submit(commands, slots).wait()

    # Errors.

    def test_an_error_travels_to_what_depends_on_it_and_no_further(
        self, device: Device, executable: Executable
    ) -> None:
        start, line, other = Timeline("start"), Timeline("line"), Timeline("other")
        slots = [device.upload(X), device.allocate(X.nbytes)]
        bad, good = self.failing(device), self.steps(device, executable, 1)
        queue = device.queue("second")
        submissions = [
            device.compute.submit(bad, wait=[(start, 1)], signal=[(line, 1)]),
            queue.submit(good, slots, wait=[(line, 1)], signal=[(line, 2)]),
            device.compute.submit(good, slots, wait=[(line, 2)]),
            device.compute.submit(good, slots, signal=[(other, 1)]),
        ]
        start.signal(1)
        for submission in submissions[:3]:
            with pytest.raises(UsageError, match="at command 0 of failing"):
                submission.wait()
        submissions[3].wait()
        other.wait(1)
        errors = {id(submission.error) for submission in submissions[:3]}
        assert errors == {id(line.error)}
        assert queue.pending == device.compute.pending == 0

    def test_a_cancelled_submission_does_not_run(self, device: Device, executable: Executable) -> None:
        gate, line = Timeline("gate"), Timeline("line")
        slots = [device.upload(X), device.upload(X)]
        commands = self.steps(device, executable, 1)
        first = device.compute.submit(commands, slots, wait=[(gate, 1)], signal=[(line, 1)])
        after = device.transfers.submit(commands, slots, wait=[(line, 1)])
        assert first.cancel()
        with pytest.raises(CancelledWorkError, match="was cancelled"):
            after.wait()
        assert first.done
        assert gate.waiting == 0
        gate.signal(1)
        done = device.compute.submit(commands, slots)
        done.wait()
        assert not done.cancel()

    def test_a_killed_waiter_leaves_the_others(self, device: Device, executable: Executable) -> None:
        gate, line = Timeline("gate"), Timeline("line")
        slots = [device.upload(X), device.allocate(X.nbytes)]
        device.compute.submit(self.steps(device, executable, 1), slots, wait=[(gate, 1)], signal=[(line, 1)])
        for _ in range(3):
            with pytest.raises(DeviceTimeoutError):
                line.wait(1, timeout=0.001)
        other = threading.Thread(target=line.wait, args=(1,))
        other.start()
        assert line.waiting <= 1
        gate.signal(1)
        other.join(PATIENCE_S)
        assert not other.is_alive()
        assert line.waiting == 0

    def test_a_closed_device_takes_nothing(self, executable: Executable, device: Device) -> None:
        gate, line = Timeline("gate"), Timeline("line")
        slots = [device.upload(X), device.allocate(X.nbytes)]
        commands = self.steps(device, executable, 1)
        waiting = device.compute.submit(commands, slots, wait=[(gate, 1)], signal=[(line, 1)])
        device.close()
        with pytest.raises(DeviceClosedError, match="was closed before it ran"):
            waiting.wait()
        with pytest.raises(DeviceClosedError):
            line.wait(1)
        for use in (
            lambda: device.compute.submit(commands, slots),
            lambda: device.allocate(8),
            lambda: device.load(self.code()),
            lambda: device.record().finish(),
        ):
            with pytest.raises(DeviceClosedError, match="is closed"):
                use()
        gate.signal(1)

    def test_a_lost_device_fails_what_is_under_way(self, device: Device, executable: Executable) -> None:
        gate, line = Timeline("gate"), Timeline("line")
        slots = [device.upload(X), device.allocate(X.nbytes)]
        commands = self.steps(device, executable, 1)
        waiting = device.compute.submit(commands, slots, wait=[(gate, 1)], signal=[(line, 1)])
        device.lose(DeviceLostError(f"{device.name} was unplugged"))
        for use in (waiting.wait, lambda: line.wait(1), lambda: device.compute.submit(commands, slots)):
            with pytest.raises(DeviceLostError, match="was unplugged"):
                use()

    @pytest.mark.parametrize("end", ["closed", "lost"])
    @pytest.mark.parametrize("full", ["memory", "room"])
    def test_who_waits_to_submit_hears_of_the_end(
        self, device: Device, executable: Executable, full: str, end: str
    ) -> None:
        gate, queue = Timeline("gate"), device.queue("short", limit=1)
        commands, slots = self.steps(device, executable, 1), [device.upload(X), device.allocate(X.nbytes)]
        queue.submit(commands, slots, wait=[(gate, 1)])
        if full == "memory":
            device.allocator.limit(high=256)
        errors: list[BaseException] = []

        def submit() -> None:
            try:
                queue.submit(commands, slots)
            except DeviceError as error:
                errors.append(error)

        threads = [threading.Thread(target=submit) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.01)
        if end == "closed":
            device.close()
        else:
            device.lose(DeviceLostError(f"{device.name} was unplugged"))
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        assert [type(error) for error in errors] == [
            DeviceClosedError if end == "closed" else DeviceLostError
        ] * 3

    def test_many_threads_submit(self, device: Device, executable: Executable) -> None:
        commands, failures = self.steps(device, executable, 2), list[str]()

        def client(number: int) -> None:
            for turn in range(10):
                slots = [device.upload(X + number), device.allocate(X.nbytes)]
                device.compute.submit(commands, slots).wait()
                found = device.download(slots[1], np.int64, (COUNT,))
                if found.tolist() != (X + number + 2).tolist():
                    failures.append(f"{number}, {turn}")

        threads = [threading.Thread(target=client, args=(100 * n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []

    # Helpers.

    def step(self, device: Device, executable: Executable, source: Buffer, target: Buffer) -> CommandBuffer:
        """target = source + 1."""
        recorder = device.record("step")
        recorder.dispatch(executable, 0, [source, target], COUNT)
        return recorder.finish()

    def steps(self, device: Device, executable: Executable, count: int) -> CommandBuffer:
        """Slot 1 = slot 0 + count."""
        recorder = device.record("steps")
        source, target = Slot(0, 0, X.nbytes), Slot(1, 0, X.nbytes)
        for index in range(count):
            recorder.dispatch(executable, 0, [target if index else source, target], COUNT)
            recorder.barrier()
        return recorder.finish()

    def failing(self, device: Device) -> CommandBuffer:
        """Commands of which the first fails."""
        recorder = device.record("failing")
        wrong = device.upload(np.array([9], np.int64))
        recorder.check_indices(CheckIndices(wrong, 8, 1, 0, 1, 5, "meant to fail"))
        return recorder.finish()


__all__ = ["COUNT", "DeviceConformance", "DeviceError", "Queue", "X", "host_buffer"]
