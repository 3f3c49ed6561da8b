"""Stores past the caches, for results that are larger than what the caches hold.

An ordinary store first fetches the line that it writes into. A non-temporal one (``movnt``) collects the line in a
write-combining buffer and sends it to memory whole, which saves a third of a copy's traffic. It must be aligned:
offsets are known to be while code is emitted, the arrays' addresses only when the kernel is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from autotune.codegen.llvm.addresses import Addresses
from autotune.codegen.llvm.writer import Writer
from autotune.lower.ir import NONTEMPORAL, Buffer, For
from autotune.lower.linear import Lin
from autotune.target import ITEM_BYTES

LINE_BYTES = 64
"""Alignment of arrays that are streamed to."""

_LEAST_BYTES = 16  # of a vector that has a non-temporal store


class StreamingStores:
    """Knows which stores go past the caches: where a loop around asks for it, unless ``allowed`` is off.

    ``buffers`` are those that such stores have been emitted for; their addresses must be aligned.
    """

    def __init__(self, code: Writer, addresses: Addresses, allowed: bool) -> None:
        self.code = code
        self.addresses = addresses
        self.allowed = allowed
        self.buffers: set[Buffer] = set()
        self._asked = False

    @contextmanager
    def of_loop(self, loop: For) -> Iterator[None]:
        """Enter the body of a loop, which may ask for streaming."""
        before = self._asked
        self._asked = before or NONTEMPORAL in loop.note
        yield
        self._asked = before

    def past_caches(self, buffer: Buffer, form: Lin) -> bool:
        """Return whether a store of the present lanes goes past the caches."""
        code, item = self.code, ITEM_BYTES[buffer.dtype]
        nbytes = code.lanes * item
        if not self.allowed or not self._asked or code.mask is not None or code.idle:
            return False
        if nbytes < _LEAST_BYTES or buffer.scope == "local" or self.addresses.divisor(form) * item % nbytes:
            return False
        self.buffers.add(buffer)
        return True

    def end(self) -> None:
        """Make streamed stores visible to the other workers before they are told that the kernel is done."""
        if self.buffers and self.code.module.target.arch == "x86_64":
            self.code.lines.append("  " + self.code.call("void", "@llvm.x86.sse.sfence"))


def alignment_test(buffers: Sequence[int]) -> list[str]:
    """Return the branch to ``streams`` where the addresses ``%b<n>`` of ``buffers`` are aligned, else go on."""
    lines, total = [], "0"
    for n in buffers:
        lines += [f"  %a{n} = ptrtoint ptr %b{n} to i64", f"  %o{n} = or i64 %a{n}, {total}"]
        total = f"%o{n}"
    return [
        *lines,
        f"  %rest = and i64 {total}, {LINE_BYTES - 1}",
        "  %aligned = icmp eq i64 %rest, 0",
        "  br i1 %aligned, label %streams, label %plain",
        "plain:",
    ]


__all__ = ["LINE_BYTES", "StreamingStores", "alignment_test"]
