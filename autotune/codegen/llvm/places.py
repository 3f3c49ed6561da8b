"""Memory of a kernel's buffers: arguments by pointer, local ones in slots, on the stack or in scratch memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autotune.codegen.llvm.addresses import Addresses
from autotune.codegen.llvm.block import ThreadBlock
from autotune.codegen.llvm.local_fences import ZONE, LocalFences
from autotune.codegen.llvm.locals import Chunk, chunks, slots_of
from autotune.codegen.llvm.types import memory_type, scalar_type, vector
from autotune.codegen.llvm.writer import Writer
from autotune.lower.ir import Allocate, Buffer, LoopKernel, Store, walk
from autotune.rounding import round_up
from autotune.target import ITEM_BYTES
from autotune.te.expr import Expr, Var


class BufferPlaces:
    """Finds a place for each buffer.

    ``block`` are the threads that run the kernel. ``pointers`` are those of buffers in memory; ``slots`` holds
    ``{offset: (name, lanes)}`` of buffers in registers. Those in ``private`` were allocated inside of a vectorized loop
    (``in_lanes``): each lane has elements of its own. ``masks_rests`` says whether the rest of a vectorized loop is one
    vector with idle lanes.
    """

    def __init__(self, code: Writer, addresses: Addresses, kernel: LoopKernel, block: ThreadBlock) -> None:
        self.code = code
        self.addresses = addresses
        self.block = block
        self.pointers: dict[Buffer, str] = {b: f"%b{n}" for n, b in enumerate(kernel.buffers)}
        for pointer in self.pointers.values():
            code.available(pointer, 0)
        self.slots: dict[Buffer, dict[int, tuple[str, int]]] = {}
        self.private: set[Buffer] = set()
        self.in_lanes = False
        self.masks_rests = False
        self.scratch_bytes = 0
        self.fences = LocalFences(code.module) if code.module.fenced else None
        self._stack_bytes = 0
        self._scratch_top = 0
        # All vectorized loops have the lanes of the widest type that the kernel stores.
        stored = {s.buffer.dtype for s in walk(kernel.body) if isinstance(s, Store)}
        self._width = min((code.module.target.lanes(dtype) for dtype in stored), default=1)

    def cover(self, extent: int) -> list[Chunk]:
        """Return the vectors of a vectorized loop."""
        return chunks(extent, self._width, self.masks_rests)

    def _parts(self, extent: int) -> list[Chunk]:
        """Return the slots of a local buffer along a vectorized loop: inside of one, each lane has its own."""
        return chunks(extent, 1) if self.in_lanes else self.cover(extent)

    @contextmanager
    def allocated(self, node: Allocate) -> Iterator[None]:
        """Allocate a local buffer, which exists inside of this context."""
        buffer = node.buffer
        if buffer.scope == "shared":
            with self.block.shared(node) as pointer:
                if pointer is not None:
                    self.code.available(pointer, 0)
                    self.pointers[buffer] = pointer
                    yield
                    return
        slots = slots_of(buffer, node.body, self._parts, self._known, self.addresses.form)
        if slots is None:
            top = self._scratch_top
            self.pointers[buffer] = self._local_memory(buffer)
            yield
            if self.fences is None:
                self._scratch_top = top
            return
        self.slots[buffer] = self._local_slots(buffer, slots)
        if self.in_lanes:
            self.private.add(buffer)
        yield
        # Copies of a loop share the buffer's name, but not where it lives.
        for slot, _ in self.slots.pop(buffer).values():
            self.code.drop_slot(slot)
        self.private.discard(buffer)

    def _local_slots(self, buffer: Buffer, slots: dict[int, int]) -> dict[int, tuple[str, int]]:
        made: dict[int, tuple[str, int]] = {}
        for offset, slot_width in slots.items():
            width = self.code.lanes if self.in_lanes else slot_width
            name = "%" + self.code.fresh("slot")
            self.code.entry.append(f"  {name} = alloca {vector(scalar_type(buffer.dtype), width)}")
            made[offset] = (name, width)
        return made

    def _known(self, atom: Expr) -> int | None:
        value = self.addresses.env.get(atom) if isinstance(atom, Var) else None
        return value if isinstance(value, int) else None

    def _local_memory(self, buffer: Buffer) -> str:
        elements = max(buffer.elements, 1)
        size = elements * ITEM_BYTES[buffer.dtype]
        name = "%" + self.code.fresh("mem")
        zones = 0 if self.fences is None else 2 * ZONE
        if self._stack_bytes + size <= self.block.stack_bytes:
            self._stack_bytes += size
            what = f"{size + zones} x i8" if zones else f"{elements} x {memory_type(buffer.dtype)}"
            where = f"alloca [{what}], align 64"
        else:
            where = f"getelementptr i8, ptr %scratch, i64 {self._scratch_top}"
            self._scratch_top += round_up(size + zones, 64)
            self.scratch_bytes = max(self.scratch_bytes, self._scratch_top)
        if self.fences is None:
            self.code.entry.append(f"  {name} = {where}")
        else:
            base = f"{name}.fenced"
            self.code.entry += [f"  {base} = {where}", *self.fences.around(base, size, name)]
        self.code.available(name, 0)
        return name


__all__ = ["BufferPlaces"]
