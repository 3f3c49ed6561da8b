"""Loop kernels to LLVM functions: loops, branches, stores, local buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autotune.codegen.instructions import InstructionEmitter
from autotune.codegen.lanes import settle_lanes
from autotune.codegen.locals import chunks, slots_of
from autotune.codegen.memory import Ramp
from autotune.codegen.module import ModuleText
from autotune.codegen.streams import alignment_test
from autotune.codegen.types import Value, memory_type, scalar_type, suffix, type_of, vector
from autotune.errors import BuildError
from autotune.lower.ir import (
    NONTEMPORAL,
    Allocate,
    Barrier,
    Buffer,
    For,
    If,
    Intrinsic,
    Let,
    Load,
    LoopKernel,
    Prefetch,
    Seq,
    Stmt,
    Store,
    is_thread_axis,
    walk,
)
from autotune.lower.linear import Lin
from autotune.target import ITEM_BYTES
from autotune.te.expr import Binary, Expr, Var, is_float
from autotune.te.operations import MAX, MIN, PROD, SUM

STACK_BYTES = 16 << 10
"""Local memory of a kernel up to this goes on the stack, larger buffers into the worker's scratch memory."""

_STEP_BORDER = '  fence syncscope("singlethread") acq_rel'
"""Between the unrolled steps of a reduction; it is no instruction. LLVM's instruction selection would gather the loads
of all steps at the front, because their addresses are near each other, and spill what it then cannot hold."""

_HORIZONTAL = {"+": "add", "*": "mul", "max": "max", "min": "min"}
_REDUCERS = {"+": SUM, "*": PROD, "max": MAX, "min": MIN}


class KernelEmitter(InstructionEmitter):
    """Emits one kernel: ``symbol`` with the runtime's calling convention."""

    def __init__(self, module: ModuleText, kernel: LoopKernel, symbol: str) -> None:
        super().__init__(module)
        self.kernel = kernel
        self.symbol = symbol
        self.constant_buffers = frozenset(kernel.reads)
        self.buffers = tuple(dict.fromkeys(kernel.reads + kernel.writes))
        self.scratch_bytes = 0
        self._pointers: dict[Buffer, str] = {b: f"%b{n}" for n, b in enumerate(self.buffers)}
        self._slots: dict[Buffer, dict[int, tuple[str, int]]] = {}
        self._stack_bytes = 0
        self._scratch_top = 0
        self._in_lanes = False
        self._private: set[Buffer] = set()
        self._threads: list[str] = []
        self._width = self._vector_width()
        self._stores: dict[int, list[Store]] = {}

    def _vector_width(self) -> int:
        """Lanes of all vectorized loops of the kernel: those of the widest type that it stores."""
        sizes = {s.buffer.dtype for s in walk(self.kernel.body) if isinstance(s, Store)}
        return min((self.module.target.lanes(d) for d in sizes), default=1)

    def emit(self) -> None:
        """Emit the kernel into the module; one that streams also as it is for arrays that are not aligned."""
        self._emit_body("body")
        if self.streamed:
            plain = KernelEmitter(self.module, self.kernel, self.symbol)
            plain.may_stream = False
            plain._emit_body("plain")
            self.scratch_bytes = max(self.scratch_bytes, plain.scratch_bytes)
        self._emit_entry()

    def _emit_body(self, name: str) -> None:
        body = settle_lanes(self.kernel.body, self.form)
        if isinstance(body, For) and body.kind == "parallel":
            with self.streams_of(body):
                self._parallel(body)
        else:
            self.stmt(body)
        self.end_of_streams()
        arguments = "".join(
            f"ptr noalias {'readonly ' if b in self.kernel.reads else ''}{self._pointers[b]}, "
            for b in self.buffers
        )
        self.module.define(
            f'define internal void @"{self.symbol}.{name}"'
            f"({arguments}i64 %begin, i64 %end, ptr noalias %scratch) #0 {{\n"
            "entry:\n" + "\n".join(self.entry + self.flat_lines()) + "\n  ret void\n}"
        )

    def _emit_entry(self) -> None:
        """The function that the runtime calls: pointers from the table, then one of the bodies."""
        lines = []
        for n, _ in enumerate(self.buffers):
            lines.append(f"  %p{n} = getelementptr i64, ptr %table, i64 {n}")
            lines.append(f"  %b{n} = load ptr, ptr %p{n}, align 8")
        arguments = "".join(f"ptr %b{n}, " for n in range(len(self.buffers)))
        arguments = f"({arguments}i64 %begin, i64 %end, ptr %scratch)"
        if self.streamed:
            lines += alignment_test([n for n, b in enumerate(self.buffers) if b in self.streamed])
            lines += [f'  call void @"{self.symbol}.plain"{arguments}', "  ret void", "streams:"]
        lines.append(f'  call void @"{self.symbol}.body"{arguments}')
        self.module.define(
            f"define void @{self.symbol}(ptr %table, i64 %begin, i64 %end, ptr %scratch) #0 {{\n"
            + "\n".join(lines)
            + "\n  ret void\n}"
        )

    # -- statements ------------------------------------------------------------------------------------------

    def stmt(self, node: Stmt) -> None:
        """Emit a statement."""
        emit = _EMIT.get(type(node))
        if emit is None:
            raise BuildError(f"no code for statement {type(node).__name__}")
        emit(self, node)

    def _seq(self, node: Seq) -> None:
        for part in node.stmts:
            self.stmt(part)

    def _let(self, node: Let) -> None:
        with self.statement(), self._terms:
            value = self.env[node.var] = self.expr(node.value)
            self.available(value.text, self.depth)
            self.divisible(node.var, node.value)
            self.stmt(node.body)

    def _intrinsic(self, node: Intrinsic) -> None:
        if node.instructions:
            self.replacement(node)
        else:
            self.stmt(node.body)

    def _barrier(self, _: Barrier) -> None:
        if self._threads:
            raise BuildError(
                f"threads of {', '.join(self._threads)} exchange data through shared memory: a CPU runs bound "
                f"loops one after another; build for a GPU, or attach the shared stage outside of those loops"
            )

    def _for(self, node: For) -> None:
        if NONTEMPORAL in node.note:
            with self.streams_of(node):
                self._loop(node)
        else:
            self._loop(node)

    def _loop(self, node: For) -> None:
        if node.kind == "vectorized":
            for start, width in chunks(node.extent, self._width):
                self._chunk(node, start, width)
        elif node.kind == "unrolled":
            with self.unrolling(node):
                apart = self._accumulates(node)
                for number in range(node.extent):
                    self.env[node.var] = number
                    if apart and number:
                        self.lines.append(_STEP_BORDER)
                        self.held.clear()
                    self.stmt(node.body)
        elif node.kind == "serial":
            self._serial(node.var, "0", str(node.extent), node.body)
        elif is_thread_axis(node.kind):
            if not node.kind.startswith("blockIdx"):
                self._threads.append(node.kind)
            self._serial(node.var, "0", str(node.extent), node.body)
            if not node.kind.startswith("blockIdx"):
                self._threads.pop()
        else:
            raise BuildError(f"loop {node.var.name} is {node.kind} inside of a kernel")

    def _accumulates(self, node: For) -> bool:
        """Whether the steps of a loop add to the same registers: it is a reduction loop."""
        stores = self._stores.get(id(node))
        if stores is None:
            stores = self._stores[id(node)] = [s for s in walk(node.body) if isinstance(s, Store)]
        return len(stores) > 0 and all(
            s.buffer in self._slots and node.var not in self.form(s, s.buffer, s.indices).terms
            for s in stores
        )

    def _prefetch(self, node: Prefetch) -> None:
        """Fetch for reading, to be kept in all levels of the cache."""
        if self.lanes > 1 or node.buffer not in self._pointers:  # what nothing reads needs no fetching
            return
        with self.statement():
            pointer = self.pointer(node.buffer, self.address(self.form(node, node.buffer, node.indices)))
        self.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.lines.append(f"  call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 3, i32 1)")

    def _chunk(self, node: For, start: int, width: int) -> None:
        self.env[node.var] = start if width == 1 else Ramp(start, width)
        self.lanes = width
        self._in_lanes = True
        self.stmt(node.body)
        self._in_lanes = False
        self.lanes = 1

    def _serial(self, var: Var, begin: str, end: str, body: Stmt) -> None:
        """A loop that runs at least once: the test is at its end."""
        stem = self.fresh("loop")
        before = self.block
        point = self.hoisting_point()
        self.end_block(f"br label %{stem}")
        self.label(stem)
        index, following = f"%{stem}.i", f"%{stem}.next"
        at = len(self.lines)
        self.env[var] = Value(index, "int64")
        self.available(index, self.depth + 1)
        with self.scope(point), self._terms:
            self.stmt(body)
        self.lines.insert(at, f"  {index} = phi i64 [ {begin}, %{before} ], [ {following}, %{self.block} ]")
        self.lines.append(f"  {following} = add nuw nsw i64 {index}, 1")
        self.lines.append(f"  %{stem}.more = icmp ult i64 {following}, {end}")
        self.end_block(f"br i1 %{stem}.more, label %{stem}, label %{stem}.end")
        self.label(f"{stem}.end")

    def _parallel(self, node: For) -> None:
        self.lines.append("  %some = icmp slt i64 %begin, %end")
        self.end_block("br i1 %some, label %tiles, label %done")
        self.label("tiles")
        self._serial(node.var, "%begin", "%end", node.body)
        self.end_block("br label %done")
        self.label("done")

    def _if(self, node: If) -> None:
        with self.statement():
            cond = self.expr(node.cond)
        if cond.number is not None:
            branch = node.then if cond.number else node.otherwise
            if branch is not None:
                with self.decided():
                    self.stmt(branch)
        elif cond.lanes == 1:
            self._branch(cond, node)
        else:
            with self.masked(cond):
                self.stmt(node.then)
            if node.otherwise is not None:
                one = self.splat(Value("true", "bool"), cond.lanes).text
                inverse = self.op(f"xor {type_of(cond)} {cond.text}, {one}")
                with self.masked(Value(inverse, "bool", cond.lanes)):
                    self.stmt(node.otherwise)

    def _branch(self, cond: Value, node: If) -> None:
        stem = self.fresh("if")
        point = self.hoisting_point()
        other = f"{stem}.else" if node.otherwise is not None else f"{stem}.end"
        self.end_block(f"br i1 {cond.text}, label %{stem}.then, label %{other}")
        self.label(f"{stem}.then")
        with self.scope(point):
            self.stmt(node.then)
        self.end_block(f"br label %{stem}.end")
        if node.otherwise is not None:
            self.label(other)
            with self.scope(point):
                self.stmt(node.otherwise)
            self.end_block(f"br label %{stem}.end")
        self.label(f"{stem}.end")

    # -- local buffers ---------------------------------------------------------------------------------------

    def _allocate(self, node: Allocate) -> None:
        width = 1 if self._in_lanes else self._width
        slots = slots_of(node.buffer, node.body, width, self._known, self.form)
        if slots is not None:
            self._slots[node.buffer] = {}
            if self._in_lanes:
                self._private.add(node.buffer)
            for offset, width in slots.items():
                width = self.lanes if self._in_lanes else width
                kind = vector(scalar_type(node.buffer.dtype), width)
                name = "%" + self.fresh("slot")
                self.entry.append(f"  {name} = alloca {kind}")
                self._slots[node.buffer][offset] = (name, width)
            self.stmt(node.body)
            # Copies of a loop share the buffer's name, but not where it lives.
            for slot, _ in self._slots.pop(node.buffer).values():
                self.drop_slot(slot)
            self._private.discard(node.buffer)
            return
        top = self._scratch_top
        self._pointers[node.buffer] = self._local_memory(node.buffer)
        self.stmt(node.body)
        self._scratch_top = top

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
        return name

    def base_pointer(self, buffer: Buffer) -> str:
        return self._pointers[buffer]

    # -- loads and stores ------------------------------------------------------------------------------------

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

    def _store_uniform(self, node: Store) -> None:
        """All lanes store to one element: a reduction across lanes, or a value that is the same in each."""
        folded = self._fold_lanes(node)
        lanes, mask = self.lanes, self.mask
        value = folded if folded is not None else self.expr(node.value)
        if value.lanes != 1:
            raise BuildError(
                f"lanes of a vectorized loop store different values to one element of {node.buffer.name}"
            )
        if mask is not None and folded is None:
            raise BuildError(f"a guarded vectorized loop stores one element of {node.buffer.name}")
        self.lanes, self.mask = 1, None
        with self.statement():
            address = self.address(self.form(node, node.buffer, node.indices))
            slots = self._slots.get(node.buffer)
            if slots is None:
                self.store_to(node.buffer, address, value)
            else:
                self.write_slot(slots[address.constant][0], value)
        self.lanes, self.mask = lanes, mask

    def _fold_lanes(self, node: Store) -> Value | None:
        """``acc = acc op x`` with x in lanes: fold x across lanes; None for another form."""
        value = node.value
        if not isinstance(value, Binary) or value.op not in _HORIZONTAL:
            return None
        if not isinstance(value.a, Load) or value.a.buffer is not node.buffer:
            return None
        old, new = self.expr(value.a), self.expr(value.b)
        if old.lanes != 1:
            return None
        if new.lanes == 1:
            new = self.splat(new, self.lanes)
        if self.mask is not None:
            neutral = self.splat(self._neutral(value.op, new.dtype), new.lanes)
            text = (
                f"select {type_of(self.mask)} {self.mask.text}, "
                f"{type_of(new)} {new.text}, {type_of(new)} {neutral.text}"
            )
            new = Value(self.op(text), new.dtype, new.lanes)
        total = self._across(value.op, new)
        if is_float(old.dtype):
            return self.float_op(value.op, old, total)
        return self.int_op(value.op, old, total)

    def _neutral(self, op: str, dtype: str) -> Value:
        (value,) = _REDUCERS[op].identity((dtype,))
        return self.expr(value)

    def _extreme_lane(self, op: str, value: Value) -> Value:
        """The largest or smallest lane, or a NaN, by halves; LLVM's reduction also orders zeros of both signs."""
        while value.lanes > 2:
            half, kind = value.lanes // 2, type_of(value)
            parts = []
            for start in (0, half):
                order = ", ".join(f"i32 {start + n}" for n in range(half))
                text = f"shufflevector {kind} {value.text}, {kind} poison, <{half} x i32> <{order}>"
                parts.append(Value(self.op(text), value.dtype, half))
            value = self.float_op(op, *parts)
        lanes = [f"extractelement {type_of(value)} {value.text}, i64 {n}" for n in range(value.lanes)]
        return self.float_op(op, *[Value(self.op(text), value.dtype) for text in lanes])

    def _across(self, op: str, value: Value) -> Value:
        kind, scalar = type_of(value), scalar_type(value.dtype)
        name = _HORIZONTAL[op]
        if is_float(value.dtype) and name in ("max", "min"):
            return self._extreme_lane(op, value)
        if is_float(value.dtype):
            name = "f" + name
        elif name in ("max", "min"):
            name = ("u" if value.dtype in ("uint8", "bool") else "s") + name
        symbol = f"@llvm.vector.reduce.{name}.{suffix(value.dtype, value.lanes)}"
        if name in ("fadd", "fmul"):
            start = "-0.0" if name == "fadd" else "1.0"
            self.module.declare(f"declare {scalar} {symbol}({scalar}, {kind})")
            text = f"call reassoc {scalar} {symbol}({scalar} {start}, {kind} {value.text})"
        else:
            self.module.declare(f"declare {scalar} {symbol}({kind})")
            text = f"call {scalar} {symbol}({kind} {value.text})"
        return Value(self.op(text), value.dtype)


_EMIT: dict[type[Stmt], Callable[[KernelEmitter, Any], None]] = {
    Seq: KernelEmitter._seq,
    For: KernelEmitter._for,
    Store: KernelEmitter._store,
    Allocate: KernelEmitter._allocate,
    Let: KernelEmitter._let,
    If: KernelEmitter._if,
    Intrinsic: KernelEmitter._intrinsic,
    Prefetch: KernelEmitter._prefetch,
    Barrier: KernelEmitter._barrier,
}
"""How each kind of statement is emitted."""

__all__ = ["KernelEmitter"]
