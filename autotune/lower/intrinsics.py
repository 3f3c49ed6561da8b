"""Calls of tensor intrinsics: their operands, and whether these lie in memory as the instructions expect."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.errors import LoweringError
from autotune.lower.ir import If, Intrinsic, Load, Stmt, nodes, walk
from autotune.lower.linear import Lin, constant_form
from autotune.lower.opened import OpenFrame
from autotune.lower.rewrite import rewrite_expr
from autotune.lower.translate import StageBuffers, Translator
from autotune.schedule.match import matched_reads, paired
from autotune.schedule.relations import Split
from autotune.te.expr import Expr, IterVar, Read, Var, const
from autotune.te.instructions import Operand
from autotune.te.traversal import reads


class IntrinsicCall:
    """The loops of a stage from leaf ``at`` on as a call."""

    def __init__(self, frame: OpenFrame, at: int, translator: Translator) -> None:
        stage = frame.stage
        self.stage = stage
        self.loop = stage.leaf_iter_vars[at]
        self.intrin = stage.tensorized[self.loop]
        self.translator = translator
        self.simplifier = translator.simplifier
        self.variables: dict[IterVar, Var] = {}
        inner = frame.branch()
        partners = paired(stage, self.loop)
        for iv in stage.leaf_iter_vars[at:]:
            variable = self.variables[partners[iv]] = Var(iv.name)
            self.simplifier.declare(variable, 0, iv.extent - 1)
            inner.values[iv] = Lin({variable: 1}, 0) if iv.extent > 1 else constant_form(0)
        _follow(inner)
        self.op = inner.op
        self.values: Mapping[Expr, Lin] = inner.axis_values()

    def statement(self, body: Stmt, output: StageBuffers, part: str) -> Intrinsic:
        """Return the call; ``body`` are the loops, ``output`` is where the stage's elements are.

        Raises LoweringError where an operand does not lie as the instructions expect.
        """
        index = [self.values[axis] for axis in self.op.axis]
        loads = [Load(output.buffers[0], output.indices(index))]
        stores = self.intrin.instructions.get(part, ())
        if part != "init":
            matched = matched_reads(self.stage, self.loop)
            loads += [self._load(matched[tensor]) for tensor in self.intrin.op.input_tensors]
        first = tuple(self._first(load) for load in loads)
        if not stores:
            return Intrinsic(self.intrin.name, first, body)
        if any(isinstance(statement, If) for statement in walk(body)):
            raise LoweringError(
                f"tensorize of stage {self.stage.op.name}: a condition runs inside of {self.intrin.name}, which has "
                f"no lanes to switch off; split with tail='peel', so that the rest has code of its own"
            )
        operands = zip(self.intrin.operands, loads, strict=False)
        strides = tuple(self._strides(operand, load) for operand, load in operands)
        return Intrinsic(self.intrin.name, first, body, stores, strides, self.intrin.requires)

    def _load(self, read: Read) -> Load:
        found = self.translator.value(read, self.values)
        assert isinstance(found, Load)
        return found

    def _first(self, load: Load) -> Load:
        """Return the access of the first iteration of the loops."""
        ours = set(self.variables.values())
        memo: dict[int, Expr] = {}

        def zero(node: Expr) -> Expr | None:
            return const(0) if isinstance(node, Var) and node in ours else None

        forms = (self.simplifier.form(rewrite_expr(i, zero, memo)) for i in load.indices)
        return Load(load.buffer, tuple(form.expr() for form in forms))

    def _strides(self, operand: Operand, load: Load) -> tuple[int, ...]:
        """Return elements from one step of each loop that moves an operand to the next: a loop a dimension, or several
        in a product of tiles."""
        form = Lin({}, 0)
        for index, stride in zip(load.indices, load.buffer.strides, strict=True):
            form = form + self.simplifier.form(index).scaled(stride)
        steps = []
        for dim, axis in enumerate(self._axes(operand)):
            variable = self.variables[axis]
            bent = any(variable is not atom and variable in set(nodes(atom)) for atom in form.terms)
            step = form.terms.get(variable, 0)
            wanted = operand.strides[dim]
            if bent or (wanted is not None and axis.extent > 1 and step != wanted):
                raise LoweringError(self._misplaced(operand, load, dim, None if bent else step))
            steps.append(step)
        return _dense_where_free(steps, [axis.extent for axis in self._axes(operand)])

    def _axes(self, operand: Operand) -> list[IterVar]:
        """Return the loops of the pattern that move each dimension."""
        pattern = self.intrin.op
        if operand.number == 0:
            return list(pattern.axis)
        tensor = pattern.input_tensors[operand.number - 1]
        read = next(r for e in pattern.body for r in reads(e) if r.tensor == tensor)
        return [part for index in read.indices for part in nodes(index) if isinstance(part, IterVar)]

    def _misplaced(self, operand: Operand, load: Load, dim: int, step: int | None) -> str:
        found = "not even" if step is None else f"{step} elements"
        wanted = operand.strides[dim]
        distance = "one distance" if wanted is None else f"a distance of {wanted} elements"
        by_loop = len(operand.strides) > len(operand.shape)
        along = f"loop {self._axes(operand)[dim].name}" if by_loop else f"dimension {dim}"
        return (
            f"tensorize of stage {self.stage.op.name}: {self.intrin.name} takes {operand.name} with {distance} "
            f"along {along}, in {load.buffer.name} it is {found}; change the "
            f"layout (cache_read and transform_layout), or declare the operand with another stride (te.decl_buffer)"
        )


def _dense_where_free(steps: list[int], extents: list[int]) -> tuple[int, ...]:
    """Return strides of an operand; nothing goes along a dimension of one element, which gets that of a dense operand.

    A library looks at them all the same: a BLAS refuses a row step that is less than a row.
    """
    filled, dense = list(steps), 1
    for dim in reversed(range(len(steps))):
        if extents[dim] == 1:
            filled[dim] = dense
        dense = filled[dim] * extents[dim]
    return tuple(filled)


def _follow(frame: OpenFrame) -> None:
    """Compute the values of the axes that the open loops are parts of."""
    for relation in reversed(frame.stage.relations):
        if isinstance(relation, Split) and relation.parent not in frame.values:
            outer, inner = frame.values.get(relation.outer), frame.values.get(relation.inner)
            base = frame.bases.get(relation)
            if base is None and outer is not None:
                base = outer.scaled(frame.width(relation))
            if base is not None and inner is not None:
                frame.values[relation.parent] = base + inner


__all__ = ["IntrinsicCall"]
