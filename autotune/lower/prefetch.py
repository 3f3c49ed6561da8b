"""Prefetches: what a later iteration of a loop reads, fetched into the cache right after the loop is opened."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from autotune.errors import LoweringError
from autotune.lower.attached import BoundInference
from autotune.lower.ir import Buffer, For, Prefetch, Stmt
from autotune.lower.linear import Lin, constant_form
from autotune.lower.opened import OpenFrame
from autotune.lower.regions import Box, Region, required, whole_boxes
from autotune.lower.translate import StageBuffers, Translator
from autotune.schedule.stage import Stage
from autotune.te.expr import Expr, IterVar, Read, Var, binary, const
from autotune.te.tensor import Tensor
from autotune.te.traversal import nodes, reads, transform

LINE_BYTES = 64
MAX_PREFETCHES = 256
"""Cache lines that one prefetch step may fetch an iteration."""

_IN_MEMORY = ("argument", "workspace")


class Prefetches:
    """Generates the prefetches of a loop; ``named`` are values that got a name of their own."""

    def __init__(self, translator: Translator, bounds: BoundInference, named: Mapping[Expr, Lin]) -> None:
        self.translator = translator
        self.simplifier = translator.simplifier
        self.bounds = bounds
        self.named = named

    def at(self, frame: OpenFrame, at: int) -> list[Stmt]:
        """Return prefetches of what a later iteration of leaf ``at`` reads, in attached stages too, one
        a cache line."""
        iv = frame.stage.leaf_iter_vars[at]
        stmts: list[Stmt] = []
        for tensor, var, offset, level in frame.stage.prefetches:
            if var is not iv or not frame.values[iv].terms:
                continue
            place = self.translator.place_of(tensor)
            buffer = place.buffers[tensor.value_index]
            own = self._boxes_ahead(frame, iv, offset)
            inside = self.bounds.regions(frame, at, own).items()
            boxes = {frame.stage: own, **{stage: whole_boxes(stage, region) for stage, region in inside}}
            uses = [(read, boxes[stage]) for stage in boxes for read in self._reads_of(stage, tensor)]
            if not uses or buffer.scope not in _IN_MEMORY:
                continue
            region = required(self.simplifier, tensor.shape, uses)
            if len(uses) == 1:
                ((read, where),) = uses
                for dim, index in enumerate(read.indices):
                    found = self._looked_up(index, where)
                    region[dim] = region[dim] if found is None else (found, 1)
            stmts.append(_prefetch_lines(buffer, region, place, level))
        return stmts

    def _reads_of(self, stage: Stage, tensor: Tensor) -> list[Read]:
        schedule = stage.schedule
        return [
            read
            for read in self.bounds.reads[stage]
            if schedule[read.tensor] is schedule[tensor] and read.tensor.value_index == tensor.value_index
        ]

    def _boxes_ahead(self, frame: OpenFrame, iv: IterVar, offset: int) -> dict[Expr, Box]:
        """Return the boxes of the frame as they are ``offset`` iterations of ``iv`` later."""
        steps = (atom for atom, width in frame.values[iv].terms.items() if width == 1)
        later: dict[Expr, Lin] = {atom: Lin({atom: 1}, offset) for atom in steps}
        boxes = frame.boxes()
        return {axis: (self._moved(low, later), extent) for axis, (low, extent) in boxes.items()}

    def _moved(self, form: Lin, later: Mapping[Expr, Lin]) -> Lin:
        """Return a form with some variables replaced, in what its names stand for too."""
        result = constant_form(form.constant)
        for atom, coefficient in form.terms.items():
            result = result + self._moved_atom(atom, later).scaled(coefficient)
        return result

    def _moved_atom(self, atom: Expr, later: Mapping[Expr, Lin]) -> Lin:
        if atom in later:
            return later[atom]
        if atom in self.named:
            return self._moved(self.named[atom], later)
        if isinstance(atom, Var):
            return Lin({atom: 1}, 0)
        inside = [node for node in nodes(atom) if isinstance(node, Var)]
        values: dict[Expr, Lin] = {node: self._moved_atom(node, later) for node in inside}
        return self.simplifier.form(atom, values)

    def _looked_up(self, index: Expr, boxes: Mapping[Expr, Box]) -> Lin | None:
        """Return an index that is itself read from memory, where it is one for the whole iteration; else None.

        What it is read at is kept inside of its tensor: the iterations after the last one have no index of their own,
        and a condition around the read in the program is not around the prefetch.
        """
        inner = reads(index)
        axes = [node for node in nodes(index) if node in boxes]
        if not inner or any(boxes[axis][1] != 1 for axis in axes):
            return None
        places = [self.translator.place_of(read.tensor) for read in inner]
        if any(
            p.buffers[r.tensor.value_index].scope not in _IN_MEMORY
            for p, r in zip(places, inner, strict=True)
        ):
            return None
        values = {axis: boxes[axis][0] for axis in axes}
        return self.translator.index(transform(index, _kept_inside), values, {})


def _kept_inside(node: Expr) -> Expr | None:
    """Return a read whose indices cannot leave its tensor."""
    if not isinstance(node, Read):
        return None
    indices = (
        binary("max", binary("min", index, const(size - 1)), const(0))
        for index, size in zip(node.indices, node.tensor.shape, strict=True)
    )
    return Read(node.tensor, tuple(indices))


def _prefetch_lines(buffer: Buffer, region: Region, place: StageBuffers, level: int) -> Stmt:
    step = max(LINE_BYTES // np.dtype(buffer.dtype).itemsize, 1)
    indices: list[Expr] = []
    loops: list[tuple[Var, int]] = []
    count = 1
    for dim, ((low, extent), start) in enumerate(zip(region, place.starts, strict=True)):
        width = max(step // max(buffer.strides[dim], 1), 1)  # places along it that share a line
        times = -(-extent // width)
        var = Var(f"p{dim}")
        value = low - start
        if times > 1:
            loops.append((var, times))
            value = value + Lin({var: width}, 0)
        count *= max(times, 1)
        indices.append(value.expr())
    if count > MAX_PREFETCHES:
        raise LoweringError(
            f"a prefetch of {buffer.name} would fetch {count} cache lines an iteration, more than {MAX_PREFETCHES}; "
            f"name a loop further inside"
        )
    stmt: Stmt = Prefetch(buffer, tuple(indices), level)
    for var, times in reversed(loops):
        stmt = For(var, times, "unrolled", stmt)
    return stmt


__all__ = ["Prefetches"]
