"""Copies that run behind arithmetic: ``cp.async`` from global to shared memory, for buffers that are filled ahead.

Copies of 4, 8 or 16 bytes at multiples of their length do not pass through registers (PTX ISA, "cp.async"). Those that
a thread starts between two barriers are a group; a barrier that says how many may be in flight waits for the others.
Other stores to such a buffer, as of values that are computed or of elements under a mask, are plain ones.
"""

from __future__ import annotations

from autotune.codegen.llvm.accesses import Accesses
from autotune.codegen.llvm.addresses import Address
from autotune.codegen.llvm.writer import Writer
from autotune.lower.ir import Buffer, Load, Store
from autotune.target import ITEM_BYTES

_WORDS = (4, 8, 16)
"""Bytes that one instruction copies."""


class Copies:
    """Emits copies to the buffers in ``ahead``, and what waits for them."""

    def __init__(self, code: Writer) -> None:
        self.code = code
        self.ahead: set[Buffer] = set()
        self._started = False

    def started(self, node: Store, accesses: Accesses) -> bool:
        """Return whether a store is a copy that this started."""
        load, code = node.value, self.code
        if node.buffer not in self.ahead or not isinstance(load, Load):
            return False
        size = code.lanes * ITEM_BYTES[node.buffer.dtype]
        whole = code.mask is None and not code.idle and size in _WORDS and load.dtype == node.buffer.dtype
        if not whole or load.buffer not in accesses.memory.constant:
            return False
        pointers = [_pointer(access, accesses, size) for access in (node, load)]
        if None in pointers:
            return False
        self._copy(size, *(str(pointer) for pointer in pointers))
        return True

    def wait(self, in_flight: int) -> None:
        """End the group of the copies since the last call, and wait for those before the last ``in_flight`` groups."""
        if not self._started:
            return
        commit = self.code.call("void", "@llvm.nvvm.cp.async.commit.group")
        wait = self.code.call("void", "@llvm.nvvm.cp.async.wait.group", ("i32", str(in_flight)))
        self.code.lines += [f"  {commit}", f"  {wait}"]

    def _copy(self, size: int, target: str, source: str) -> None:
        shared = self.code.op(f"addrspacecast ptr {target} to ptr addrspace(3)")
        memory = self.code.op(f"addrspacecast ptr {source} to ptr addrspace(1)")
        # Of 16 bytes the first cache need not have a copy of its own.
        name = f"@llvm.nvvm.cp.async.{'cg' if size == max(_WORDS) else 'ca'}.shared.global.{size}"
        call = self.code.call("void", name, ("ptr addrspace(3)", shared), ("ptr addrspace(1)", memory))
        self.code.lines.append(f"  {call}")
        self.code.held.clear()
        self._started = True


def _pointer(access: Store | Load, accesses: Accesses, size: int) -> str | None:
    """Return the address of an access of ``size`` bytes; None where these are no neighbours, or may lie
    across two words."""
    code, memory = accesses.code, accesses.memory
    with code.memo:
        form = accesses.addresses.form(access, access.buffer, access.indices)
        address: Address = accesses.addresses.address(form)
        neighbours = address.lanes is None and (address.stride == 1 or code.lanes == 1)
        if not neighbours or memory.alignment(access.buffer, address, code.lanes) % size:
            return None
        return memory.pointer(access.buffer, address)


__all__ = ["Copies"]
