"""Stores: vectors to memory or slots, under a mask where lanes are off, and lanes that share one element."""

from __future__ import annotations

from autotune.codegen.llvm.folds import FoldEmitter
from autotune.codegen.llvm.types import Value, type_of
from autotune.errors import BuildError
from autotune.lower.ir import Store


class StoreEmitter(FoldEmitter):
    """Emits stores to wherever their buffers are."""

    def _store(self, node: Store) -> None:
        with self.statement():
            self._stored(node)

    def _stored(self, node: Store) -> None:
        form = self.form(node, node.buffer, node.indices)
        address = self.address(form)
        private = node.buffer in self._private
        if self.lanes > 1 and address.lanes is None and address.stride == 0 and not private:
            self._store_uniform(node)
            return
        value = self.expr(node.value)
        if value.dtype != node.buffer.dtype:
            value = self.cast(value, node.buffer.dtype)
        slots = self._slots.get(node.buffer)
        if slots is None:
            self.store_to(node.buffer, address, value, self.streams(node.buffer, form))
            return
        name, width = slots[address.constant]
        value = self.splat(value, width)
        if self.mask is not None:
            old = self.read_slot(name, value.dtype, width)
            mask, kind = f"{type_of(self.mask)} {self.mask.text}", type_of(value)
            value = Value(
                self.op(f"select {mask}, {kind} {value.text}, {kind} {old.text}"), value.dtype, width
            )
        self.write_slot(name, value)

    def _store_uniform(self, node: Store) -> None:
        """All lanes store to one element: a reduction across lanes, or a value that is the same in each."""
        folded = self.fold_lanes(node)
        lanes, idle, mask = self.lanes, self.idle, self.mask
        value = folded if folded is not None else self.expr(node.value)
        if value.lanes != 1:
            raise BuildError(
                f"lanes of a vectorized loop store different values to one element of {node.buffer.name}"
            )
        if mask is not None and folded is None:
            raise BuildError(f"a guarded vectorized loop stores one element of {node.buffer.name}")
        self.lanes, self.idle, self.mask = 1, 0, None
        with self.statement():
            address = self.address(self.form(node, node.buffer, node.indices))
            slots = self._slots.get(node.buffer)
            if slots is None:
                self.store_to(node.buffer, address, value)
            else:
                self.write_slot(slots[address.constant][0], value)
        self.lanes, self.idle, self.mask = lanes, idle, mask


__all__ = ["StoreEmitter"]
