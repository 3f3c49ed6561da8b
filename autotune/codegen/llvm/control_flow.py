"""Control flow: loops in their kinds, and branches that jump, switch lanes off or are decided already."""

from __future__ import annotations

from collections.abc import Callable

from autotune.codegen.llvm.accesses import Accesses
from autotune.codegen.llvm.addresses import Ramp
from autotune.codegen.llvm.expressions import Expressions
from autotune.codegen.llvm.locals import Chunk
from autotune.codegen.llvm.types import Value
from autotune.errors import BuildError
from autotune.lower.ir import NONTEMPORAL, For, If, Stmt, Store, While, is_thread_axis, walk
from autotune.te.expr import Var

_STEP_BORDER = '  fence syncscope("singlethread") acq_rel'
"""Between the unrolled steps of a reduction; it is no instruction. LLVM's instruction selection would gather the loads
of all steps at the front, because their addresses are near each other, and spill what it then cannot hold."""


class ControlFlow:
    """Emits loops and branches; ``emit`` emits the statements in them."""

    def __init__(self, expressions: Expressions, accesses: Accesses, emit: Callable[[Stmt], None]) -> None:
        self.code = expressions.code
        self.expressions = expressions
        self.env = expressions.env
        self.addresses = accesses.addresses
        self.places = accesses.places
        self.blocks = accesses.blocks
        self.streams = accesses.streams
        self.emit = emit
        self._stores: dict[int, list[Store]] = {}

    def loop(self, node: For) -> None:
        """Emit a loop of any kind but that of the kernel's tiles."""
        if NONTEMPORAL in node.note:
            with self.streams.of_loop(node):
                self._loop(node)
        else:
            self._loop(node)

    def _loop(self, node: For) -> None:
        if node.kind == "vectorized":
            for chunk in self.places.cover(node.extent):
                self._chunk(node, chunk)
        elif node.kind == "unrolled":
            with self.blocks.unrolling(node):
                apart = self._accumulates(node)
                for number in range(node.extent):
                    self.env[node.var] = number
                    if apart and number and not self.code.module.target.is_nvidia:
                        self.code.lines.append(_STEP_BORDER)
                        self.code.held.clear()
                    self.emit(node.body)
        elif node.kind == "serial" or is_thread_axis(node.kind):
            self._serial(node.var, "0", str(node.extent), node.body)
        else:
            raise BuildError(f"loop {node.var.name} is {node.kind} inside of a kernel")

    def _accumulates(self, node: For) -> bool:
        """Return whether the steps of a loop add to the same registers: it is a reduction loop."""
        stores = self._stores.get(id(node))
        if stores is None:
            stores = self._stores[id(node)] = [s for s in walk(node.body) if isinstance(s, Store)]
        return len(stores) > 0 and all(
            s.buffer in self.places.slots
            and node.var not in self.addresses.form(s, s.buffer, s.indices).terms
            for s in stores
        )

    def _chunk(self, node: For, chunk: Chunk) -> None:
        code = self.code
        self.env[node.var] = chunk.start if chunk.width == 1 else Ramp(chunk.start, chunk.width)
        code.lanes = chunk.width
        code.idle = chunk.width - chunk.active
        self.places.in_lanes = True
        self.emit(node.body)
        self.places.in_lanes = False
        code.lanes, code.idle = 1, 0

    def _serial(self, var: Var, begin: str, end: str, body: Stmt) -> None:
        """Emit a loop that runs at least once: the test is at its end."""
        code = self.code
        stem = code.fresh("loop")
        before = code.block
        point = code.hoisting_point()
        code.end_block(f"br label %{stem}")
        code.label(stem)
        index, following = f"%{stem}.i", f"%{stem}.next"
        at = len(code.lines)
        self.env[var] = Value(index, "int64")
        code.available(index, code.depth + 1)
        with code.scope(point), self.addresses.terms:
            self.emit(body)
        code.lines.insert(at, f"  {index} = phi i64 [ {begin}, %{before} ], [ {following}, %{code.block} ]")
        code.lines.append(f"  {following} = add nuw nsw i64 {index}, 1")
        code.lines.append(f"  %{stem}.more = icmp ult i64 {following}, {end}")
        code.end_block(f"br i1 %{stem}.more, label %{stem}, label %{stem}.end{code.module.loop()}")
        code.label(f"{stem}.end")

    def repeat_while(self, node: While) -> None:
        """Emit a loop with its test at the start; what the test reads may change in the body."""
        code = self.code
        if code.lanes > 1:
            raise BuildError("a loop that runs while a condition holds has one condition for all lanes")
        stem = code.fresh("while")
        point = code.hoisting_point()
        code.end_block(f"br label %{stem}")
        code.label(stem)
        with code.scope(point), self.addresses.terms:
            with code.memo:
                cond = self.expressions.value(node.cond)
            code.end_block(f"br i1 {cond.text}, label %{stem}.body, label %{stem}.end")
            code.label(f"{stem}.body")
            self.emit(node.body)
            code.end_block(f"br label %{stem}")
        code.label(f"{stem}.end")

    def tiles(self, node: For) -> None:
        """Emit the loop over the tiles that the kernel is called for."""
        code = self.code
        code.lines.append("  %some = icmp slt i64 %begin, %end")
        code.end_block("br i1 %some, label %tiles, label %done")
        code.label("tiles")
        with self.streams.of_loop(node):
            self._serial(node.var, "%begin", "%end", node.body)
        code.end_block("br label %done")
        code.label("done")

    def branch(self, node: If) -> None:
        """Emit a condition: lanes that are switched off, a jump, or one side where it is known."""
        with self.code.memo:
            cond = self.expressions.value(node.cond)
        if cond.number is not None:
            branch = node.then if cond.number else node.otherwise
            if branch is not None:
                with self.code.decided():
                    self.emit(branch)
        elif cond.lanes == 1:
            self._jump(cond, node)
        else:
            arithmetic = self.expressions.arithmetic
            with arithmetic.masked(cond):
                self.emit(node.then)
            if node.otherwise is not None:
                with arithmetic.masked(arithmetic.inverted(cond)):
                    self.emit(node.otherwise)

    def _jump(self, cond: Value, node: If) -> None:
        code = self.code
        stem = code.fresh("if")
        point = code.hoisting_point()
        other = f"{stem}.else" if node.otherwise is not None else f"{stem}.end"
        code.end_block(f"br i1 {cond.text}, label %{stem}.then, label %{other}")
        code.label(f"{stem}.then")
        with code.scope(point):
            self.emit(node.then)
        code.end_block(f"br label %{stem}.end")
        if node.otherwise is not None:
            code.label(other)
            with code.scope(point):
                self.emit(node.otherwise)
            code.end_block(f"br label %{stem}.end")
        code.label(f"{stem}.end")


__all__ = ["ControlFlow"]
