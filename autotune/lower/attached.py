"""Stages attached to a loop: the regions that are computed there, and the memory for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.errors import LoweringError
from autotune.lower.ir import Buffer, is_block_axis
from autotune.lower.linear import Lin, Simplifier, constant_form
from autotune.lower.opened import OpenFrame
from autotune.lower.regions import Box, Region, required, whole_boxes
from autotune.lower.translate import StageBuffers
from autotune.schedule.stage import Stage
from autotune.strides import aligned_strides
from autotune.te.expr import Expr, Read, Var
from autotune.te.tensor import ComputeOp
from autotune.te.traversal import nodes

BLOCK_SCOPES = ("shared", "warp")
"""Scopes whose memory all threads of a block see."""


class BoundInference:
    """Infers the regions of attached stages from what their readers need.

    ``order`` are the stages, producers first, ``reads`` what each reads, ``threads`` the thread axes whose loops are
    open (variable and extent), ``named`` values that got a name of their own.
    """

    def __init__(
        self,
        order: Sequence[Stage],
        reads: Mapping[Stage, Sequence[Read]],
        simplifier: Simplifier,
        threads: Mapping[str, tuple[Var, int]],
        named: Mapping[Expr, Lin],
    ) -> None:
        self.order = order
        self.reads = reads
        self.simplifier = simplifier
        self.threads = threads
        self.named = named

    def regions(self, frame: OpenFrame, at: int, own: Mapping[Expr, Box]) -> dict[Stage, Region]:
        """Return regions of all stages attached inside, as seen from loop ``at`` of the frame's stage
        with ``own`` boxes."""
        inside = attached_inside(self.order, frame.stage, at)
        boxes: dict[Stage, Mapping[Expr, Box]] = {frame.stage: own}
        regions: dict[Stage, Region] = {}
        for stage in reversed(self.order):
            if stage not in inside:
                continue
            uses: list[tuple[Read, Mapping[Expr, Box]]] = []
            for consumer in self.order:
                if consumer not in self.reads:
                    continue
                found = [r for r in self.reads[consumer] if stage.schedule[r.tensor] is stage]
                if found and consumer not in boxes:
                    raise LoweringError(
                        f"stage {stage.op.name} is computed at {frame.stage.op.name}, "
                        f"{frame.stage.leaf_iter_vars[at].name}, but stage {consumer.op.name} reads it from "
                        f"outside of that loop; attach it where all its readers are, or compute it at the root"
                    )
                uses += [(r, boxes[consumer]) for r in found]
            region = required(self.simplifier, stage.op.shape, uses)
            if stage.scope in BLOCK_SCOPES and self.threads:
                region = self._of_all_threads(stage, region)
            regions[stage] = region
            boxes[stage] = whole_boxes(stage, region)
        return regions

    def _of_all_threads(self, stage: Stage, region: Region) -> Region:
        """Return the region that all threads of the block need: the thread axes around run over their whole range."""
        op = stage.op
        assert isinstance(op, ComputeOp)
        bound = {stage.kind_of(iv) for iv in stage.leaf_iter_vars}
        alone = [tag for tag in self.threads if tag.startswith("threadIdx") and tag not in bound]
        if op.reduction is not None and alone:
            raise LoweringError(
                f"stage {op.name} is a reduction in {stage.scope} memory that every thread of {', '.join(alone)} "
                f"would repeat; bind a loop of it to that axis, or compute it into local memory"
            )
        result: Region = []
        for (low, extent), size in zip(region, op.shape, strict=True):
            start, more, known = low, 0, True
            for atom, c in low.terms.items():
                count = self._thread_count(atom)
                if count:
                    start = start + Lin({atom: -c}, min(c * (count - 1), 0))
                    more += abs(c) * (count - 1)
                elif self._differs_by_thread(atom):
                    known = False
            if not known or extent + more >= size:
                result.append((constant_form(0), size))
            else:
                result.append((start, extent + more))
        return result

    def _thread_count(self, atom: Expr) -> int:
        """Return the extent of the thread axis that a variable stands for; 0 when it is no thread of a block."""
        for tag, (var, extent) in self.threads.items():
            if var is atom and not is_block_axis(tag):
                return extent
        return 0

    def _differs_by_thread(self, expr: Expr) -> bool:
        """Return whether a value, or what the names in it stand for, is another one in each thread of a block."""
        for node in nodes(expr):
            value = self.named.get(node)
            parts = () if value is None else value.terms
            if self._thread_count(node) or any(self._differs_by_thread(part) for part in parts):
                return True
        return False


def attached_inside(stages: Sequence[Stage], stage: Stage, at: int) -> set[Stage]:
    """Return those of ``stages`` that are attached to leaf ``at`` of a stage or deeper, and to those."""
    deeper = stage.leaf_iter_vars[at:]
    found: set[Stage] = set()
    for other in stages:
        if other.attach_stage is stage and any(other.attach_ivar is iv for iv in deeper):
            found |= {other} | attached_inside(stages, other, 0)
    return found


def local_place(stage: Stage, region: Region) -> StageBuffers:
    """Return memory for a region of an attached stage."""
    shape = tuple(extent for _, extent in region)
    dtypes = stage.op.dtypes
    names = [t.name for t in (stage.op.output(i) for i in range(len(dtypes)))]
    scope = "shared" if stage.scope in BLOCK_SCOPES else "local"
    strides = aligned_strides(shape, stage.alignments) if stage.alignments else None
    buffers = tuple(Buffer(n, shape, d, scope, strides) for n, d in zip(names, dtypes, strict=True))
    return StageBuffers(buffers, tuple(low for low, _ in region))


__all__ = ["BLOCK_SCOPES", "BoundInference", "attached_inside", "local_place"]
