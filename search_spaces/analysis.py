"""Facts of a region's program that recipes need: its stages, and the dependence of reads on loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from autotune.target import ITEM_BYTES
from autotune.te.expr import Binary, Call, Cast, Const, Expr, IterVar, Read, Select
from autotune.te.tensor import ComputeOp, Operation, PlaceholderOp, Tensor, post_order
from autotune.te.traversal import children, nodes, reads

if TYPE_CHECKING:
    from autotune.graph.region import RegionProgram

Terms = tuple[tuple[str, int], ...]

# Relative cost of an elementary function in multiply-adds, as a polynomial in vector registers.
_CALL_COST = 12
_BIT_OPERATIONS = ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")


@dataclass(frozen=True)
class ReadForm:
    """One read of a stage: for each dimension the loop axes that move it, with their coefficients.

    ``affine`` is False where an index holds a quotient, remainder, select or another read; its terms then
    only say roughly which axes move it. ``looked_up`` are axes that move it through another read; ``regular`` says
    that the indices without one are affine.
    """

    tensor: Tensor
    dims: tuple[Terms, ...]
    affine: bool
    looked_up: frozenset[str] = frozenset()
    regular: bool = True

    @property
    def axes(self) -> frozenset[str]:
        """The axes that move this read."""
        return frozenset(axis for terms in self.dims for axis, _ in terms)

    def single(self, dim: int) -> str | None:
        """Return the axis that alone indexes ``dim`` with coefficient 1, or None."""
        terms = self.dims[dim]
        return terms[0][0] if len(terms) == 1 and terms[0][1] == 1 else None

    @property
    def contiguous(self) -> str | None:
        """The axis that moves the last dimension by one element, or None."""
        last = self.dims[-1] if self.dims else ()
        steps = [axis for axis, coefficient in last if coefficient == 1]
        return steps[0] if len(steps) == 1 and len(last) == 1 else None

    def moved_by_one(self, axis: str) -> bool:
        """Return whether an axis moves what is read by one element, whatever other axes do."""
        sizes = zip(self.dims, self.tensor.shape, strict=True)
        last = next((dict(terms) for terms, size in [*sizes][::-1] if size > 1), {})
        return last.get(axis) == 1


def linear(expr: Expr) -> tuple[dict[str, int], bool]:
    """Return coefficients of loop axes in an index, and whether that is the whole truth."""
    if isinstance(expr, IterVar):
        return {expr.name: 1}, True
    if isinstance(expr, Const):
        return {}, True
    if isinstance(expr, Cast):
        return linear(expr.a)
    if isinstance(expr, Binary):
        left, exact_left = linear(expr.a)
        right, exact_right = linear(expr.b)
        exact = exact_left and exact_right
        if expr.op in ("+", "-"):
            sign = 1 if expr.op == "+" else -1
            total = dict(left)
            for axis, coefficient in right.items():
                total[axis] = total.get(axis, 0) + sign * coefficient
            return {axis: c for axis, c in total.items() if c}, exact
        if expr.op == "*" and isinstance(expr.b, Const):
            return {axis: c * int(expr.b.value) for axis, c in left.items()}, exact
        if expr.op == "*" and isinstance(expr.a, Const):
            return {axis: c * int(expr.a.value) for axis, c in right.items()}, exact
        if expr.op in ("//", "%") and isinstance(expr.b, Const):
            divisor = int(expr.b.value) if expr.op == "//" else 1
            return {axis: max(1, abs(c) // divisor) for axis, c in left.items()}, False
        return dict.fromkeys((*left, *right), 1), False
    if isinstance(expr, Read):
        return {}, False
    found: dict[str, int] = {}
    for child in children(expr):
        found |= linear(child)[0]
    return dict.fromkeys(found, 1), False


@lru_cache(maxsize=1024)
def read_forms(op: ComputeOp) -> tuple[ReadForm, ...]:
    """All reads of a stage, each distinct index once, in order."""
    forms: dict[tuple[Tensor, tuple[Terms, ...]], ReadForm] = {}
    for expr in op.body:
        for read in reads(expr):
            parts = [linear(index) for index in read.indices]
            dims = tuple(tuple(terms.items()) for terms, _ in parts)
            exact = all(flag for _, flag in parts)
            regular = all(flag or reads(index) for (_, flag), index in zip(parts, read.indices, strict=True))
            form = ReadForm(read.tensor, dims, exact, _looked_up(read), regular)
            forms.setdefault((read.tensor, dims), form)
    return tuple(forms.values())


def _looked_up(read: Read) -> frozenset[str]:
    """Return the axes that other reads in the indices of a read depend on."""
    inner = (other for index in read.indices for other in reads(index))
    return frozenset(axis for other in inner for index in other.indices for axis in linear(index)[0])


@lru_cache(maxsize=1024)
def operations(op: ComputeOp) -> int:
    """Return arithmetic of one element of a stage, in vector instructions; a reduction step counts its source."""
    reduction = op.reduction
    sources = reduction.sources if reduction is not None else op.body
    return sum(cost_of(node) for expr in sources for node in nodes(expr))


def cost_of(node: Expr) -> int:
    """Return the vector instructions of one node of an expression."""
    if node.dtype == "int64":  # index arithmetic: done once for a vector, mostly outside the loop
        return 0
    if isinstance(node, Call):
        return 1 if is_of_bits(node) else _CALL_COST
    if isinstance(node, Binary):
        return 4 if node.op == "/" else 1
    return int(isinstance(node, Select))


def is_of_bits(node: Expr) -> bool:
    """Return whether a node moves, masks or joins bits of integers in vectors."""
    return isinstance(node, Call) and node.dtype != "int64" and node.name in _BIT_OPERATIONS


@dataclass(frozen=True)
class Structure:
    """The stages of a region around its anchor.

    ``stored`` is the stage that a tiled recipe stores: the region's output where everything between it and
    the anchor is elementwise on the same indices (``fused``), else the anchor itself.
    """

    program: RegionProgram
    anchor: ComputeOp
    stored: ComputeOp
    fused: bool

    @cached_property
    def order(self) -> list[ComputeOp]:
        """All computed stages, producers first."""
        found = post_order(list(self.program.outputs))
        return [op for op in found if isinstance(op, ComputeOp)]

    @cached_property
    def producers(self) -> list[ComputeOp]:
        """Stages that the anchor needs, producers first."""
        found = [op for op in post_order([self.anchor.output(0)]) if op is not self.anchor]
        return [op for op in found if isinstance(op, ComputeOp)]

    @cached_property
    def epilogue(self) -> list[ComputeOp]:
        """Stages after the anchor, up to ``stored`` (not in it where nothing is fused)."""
        if not self.fused:
            return []
        return [op for op in self.order if op is not self.anchor and depends(op, self.anchor)]

    @cached_property
    def side(self) -> list[ComputeOp]:
        """Elementwise stages that only the epilogue needs, not the anchor."""
        known = {id(op) for op in (*self.producers, *self.epilogue, self.anchor)}
        return [op for op in self.order if id(op) not in known and self.fused]

    @cached_property
    def rest(self) -> list[ComputeOp]:
        """Stages left to be scheduled plainly because nothing could be fused."""
        if self.fused:
            return []
        known = {id(op) for op in (*self.producers, self.anchor)}
        return [op for op in self.order if id(op) not in known]

    @cached_property
    def epilogue_operations(self) -> int:
        """Arithmetic of the epilogue, in vector instructions an element."""
        return sum(operations(op) for op in (*self.epilogue, *self.side))


def depends(op: Operation, on: Operation) -> bool:
    """Return whether ``op`` reads ``on``, directly or not."""
    return any(other is on for other in post_order([op.output(0)])) and op is not on


def is_view(op: ComputeOp) -> bool:
    """Return whether a stage only renames elements: a single read, no arithmetic."""
    return len(op.body) == 1 and isinstance(op.body[0], Read)


def is_constant(op: ComputeOp, constants: frozenset[str]) -> bool:
    """Return whether a stage reads nothing but compile-time constants."""
    inputs = [o for o in post_order([op.output(0)]) if isinstance(o, PlaceholderOp)]
    return bool(inputs) and all(o.name in constants for o in inputs)


def structure(program: RegionProgram, anchor: ComputeOp | None = None) -> Structure:
    """Return the structure of a region around ``anchor`` (by default the program's)."""
    if anchor is None:
        assert program.anchor is not None
        found = program.anchor.op
        assert isinstance(found, ComputeOp)
        anchor = found
    output = program.outputs[0].op
    assert isinstance(output, ComputeOp)
    if len({id(t.op) for t in program.outputs}) == 1 and _same_indices(output, anchor):
        return Structure(program, anchor, output, True)
    return Structure(program, anchor, anchor, False)


def _same_indices(output: ComputeOp, anchor: ComputeOp) -> bool:
    """Return whether the output reads the anchor, through elementwise stages, at its own indices only."""
    if output is anchor:
        return True
    if output.shape != anchor.shape or output.reduction is not None:
        return False
    for expr in output.body:
        for read in reads(expr):
            op = read.tensor.op
            if op is not anchor and not depends(op, anchor):
                if isinstance(op, ComputeOp) and op.reduction is not None:
                    return False
                continue
            # Dimensions of extent 1 are read at 0, which is the axis itself.
            same = [
                i is axis or (axis.extent == 1 and isinstance(i, Const) and i.value == 0)
                for i, axis in zip(read.indices, output.axis, strict=False)
            ]
            if len(read.indices) != len(output.axis) or not all(same):
                return False
            if op is not anchor and not (isinstance(op, ComputeOp) and _same_indices(op, anchor)):
                return False
    return depends(output, anchor)


def row_bytes(tensor: Tensor, strides: Mapping[str, tuple[int, ...]]) -> int:
    """Return the distance of neighbours in the last but one dimension of a strided tensor, 0 of a dense one."""
    steps = strides.get(tensor.name, ())
    return steps[-2] * ITEM_BYTES[tensor.dtype] if len(steps) > 1 else 0


__all__ = [
    "ReadForm",
    "Structure",
    "Terms",
    "cost_of",
    "depends",
    "is_constant",
    "is_of_bits",
    "is_view",
    "linear",
    "operations",
    "read_forms",
    "row_bytes",
    "structure",
]
