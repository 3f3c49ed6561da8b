"""Control flow: loops in their kinds, and branches that jump, switch lanes off or are decided already."""

from __future__ import annotations

from autotune.codegen.llvm.locals import Chunk
from autotune.codegen.llvm.memory import Ramp
from autotune.codegen.llvm.module import ModuleText
from autotune.codegen.llvm.stores import StoreEmitter
from autotune.codegen.llvm.types import Value, type_of
from autotune.errors import BuildError
from autotune.lower.ir import NONTEMPORAL, For, If, LoopKernel, Stmt, Store, is_thread_axis, walk
from autotune.te.expr import Var

_STEP_BORDER = '  fence syncscope("singlethread") acq_rel'
"""Between the unrolled steps of a reduction; it is no instruction. LLVM's instruction selection would gather the loads
of all steps at the front, because their addresses are near each other, and spill what it then cannot hold."""


class FlowEmitter(StoreEmitter):
    """Emits loops and branches; ``_threads`` are the thread axes whose loops are open."""

    def __init__(self, module: ModuleText, kernel: LoopKernel) -> None:
        super().__init__(module, kernel)
        self._threads: list[str] = []
        self._stores: dict[int, list[Store]] = {}

    def stmt(self, node: Stmt) -> None:
        """Emit a statement; the subclass knows all kinds."""
        raise NotImplementedError

    def _for(self, node: For) -> None:
        if NONTEMPORAL in node.note:
            with self.streams_of(node):
                self._loop(node)
        else:
            self._loop(node)

    def _loop(self, node: For) -> None:
        if node.kind == "vectorized":
            for chunk in self.cover(node.extent):
                self._chunk(node, chunk)
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

    def _chunk(self, node: For, chunk: Chunk) -> None:
        self.env[node.var] = chunk.start if chunk.width == 1 else Ramp(chunk.start, chunk.width)
        self.lanes = chunk.width
        self.idle = chunk.width - chunk.active
        self._in_lanes = True
        self.stmt(node.body)
        self._in_lanes = False
        self.lanes, self.idle = 1, 0

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


__all__ = ["FlowEmitter"]
