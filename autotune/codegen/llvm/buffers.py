"""Where the buffers of a kernel are: arguments by pointer, local ones in slots, on the stack or in scratch memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autotune.codegen.llvm.instructions import InstructionEmitter
from autotune.codegen.llvm.locals import Chunk, chunks, slots_of
from autotune.codegen.llvm.module import ModuleText
from autotune.codegen.llvm.types import Value, memory_type, scalar_type, vector
from autotune.errors import BuildError
from autotune.lower.ir import Allocate, Buffer, Load, LoopKernel, Store, walk
from autotune.lower.linear import Lin
from autotune.target import ITEM_BYTES
from autotune.te.expr import Expr, Var

STACK_BYTES = 16 << 10
"""Local memory of a kernel up to this goes on the stack, larger buffers into the worker's scratch memory."""


class BufferEmitter(InstructionEmitter):
    """Finds a place for each buffer, and loads from it.

    ``masks_rests`` says whether the rest of a vectorized loop is one vector with idle lanes. ``_slots`` holds
    ``{offset: (name, lanes)}`` of buffers in registers; those in ``_private`` were allocated inside of a vectorized
    loop: each lane has elements of its own.
    """

    def __init__(self, module: ModuleText, kernel: LoopKernel) -> None:
        super().__init__(module)
        self.kernel = kernel
        self.constant_buffers = frozenset(kernel.reads)
        self.buffers = kernel.buffers
        self.scratch_bytes = 0
        self._pointers: dict[Buffer, str] = {b: f"%b{n}" for n, b in enumerate(self.buffers)}
        for pointer in self._pointers.values():
            self.available(pointer, 0)
        self._slots: dict[Buffer, dict[int, tuple[str, int]]] = {}
        self._stack_bytes = 0
        self._scratch_top = 0
        self._in_lanes = False
        self._private: set[Buffer] = set()
        self._width = self._vector_width()
        self.masks_rests = False

    def _vector_width(self) -> int:
        """Lanes of all vectorized loops of the kernel: those of the widest type that it stores."""
        sizes = {s.buffer.dtype for s in walk(self.kernel.body) if isinstance(s, Store)}
        return min((self.module.target.lanes(d) for d in sizes), default=1)

    def cover(self, extent: int) -> list[Chunk]:
        """The vectors of a vectorized loop."""
        return chunks(extent, self._width, self.masks_rests)

    def _parts(self, extent: int) -> list[Chunk]:
        """The slots of a local buffer along a vectorized loop: inside of one, each lane has its own."""
        return chunks(extent, 1) if self._in_lanes else self.cover(extent)

    @contextmanager
    def allocated(self, node: Allocate) -> Iterator[None]:
        """A local buffer exists inside of this context."""
        slots = slots_of(node.buffer, node.body, self._parts, self._known, self.form)
        if slots is None:
            top = self._scratch_top
            self._pointers[node.buffer] = self._local_memory(node.buffer)
            yield
            self._scratch_top = top
            return
        self._slots[node.buffer] = self._local_slots(node.buffer, slots)
        if self._in_lanes:
            self._private.add(node.buffer)
        yield
        # Copies of a loop share the buffer's name, but not where it lives.
        for slot, _ in self._slots.pop(node.buffer).values():
            self.drop_slot(slot)
        self._private.discard(node.buffer)

    def _local_slots(self, buffer: Buffer, slots: dict[int, int]) -> dict[int, tuple[str, int]]:
        made: dict[int, tuple[str, int]] = {}
        for offset, slot_width in slots.items():
            width = self.lanes if self._in_lanes else slot_width
            name = "%" + self.fresh("slot")
            self.entry.append(f"  {name} = alloca {vector(scalar_type(buffer.dtype), width)}")
            made[offset] = (name, width)
        return made

    def _known(self, atom: Expr) -> int | None:
        value = self.env.get(atom) if isinstance(atom, Var) else None
        return value if isinstance(value, int) else None

    def _local_memory(self, buffer: Buffer) -> str:
        size = max(buffer.elements, 1) * ITEM_BYTES[buffer.dtype]
        name = "%" + self.fresh("mem")
        if self._stack_bytes + size <= STACK_BYTES:
            self._stack_bytes += size
            elements = max(buffer.elements, 1)
            self.entry.append(f"  {name} = alloca [{elements} x {memory_type(buffer.dtype)}], align 64")
        else:
            self.entry.append(f"  {name} = getelementptr i8, ptr %scratch, i64 {self._scratch_top}")
            self._scratch_top += -(-size // 64) * 64
            self.scratch_bytes = max(self.scratch_bytes, self._scratch_top)
        self.available(name, 0)
        return name

    def base_pointer(self, buffer: Buffer) -> str:
        return self._pointers[buffer]

    def load(self, node: Load) -> Value:
        form = self.form(node, node.buffer, node.indices)
        address = self.address(form)
        slots = self._slots.get(node.buffer)
        if slots is None:
            if self.mask is None and address.lanes is None and address.stride in (0, 1):
                return self.plain_load(node.buffer, address, self.lanes if address.stride else 1)
            return self.block_load(node.buffer, form, address) or self.load_from(node.buffer, address)
        name, width = slots[address.constant]
        lanes = self.lanes if address.stride or node.buffer in self._private else 1
        if width != lanes or address.scalars or address.lanes is not None:
            raise BuildError(f"local buffer {node.buffer.name}: slot of {width} lanes read as {lanes}")
        return self.read_slot(name, node.buffer.dtype, width)

    def load_lanes(self, load: Load, form: Lin, lanes: int) -> Value:
        slot = self._register(load.buffer, form, lanes)
        if slot is None:
            return super().load_lanes(load, form, lanes)
        return self.read_slot(slot, load.dtype, lanes)

    def store_lanes(self, load: Load, form: Lin, value: Value) -> None:
        slot = self._register(load.buffer, form, value.lanes)
        if slot is None:
            super().store_lanes(load, form, value)
        else:
            self.write_slot(slot, value)

    def _register(self, buffer: Buffer, form: Lin, lanes: int) -> str | None:
        """The slot that instructions access; None for a buffer in memory."""
        slots = self._slots.get(buffer)
        if slots is None:
            return None
        name, width = slots.get(self.address(form).constant, ("", 0))
        if width != lanes:
            raise BuildError(
                f"an intrinsic accesses {lanes} lanes of {buffer.name}, which is kept in registers of "
                f"{width or 'other'} lanes: give the loops of the pattern kinds that make {lanes} lanes"
            )
        return name


__all__ = ["BufferEmitter"]
