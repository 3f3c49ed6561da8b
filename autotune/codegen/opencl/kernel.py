"""Loop kernels to OpenCL C: what a group does, and the function that the device runs.

A kernel without thread axes has a work item a tile. One with them has a group a block (:mod:`threads`): what is in no
loop over threads is done by the first work item of a group, with a barrier after.
"""

from __future__ import annotations

from autotune.codegen.opencl.expressions import has_load
from autotune.codegen.opencl.launch import Launch, Sizes
from autotune.codegen.opencl.statements import Statements
from autotune.codegen.opencl.threads import (
    dimension,
    group_sizes,
    has_axes,
    has_threads,
    is_group_axis,
    is_item_axis,
    nest_of,
)
from autotune.codegen.opencl.types import Value, memory_type
from autotune.codegen.opencl.writer import Writer
from autotune.errors import BuildError
from autotune.lower.ir import (
    Allocate,
    Barrier,
    For,
    If,
    Intrinsic,
    Let,
    LoopKernel,
    Prefetch,
    Seq,
    Stmt,
)
from autotune.target import Target

ITEMS = 64
"""Work items of a group of a kernel that has one a tile."""
PRIVATE_BYTES = 1 << 10
"""With more memory than that of its own, a work item is a group."""

_MEET = "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);"


def emit_kernel(kernel: LoopKernel, symbol: str, target: Target, functions: set[str]) -> tuple[str, Launch]:
    """The text of a kernel, and how it is started; functions of ours that it calls are added to ``functions``."""
    axes = has_axes(kernel.body)
    body = _Kernel(kernel, target, functions, group_sizes(kernel.body) if axes else (1, 1, 1))
    launch = body.groups() if axes else body.tiles()
    if target.group_items and launch.items[0] * launch.items[1] * launch.items[2] > target.group_items:
        raise BuildError(
            f"kernel {kernel.name} has groups of {' x '.join(map(str, launch.items))} work items; the device takes "
            f"{target.group_items} at most: split the loops that are bound to threads"
        )
    if target.shared_bytes and launch.local_bytes > target.shared_bytes:
        raise BuildError(
            f"kernel {kernel.name} shares {launch.local_bytes} bytes among the threads of a block; the device has "
            f"{target.shared_bytes}: compute smaller parts of the shared stages"
        )
    return body.text(symbol, launch.items), launch


class _Kernel:
    def __init__(self, kernel: LoopKernel, target: Target, functions: set[str], sizes: Sizes) -> None:
        self.kernel = kernel
        self.target = target
        self.sizes = sizes
        self.code = Writer(functions)
        self.inner = Statements(self.code, target.lanes("float32"), sizes)
        for number, buffer in enumerate(kernel.buffers):
            self.inner.pointers[buffer] = f"b{number}"

    # -- a work item a tile ----------------------------------------------------------------------------------

    def tiles(self) -> Launch:
        """Write a kernel without thread axes."""
        body = self.kernel.body
        if isinstance(body, For) and body.kind == "parallel":
            self.code.line("const long tile = begin + (long)get_global_id(0);")
            self.code.line("if (tile >= end) return;")
            self.inner.counted(body.var, body.extent, "tile")
            self.inner.statement(body.body)
        else:
            self.code.line("if (begin >= end || get_global_id(0) > 0) return;")
            self.inner.statement(body)
        most = min(ITEMS, self.target.group_items or ITEMS, self.kernel.tiles)
        # A core runs the items of a group one after another, and its compiler loops over them.
        alone = "cpu" in self.target.features or self.inner.private_bytes > PRIVATE_BYTES
        items = 1 if alone else most
        return Launch((items, 1, 1), None, 0, len(self.kernel.buffers))

    # -- groups ----------------------------------------------------------------------------------------------

    def groups(self) -> Launch:
        """Write a kernel with thread axes."""
        counts = [1, 1, 1]
        node = self.kernel.body
        if isinstance(node, For) and node.kind == "parallel":
            self._group(node, last=True)
        else:
            self.code.line("if (begin >= end) return;")
            self._blocks(node, counts)
        sizes = counts[0], counts[1], counts[2]
        return Launch(self.sizes, sizes, self.inner.local_bytes, len(self.kernel.buffers))

    def _blocks(self, node: Stmt, counts: list[int]) -> None:
        """The outermost loops over blocks, whose iterations are groups."""
        if isinstance(node, Seq) and len(node.stmts) == 1:
            self._blocks(node.stmts[0], counts)
        elif isinstance(node, For) and is_group_axis(node.kind):
            number = dimension(node.kind)
            counts[number] = node.extent
            self.inner.counted(node.var, node.extent, f"get_group_id({number})")
            self._blocks(node.body, counts)
        elif isinstance(node, Allocate):
            self.inner.share(node.buffer) if has_threads(node.body) else None
            self._blocks(node.body, counts) if has_threads(node.body) else self._group(node, last=True)
        else:
            self._group(node, last=True)

    def _group(self, node: Stmt, *, last: bool) -> None:
        """What a group does; unless it is the last of the kernel, all of it meet after."""
        if isinstance(node, Barrier | Prefetch):
            return
        if not has_threads(node):
            self._first_item(node, last=last)
        elif isinstance(node, Seq):
            for number, part in enumerate(node.stmts, 1):
                self._group(part, last=last and number == len(node.stmts))
        elif isinstance(node, For) and is_item_axis(node.kind):
            self._nest(node, last=last)
        elif isinstance(node, For):
            self._loop(node)
        elif isinstance(node, Let | If):
            self._choice(node, last=last)
        elif isinstance(node, Allocate):
            self.inner.share(node.buffer)
            self._group(node.body, last=last)
        elif isinstance(node, Intrinsic):
            self._group(node.body, last=last)
        else:
            raise BuildError(f"no code for statement {type(node).__name__} of a block")

    def _loop(self, node: For) -> None:
        def body() -> None:
            self._group(node.body, last=False)

        if node.kind == "parallel":
            name = self.code.fresh(node.var.name)
            self.inner.expressions.env[node.var] = Value(name, "int64")
            self.inner.expressions.ranges.loop(node.var, 0, node.extent - 1)
            with self.code.block(f"for (long {name} = begin; {name} < end; ++{name})"):
                body()
        elif node.kind == "unrolled":
            self.inner.unrolled(node, body)
        else:
            self.inner.repeated(node, body)

    def _choice(self, node: Let | If, *, last: bool) -> None:
        """A name or a branch that all of the group take: what is read for it may be written after."""
        expr = node.value if isinstance(node, Let) else node.cond
        value = self.inner.evaluated(expr, node.var.name if isinstance(node, Let) else "c")
        if has_load(expr):
            self.code.line(_MEET)
        if isinstance(node, Let):
            self.inner.expressions.env[node.var] = value
            self._group(node.body, last=last)
            return
        with self.code.block(f"if ({value.text})"):
            self._group(node.then, last=last)
        if node.otherwise is not None:
            with self.code.block("else"):
                self._group(node.otherwise, last=last)

    def _first_item(self, node: Stmt, *, last: bool) -> None:
        """What is in no loop over work items is done once."""
        if isinstance(node, Seq) and not node.stmts:
            return
        alone = self.sizes == (1, 1, 1)
        with self.code.block("" if alone else f"if ({self._zero_of(range(3))})"):
            self.inner.statement(node)
        self._meet(last)

    def _nest(self, node: For, *, last: bool) -> None:
        """A nest of loops over work items; those of axes that it has no loop over leave it to the first."""
        inner, nest = self.inner, nest_of(node)
        unused = [d for d in range(3) if self.sizes[d] > 1 and d not in {dimension(tag) for tag in nest.tags}]
        inner.tags, inner.together = nest.tags, True

        def body() -> None:
            inner.statement(node)

        if unused:
            with self.code.block(f"if ({self._zero_of(unused)})"):
                body()
        else:
            body()
        inner.tags, inner.together = frozenset(), False
        self._meet(last)

    def _zero_of(self, dimensions: range | list[int]) -> str:
        return " && ".join(f"get_local_id({d}) == 0" for d in dimensions if self.sizes[d] > 1) or "1"

    def _meet(self, last: bool) -> None:
        if not last and self.sizes != (1, 1, 1):
            self.code.line(_MEET)

    # -- the function ----------------------------------------------------------------------------------------

    def text(self, symbol: str, items: Sizes) -> str:
        """The kernel: memory and an offset for each buffer, then the tiles."""
        buffers = self.kernel.buffers
        arguments = [f"__global uchar *p{n}, const ulong o{n}" for n, _ in enumerate(buffers)]
        inner = [
            f"__global {'const ' if b in self.kernel.reads else ''}{memory_type(b.dtype)} *restrict b{n}"
            for n, b in enumerate(buffers)
        ]
        inner += [f"__local {ctype} *restrict {name}" for ctype, name, _ in self.code.local]
        given = [
            f"(__global {'const ' if b in self.kernel.reads else ''}{memory_type(b.dtype)} *)(p{n} + o{n})"
            for n, b in enumerate(buffers)
        ]
        given += [name for _, name, _ in self.code.local]
        required = ", ".join(map(str, items))
        fixed = f"__attribute__((reqd_work_group_size({required})))\n"
        lines = [
            f"static inline void {symbol}_body({', '.join([*inner, 'const long begin', 'const long end'])}) {{",
            *self.code.lines,
            "}",
            f"{fixed}__kernel void {symbol}({', '.join([*arguments, 'const long begin', 'const long end'])}) {{",
            *(f"  __local {ctype} {name}[{count}];" for ctype, name, count in self.code.local),
            f"  {symbol}_body({', '.join([*given, 'begin', 'end'])});",
            "}",
        ]
        return "\n".join(lines)


__all__ = ["ITEMS", "emit_kernel"]
