"""Devices of the stress run: sets of cores and OpenCL devices, with one kernel; and how they stand."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from autotune.codegen.code import Launch
from autotune.codegen.gpu.starts import Start, with_starts
from autotune.errors import DeviceLostError, UsageError
from autotune.runtime.hal.cpu.cores import core_ids, parts
from autotune.runtime.hal.cpu.driver import open_cores
from autotune.runtime.hal.device import Device
from autotune.runtime.hal.driver import absent, devices
from autotune.runtime.hal.executable import Code, EntryPoint, Executable
from autotune.runtime.hal.queue import Queue
from autotune.suggest import listing

INPUTS = 3
"""Of every dispatch."""
WATERMARK = 256 << 10
"""Bytes in use on a device above which new graphs are held back: what two or three of them take."""
_OWN_MEMORY = 0.7
"""Chance that an OpenCL device shares no memory: copies go there and back."""
_ENTRY = EntryPoint(0, "add", INPUTS + 2, label="add")

# out[i] += 1 + a[n-1-i] + b[i] + c[i] of n tiles: another value where a tile runs twice or too early.
_LLVM = """
define void @add(ptr %table, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %ap = load ptr, ptr %table
  %p1 = getelementptr i64, ptr %table, i64 1
  %bp = load ptr, ptr %p1
  %p2 = getelementptr i64, ptr %table, i64 2
  %cp = load ptr, ptr %p2
  %p3 = getelementptr i64, ptr %table, i64 3
  %op = load ptr, ptr %p3
  %p4 = getelementptr i64, ptr %table, i64 4
  %np = load ptr, ptr %p4
  %last = load i64, ptr %np
  br label %head
head:
  %i = phi i64 [%begin, %entry], [%next, %body]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %exit
body:
  %j = sub i64 %last, %i
  %ai = getelementptr i64, ptr %ap, i64 %j
  %a = load i64, ptr %ai
  %bi = getelementptr i64, ptr %bp, i64 %i
  %b = load i64, ptr %bi
  %ci = getelementptr i64, ptr %cp, i64 %i
  %c = load i64, ptr %ci
  %oi = getelementptr i64, ptr %op, i64 %i
  %o = load i64, ptr %oi
  %s1 = add i64 %a, %b
  %s2 = add i64 %s1, %c
  %s3 = add i64 %s2, %o
  %s4 = add i64 %s3, 1
  store i64 %s4, ptr %oi
  %next = add i64 %i, 1
  br label %head
exit:
  ret void
}
"""
_OPENCL = """
__kernel void add(__global uchar *p0, const ulong o0, __global uchar *p1, const ulong o1,
                  __global uchar *p2, const ulong o2, __global uchar *p3, const ulong o3,
                  __global uchar *p4, const ulong o4, const long begin, const long end) {
  const long i = begin + (long)get_global_id(0);
  if (i >= end) return;
  const long last = *(__global const long *)(p4 + o4);
  __global const long *a = (__global const long *)(p0 + o0);
  __global const long *b = (__global const long *)(p1 + o1);
  __global const long *c = (__global const long *)(p2 + o2);
  ((__global long *)(p3 + o3))[i] += 1 + a[last - i] + b[i] + c[i];
}
"""


@dataclass(frozen=True, eq=False)
class Place:
    """An open device with the code on it and its queues."""

    device: Device
    executable: Executable
    queues: Sequence[Queue]

    @property
    def lost(self) -> bool:
        """Return whether the device was taken away."""
        try:
            self.device.check()
        except DeviceLostError:
            return True
        return False

    @property
    def state(self) -> str:
        """Return a line with what waits there, and who holds its memory."""
        pending = ", ".join(f"{queue.pending} in {queue.name}" for queue in self.queues)
        statistics = self.device.allocator.statistics
        return (
            f"{self.device!r}: submissions under way: {pending}; {statistics.live} bytes in use, "
            f"{statistics.reserved} reserved, watermark {WATERMARK}"
        )


def usable_kinds(kinds: Sequence[str]) -> list[str]:
    """Those of ``kinds`` (all known ones if none are given) that there are; raises UsageError for others."""
    unknown = next((kind for kind in kinds if kind not in _OPEN), None)
    if unknown is not None:
        raise UsageError(f"no kind of device {unknown!r}; known: {listing(unknown, _OPEN)}")
    there = {info.driver for info in devices()}
    for kind in kinds:
        if kind not in there:
            raise UsageError(f"there is no {kind} device here: {absent().get(kind, 'none was found')}")
    return list(dict.fromkeys(kinds)) or [kind for kind in _OPEN if kind in there]


def open_places(rng: random.Random, count: int, kinds: Sequence[str]) -> list[Place]:
    """So many devices, the kinds in turn: parts of the cores and all, with one to eight workers; OpenCL devices."""
    first = rng.randrange(len(kinds))
    places = []
    for number in range(count):
        kind = kinds[(first + number) % len(kinds)]
        device = _OPEN[kind](rng, number)
        device.allocator.limit(high=WATERMARK)
        queues = [device.compute, device.transfers, device.queue("free", in_order=False)]
        places.append(Place(device, device.load(_code(device.engine.formats[0])), queues))
    return places


def _open_cpu(rng: random.Random, number: int) -> Device:
    sets = [*parts(), core_ids()]
    return open_cores(f"device {number}", sets[number % len(sets)], rng.randint(1, 8))


def _open_opencl(rng: random.Random, number: int) -> Device:
    from autotune.opencl import devices as found
    from autotune.runtime.hal.opencl.driver import open_number

    own = rng.random() < _OWN_MEMORY
    return open_number(f"device {number}", rng.randrange(len(found())), own_memory=own)


_OPEN = {"cpu": _open_cpu, "opencl": _open_opencl}


@cache
def _code(form: str) -> Code:
    """The kernel of all dispatches."""
    if form == "opencl-c":
        starts: Mapping[str, Start] = {"add": Start(Launch(None, (64, 1, 1)), INPUTS + 2)}
        return Code(form, (with_starts("opencl", starts, _OPENCL),), (_ENTRY,))
    from autotune.codegen.llvm import compile_ir
    from autotune.target import Target

    return Code(form, (compile_ir(_LLVM, Target.detect()),), (_ENTRY,))


__all__ = ["INPUTS", "WATERMARK", "Place", "open_places", "usable_kinds"]
