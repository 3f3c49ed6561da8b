"""Machine-level operations of the executor: atomics, waiting, the clock, kernel calls.

All work on addresses of int64 slots, so that the native loops touch neither Python objects nor
reference counts, and raise nothing.
"""
# No body is Python.
# mypy: disable-error-code="empty-body"

from __future__ import annotations

import platform
import sys
import time

from autotune.runtime.cpu.translate.functions import external, operation

_LINUX = sys.platform == "linux"
_SLEEP = "declare i64 @syscall(i64, ...)" if _LINUX else "declare i32 @usleep(i32)"
_FUTEX = {"x86_64": 202}.get(platform.machine(), 98)
_FUTEX_WAIT_PRIVATE, _FUTEX_WAKE_PRIVATE = 128, 129
_PARK_MICROSECONDS = 200
_PAUSE = {
    "x86_64": ("call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()"),
    "aarch64": ("call void @llvm.aarch64.hint(i32 1)", "declare void @llvm.aarch64.hint(i32)"),
}.get(platform.machine(), ("fence seq_cst",))


@operation("""
  %slot = inttoptr i64 %address to ptr
  %value = load i64, ptr %slot
  ret i64 %value
""")
def load(address: int) -> int:
    """Return the plain load of a slot that no other worker writes now."""


@operation("""
  %slot = inttoptr i64 %address to ptr
  %byte = load i8, ptr %slot
  %set = icmp ne i8 %byte, 0
  %value = zext i1 %set to i64
  ret i64 %value
""")
def load_boolean(address: int) -> int:
    """Return 1 if a byte that no other worker writes now is not 0, else 0."""


@operation("""
  %slot = inttoptr i64 %address to ptr
  store i64 %value, ptr %slot
  ret void
""")
def store(address: int, value: int) -> None:
    """Store plainly to a slot that no other worker reads now."""


@operation("""
  %slot = inttoptr i64 %address to ptr
  %value = load atomic i64, ptr %slot monotonic, align 8
  ret i64 %value
""")
def load_relaxed(address: int) -> int:
    """Return the atomic load that orders nothing."""


@operation("""
  %slot = inttoptr i64 %address to ptr
  %value = load atomic i64, ptr %slot acquire, align 8
  ret i64 %value
""")
def load_acquire(address: int) -> int:
    """Return the atomic load; what the writer did before its release is visible afterwards."""


@operation("""
  %slot = inttoptr i64 %address to ptr
  %value = load atomic i64, ptr %slot seq_cst, align 8
  ret i64 %value
""")
def load_ordered(address: int) -> int:
    """Return the atomic load, sequentially consistent: not before this worker's own exchanges and
    additions above it."""


@operation("""
  %slot = inttoptr i64 %address to ptr
  store atomic i64 %value, ptr %slot release, align 8
  ret void
""")
def store_release(address: int, value: int) -> None:
    """Store atomically; publishes everything written before."""


@operation("""
  %slot = inttoptr i64 %address to ptr
  %before = atomicrmw add ptr %slot, i64 %value seq_cst
  ret i64 %before
""")
def fetch_add(address: int, value: int) -> int:
    """Return the atomic addition, sequentially consistent; returns the value before."""


@operation("""
  %slot = inttoptr i64 %address to ptr
  %before = atomicrmw xchg ptr %slot, i64 %value seq_cst
  ret i64 %before
""")
def exchange(address: int, value: int) -> int:
    """Return the atomic store, sequentially consistent; returns the value before."""


@operation("""
  %slot = inttoptr i64 %address to ptr
  %pair = cmpxchg ptr %slot, i64 %expected, i64 %value seq_cst seq_cst
  %before = extractvalue { i64, i1 } %pair, 0
  ret i64 %before
""")
def compare_exchange(address: int, expected: int, value: int) -> int:
    """Return the atomic store if the slot holds what is ``expected``; returns the value before."""


@operation(f"  {_PAUSE[0]}\n  ret void", *_PAUSE[1:])
def pause() -> None:
    """Tell the core that this is a spin loop."""


@external("sched_yield")
def yield_processor() -> None:
    """Let another thread of this core run (``sched_yield``)."""


@operation(
    f"""
  %pointer = inttoptr i64 %address to ptr
  %low = trunc i64 %value to i32
  call i64 (i64, ...) @syscall(i64 {_FUTEX}, ptr %pointer, i32 {_FUTEX_WAIT_PRIVATE}, i32 %low, ptr null)
  ret void
"""
    if _LINUX
    else f"  call i32 @usleep(i32 {_PARK_MICROSECONDS})\n  ret void",
    _SLEEP,
)
def park(address: int, value: int) -> None:
    """Sleep while the slot holds ``value`` (its low 32 bits); may also return early.

    A futex on Linux; elsewhere a short sleep, so that the caller polls.
    """


@operation(
    f"""
  %pointer = inttoptr i64 %address to ptr
  %count = trunc i64 %threads to i32
  call i64 (i64, ...) @syscall(i64 {_FUTEX}, ptr %pointer, i32 {_FUTEX_WAKE_PRIVATE}, i32 %count, ptr null)
  ret void
"""
    if _LINUX
    else "  ret void",
    _SLEEP,
)
def unpark(address: int, threads: int) -> None:
    """Wake at most that many threads parked on the slot."""


@operation(
    f"""
  %time = alloca [2 x i64]
  call i32 @clock_gettime(i32 {time.CLOCK_MONOTONIC}, ptr %time)
  %seconds = load i64, ptr %time
  %second = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %second
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
""",
    "declare i32 @clock_gettime(i32, ptr)",
)
def clock_ns() -> int:
    """Return the monotonic clock in nanoseconds (that of ``time.monotonic_ns``)."""


@operation("""
  %kernel = inttoptr i64 %address to ptr
  %pointers = inttoptr i64 %table to ptr
  %memory = inttoptr i64 %scratch to ptr
  call void %kernel(ptr %pointers, i64 %begin, i64 %end, ptr %memory)
  ret void
""")
def call_kernel(address: int, table: int, begin: int, end: int, scratch: int) -> None:
    """Call ``void(i64 *table, i64 begin, i64 end, void *scratch)`` at an address."""


__all__ = [
    "call_kernel",
    "clock_ns",
    "compare_exchange",
    "exchange",
    "fetch_add",
    "load",
    "load_acquire",
    "load_ordered",
    "load_relaxed",
    "park",
    "pause",
    "store",
    "store_release",
    "unpark",
    "yield_processor",
]
