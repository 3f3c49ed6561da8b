"""Elements of buffers wherever they are: vectors in registers or memory, lanes that are off, lanes that share one."""

from __future__ import annotations

from autotune.codegen.llvm.addresses import Address, Addresses
from autotune.codegen.llvm.blocks import Blocks
from autotune.codegen.llvm.expressions import Expressions
from autotune.codegen.llvm.folds import fold_lanes
from autotune.codegen.llvm.memory import MemoryAccesses
from autotune.codegen.llvm.places import BufferPlaces
from autotune.codegen.llvm.streams import StreamingStores
from autotune.codegen.llvm.types import Value, type_of
from autotune.errors import BuildError
from autotune.lower.ir import Buffer, Load, Store
from autotune.lower.linear import Lin


class Accesses:
    """Emits loads of expressions, stores, and what instructions load and store."""

    def __init__(
        self,
        expressions: Expressions,
        addresses: Addresses,
        places: BufferPlaces,
        memory: MemoryAccesses,
        blocks: Blocks,
        streams: StreamingStores,
    ) -> None:
        self.code = memory.code
        self.expressions = expressions
        self.addresses = addresses
        self.places = places
        self.memory = memory
        self.blocks = blocks
        self.streams = streams

    def load(self, node: Load) -> Value:
        """Return an element, or one for each lane."""
        code, buffer = self.code, node.buffer
        form = self.addresses.form(node, buffer, node.indices)
        address = self.addresses.address(form)
        slots = self.places.slots.get(buffer)
        if slots is None:
            if code.mask is None and address.lanes is None and address.stride in (0, 1):
                return self.memory.plain_load(buffer, address, code.lanes if address.stride else 1)
            return self.blocks.load(buffer, form, address) or self.memory.load(buffer, address)
        name, width = slots[address.constant]
        lanes = code.lanes if address.stride or buffer in self.places.private else 1
        if width != lanes or address.scalars or address.lanes is not None:
            raise BuildError(f"local buffer {buffer.name}: slot of {width} lanes read as {lanes}")
        return code.read_slot(name, buffer.dtype, width)

    def store(self, node: Store) -> None:
        """Store the value of an expression."""
        if self.places.block.store(node, self):
            return
        with self.code.memo:
            form = self.addresses.form(node, node.buffer, node.indices)
            address = self.addresses.address(form)
            shared = address.lanes is None and address.stride == 0 and node.buffer not in self.places.private
            if self.code.lanes > 1 and shared:
                self._store_shared(node)
                return
            value = self.expressions.value(node.value)
            if value.dtype != node.buffer.dtype:
                value = self.expressions.arithmetic.cast(value, node.buffer.dtype)
            stream = node.buffer not in self.places.slots and self.streams.past_caches(node.buffer, form)
            self._put(node.buffer, address, value, stream)

    def _put(self, buffer: Buffer, address: Address, value: Value, stream: bool = False) -> None:
        slots = self.places.slots.get(buffer)
        if slots is None:
            self.memory.store(buffer, address, value, stream)
            return
        name, width = slots[address.constant]
        value = self.code.splat(value, width)
        if self.code.mask is not None:
            value = self.code.select(self.code.mask, value, self.code.read_slot(name, value.dtype, width))
        self.code.write_slot(name, value)

    def _store_shared(self, node: Store) -> None:
        """Store by all lanes to one element: a reduction across lanes, or a value that is the same in each."""
        code = self.code
        folded = fold_lanes(self.expressions, node)
        lanes, idle, mask = code.lanes, code.idle, code.mask
        value = folded if folded is not None else self.expressions.value(node.value)
        if value.lanes != 1:
            raise BuildError(
                f"lanes of a vectorized loop store different values to one element of {node.buffer.name}"
            )
        if mask is not None and folded is None:
            raise BuildError(f"a guarded vectorized loop stores one element of {node.buffer.name}")
        code.lanes, code.idle, code.mask = 1, 0, None
        with code.memo:
            form = self.addresses.form(node, node.buffer, node.indices)
            self._put(node.buffer, self.addresses.address(form), value)
        code.lanes, code.idle, code.mask = lanes, idle, mask

    def load_lanes(self, buffer: Buffer, form: Lin, lanes: int) -> Value:
        """Return ``lanes`` neighbouring elements of a buffer from offset ``form`` on."""
        slot = self._register(buffer, form, lanes)
        if slot is None:
            return self.memory.plain_load(buffer, self.addresses.address(form), lanes)
        return self.code.read_slot(slot, buffer.dtype, lanes)

    def store_lanes(self, buffer: Buffer, form: Lin, value: Value) -> None:
        """Store neighbouring elements of a buffer from offset ``form`` on."""
        slot = self._register(buffer, form, value.lanes)
        if slot is not None:
            self.code.write_slot(slot, value)
            return
        address = self.addresses.address(form)
        pointer = self.memory.pointer(buffer, address)
        align = self.memory.alignment(buffer, address, value.lanes)
        self.code.lines.append(f"  store {type_of(value)} {value.text}, ptr {pointer}, align {align}")
        self.code.held.clear()

    def _register(self, buffer: Buffer, form: Lin, lanes: int) -> str | None:
        """Return the slot that instructions access; None for a buffer in memory."""
        slots = self.places.slots.get(buffer)
        if slots is None:
            return None
        name, width = slots.get(self.addresses.address(form).constant, ("", 0))
        if width != lanes:
            raise BuildError(
                f"an intrinsic accesses {lanes} lanes of {buffer.name}, which is kept in registers of "
                f"{width or 'other'} lanes: give the loops of the pattern kinds that make {lanes} lanes"
            )
        return name


__all__ = ["Accesses"]
