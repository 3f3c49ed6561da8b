"""Indices that a dispatch reads, checked as it runs: kernels clamp them, and a wrong one must not go unnoticed.

A check is a command like any other, before the dispatch's own: it goes over the indices in vectors, as an embedding
reads hundreds of elements for each. It writes the first wrong index to its row, which is looked at when the run is
over.
"""

from __future__ import annotations

from typing import Final

from autotune.runtime.cpu.addresses import at
from autotune.runtime.cpu.atomics import load, load_boolean, store
from autotune.runtime.cpu.layout import (
    CHECK_CHUNKS,
    CHECK_COUNT,
    CHECK_EXTENT,
    CHECK_INDEX,
    CHECK_SLOTS,
    CHECK_STRIDE,
    CHECK_TILE,
    CHECK_WIDTH,
    CHECK_WRONG,
)
from autotune.runtime.cpu.translate.functions import native, operation

_LANES, _VECTORS = 8, 4
_BLOCK: Final = 32
"""Indices that one turn of the loop looks at: ``_VECTORS`` of ``_LANES``."""


def _beyond(kind: str) -> str:
    """Return LLVM IR that ors, over all indices i, the words i + extent and extent - 1 - i: negative if one is beyond.

    Neither sum can wrap around for an index in range, and one of them is negative for any other.
    """
    words, steps, seen = f"<{_LANES} x i64>", list[str](), "%seen"
    for n in range(_VECTORS):
        loaded = f"load <{_LANES} x {kind}>, ptr %place{n}, align {4 if kind == 'i32' else 8}"
        wide = f"%v{n} = sext <{_LANES} x i32> %short{n} to {words}"
        steps += [
            f"  %place{n} = getelementptr <{_LANES} x {kind}>, ptr %block, i64 {n}",
            *([f"  %v{n} = {loaded}"] if kind == "i64" else [f"  %short{n} = {loaded}", f"  {wide}"]),
            f"  %low{n} = add {words} %v{n}, %size",
            f"  %high{n} = sub {words} %last, %v{n}",
            f"  %both{n} = or {words} %low{n}, %high{n}",
            f"  %seen{n} = or {words} {seen}, %both{n}",
        ]
        seen = f"%seen{n}"
    return f"""
entry:
  %one = insertelement {words} poison, i64 %extent, i64 0
  %size = shufflevector {words} %one, {words} poison, <{_LANES} x i32> zeroinitializer
  %last = sub {words} %size, splat (i64 1)
  %base = inttoptr i64 %address to ptr
  br label %head
head:
  %n = phi i64 [ 0, %entry ], [ %next, %body ]
  %seen = phi {words} [ zeroinitializer, %entry ], [ {seen}, %body ]
  %inside = icmp slt i64 %n, %blocks
  br i1 %inside, label %body, label %done
body:
  %block = getelementptr [{_BLOCK} x {kind}], ptr %base, i64 %n
{chr(10).join(steps)}
  %next = add i64 %n, 1
  br label %head
done:
  %word = call i64 @llvm.vector.reduce.or.v{_LANES}i64({words} %seen)
  ret i64 %word
"""


_REDUCE = f"declare i64 @llvm.vector.reduce.or.v{_LANES}i64(<{_LANES} x i64>)"


@operation(_beyond("i64"), _REDUCE)
def _beyond_int64(address: int, blocks: int, extent: int) -> int:  # type: ignore[empty-body]
    """Return the negative if an int64 of so many blocks is outside of [-extent, extent)."""


@operation(_beyond("i32"), _REDUCE)
def _beyond_int32(address: int, blocks: int, extent: int) -> int:  # type: ignore[empty-body]
    """Return the same for int32."""


@operation("""
  %place = inttoptr i64 %address to ptr
  %short = load i32, ptr %place, align 4
  %value = sext i32 %short to i64
  ret i64 %value
""")
def _load_int32(address: int) -> int:  # type: ignore[empty-body]
    """Return a word of 32 bits."""


@native
def _index(address: int, width: int) -> int:
    """Return an index of four or eight bytes; of one byte a boolean."""
    if width == 1:
        return load_boolean(address)
    value: int = load(address) if width == 8 else _load_int32(address)
    return value


@native
def _check_run(row: int, address: int, count: int) -> None:
    """Check indices that follow each other."""
    width, extent = load(at(row, CHECK_WIDTH)), load(at(row, CHECK_EXTENT))
    blocks = count // _BLOCK
    word: int = (
        _beyond_int64(address, blocks, extent) if width == 8 else _beyond_int32(address, blocks, extent)
    )
    for position in range(blocks * _BLOCK, count):
        index = _index(address + position * width, width)
        word |= (index + extent) | (extent - 1 - index)
    if word < 0:
        _report(row, address, count)


@native
def _report(row: int, address: int, count: int) -> None:
    """Note the first wrong one of some indices."""
    width, extent = load(at(row, CHECK_WIDTH)), load(at(row, CHECK_EXTENT))
    for position in range(count):
        index = _index(address + position * width, width)
        if index < -extent or index >= extent:
            store(at(row, CHECK_INDEX), index)
            store(at(row, CHECK_WRONG), 1)
            break


@native
def check(table: int, begin: int, end: int, scratch: int) -> None:
    """Check, as a kernel, tiles of the indices at ``table[0]``, as the check row at ``table[1]`` says."""
    indices, row = load(table), load(at(table, 1))
    count, width = load(at(row, CHECK_COUNT)), load(at(row, CHECK_WIDTH))
    chunks, stride = load(at(row, CHECK_CHUNKS)), load(at(row, CHECK_STRIDE))
    for tile in range(begin, end):
        first = (tile % chunks) * CHECK_TILE
        address = indices + (tile // chunks) * stride + first * width
        _check_run(row, address, min(CHECK_TILE, count - first))


@native
def take_wrong(checks: int, count: int, found: int) -> int:
    """Return the number of a check that found a wrong index since the last look, negative for none; forgets all.

    The index goes to the slot ``found``, unless that is 0.
    """
    taken = -1
    for number in range(count):
        row = at(checks, CHECK_SLOTS * number)
        if load(at(row, CHECK_WRONG)):
            store(at(row, CHECK_WRONG), 0)
            taken = number
            if found:
                store(found, load(at(row, CHECK_INDEX)))
    return taken


__all__ = ["check", "take_wrong"]
