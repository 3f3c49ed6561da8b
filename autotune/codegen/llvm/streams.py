"""Stores past the caches, for results that are larger than what the caches hold.

An ordinary store first fetches the line that it writes into. A non-temporal one (``movnt``) collects the line in a
write-combining buffer and sends it to memory whole, which saves a third of a copy's traffic. It must be aligned:
offsets are known to be while code is emitted, the arrays' addresses only when the kernel is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import gcd

from autotune.codegen.llvm.blocks import BlockLoads
from autotune.codegen.llvm.memory import Ramp
from autotune.codegen.llvm.module import ModuleText
from autotune.codegen.llvm.types import Value
from autotune.lower.ir import NONTEMPORAL, Buffer, For
from autotune.lower.linear import Lin
from autotune.target import ITEM_BYTES
from autotune.te.dtypes import INDEX_DTYPE
from autotune.te.expr import Binary, Expr, Var

LINE_BYTES = 64
"""Alignment of arrays that are streamed to."""

_LEAST_BYTES = 16  # of a vector that has a non-temporal store


class StreamStores(BlockLoads):
    """Knows which stores go past the caches: where ``may_stream`` and a loop around asks for it (``streaming``).

    ``streamed`` are the buffers that such stores have been emitted for; their addresses must be aligned.
    """

    def __init__(self, module: ModuleText) -> None:
        super().__init__(module)
        self.streaming = False
        self.streamed: set[Buffer] = set()
        self.may_stream = True
        self._divisors: dict[Var, int] = {}

    @contextmanager
    def streams_of(self, loop: For) -> Iterator[None]:
        """The body of a loop, which may ask for streaming."""
        before = self.streaming
        self.streaming = before or (self.may_stream and NONTEMPORAL in loop.note)
        try:
            yield
        finally:
            self.streaming = before

    def divisible(self, name: Var, value: Expr) -> None:
        """Remember what divides a named index."""
        if value.dtype == INDEX_DTYPE:
            self._divisors[name] = self._divisor(self.linear.form(value))

    def streams(self, buffer: Buffer, form: Lin) -> bool:
        """Whether a store of the present lanes goes past the caches."""
        nbytes = self.lanes * ITEM_BYTES[buffer.dtype]
        if (
            not self.streaming
            or self.mask is not None
            or self.idle
            or nbytes < _LEAST_BYTES
            or buffer.scope == "local"
        ):
            return False
        if (self._divisor(form) * ITEM_BYTES[buffer.dtype]) % nbytes:
            return False
        self.streamed.add(buffer)
        return True

    def _divisor(self, form: Lin) -> int:
        """A number that divides the offset of the first lane."""
        total, divisor = form.constant, 0
        for atom, coefficient in form.terms.items():
            known = self.env.get(atom) if isinstance(atom, Var) else None
            if isinstance(known, Value):
                known = known.number
            if isinstance(known, Ramp):
                total += coefficient * known.base
            elif known is not None:
                total += coefficient * known
            elif isinstance(atom, Var) and atom in self._divisors:
                divisor = gcd(divisor, coefficient * self._divisors[atom])
            elif isinstance(atom, Binary) and atom.op in ("min", "max"):
                sides = [self._divisor(self.linear.form(side)) for side in (atom.a, atom.b)]
                divisor = gcd(divisor, coefficient * gcd(*sides))
            else:
                divisor = gcd(divisor, coefficient)
        return gcd(divisor, total)

    def end_of_streams(self) -> None:
        """Make streamed stores visible to the other workers before they are told that the kernel is done."""
        if self.streamed and self.module.target.arch == "x86_64":
            self.module.declare("declare void @llvm.x86.sse.sfence()")
            self.lines.append("  call void @llvm.x86.sse.sfence()")


def alignment_test(buffers: Sequence[int]) -> list[str]:
    """Branch to ``streams`` where the addresses ``%b<n>`` of ``buffers`` are aligned, else go on."""
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


__all__ = ["LINE_BYTES", "StreamStores", "alignment_test"]
