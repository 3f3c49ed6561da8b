"""The sizes of a region around an attention, which its schedules and their loop nests are about."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from autotune.graph.ops.attention import FEW_QUERIES
from autotune.te.tensor import ComputeOp
from search_spaces.analysis import Structure, structure

if TYPE_CHECKING:
    from autotune.graph.region import Workload
    from autotune.target import Target


@dataclass(frozen=True)
class AttentionShape:
    """``name`` is the attention's output in the workload; stages are called ``<name>.<suffix>``.

    ``lead`` are the leading extents (batch, heads), ``m`` queries, ``n`` keys of which ``block`` are taken
    at a time, ``d`` and ``e`` the sizes of a key and of a value.
    """

    structure: Structure
    name: str
    lead: tuple[int, ...]
    m: int
    n: int
    block: int
    d: int
    e: int
    lanes: int

    @property
    def blocked(self) -> bool:
        """Return whether keys come in blocks, with a running maximum and sum."""
        return self.block < self.n

    @property
    def once(self) -> bool:
        """Return whether a block of keys is read by one block of rows: few queries, as of a step of decoding."""
        return self.blocked and self.m <= FEW_QUERIES

    @cached_property
    def inlined(self) -> tuple[ComputeOp, ...]:
        """Elementwise stages between the attention and what the region stores."""
        plan = self.structure
        own = f"{self.name}."
        around = [op for op in (*plan.side, *plan.epilogue) if not op.name.startswith(own)]
        return tuple(op for op in around if op is not plan.stored and op.reduction is None)


def attention_shape(workload: Workload, target: Target) -> AttentionShape | None:
    """Return the sizes of an attention's region, or None where it has nothing to compute."""
    graph, node = workload.region.graph, workload.region.anchor
    assert node is not None
    q, k, v = (graph.type_of(value) for value in node.inputs[:3])
    if q.size == 0:
        return None
    n, block = k.shape[-2], node.attrs["block"]
    assert isinstance(block, int)
    return AttentionShape(
        structure=structure(workload.expressions),
        name=node.outputs[0],
        lead=q.shape[:-2],
        m=q.shape[-2],
        n=n,
        block=block or n,
        d=q.shape[-1],
        e=v.shape[-1],
        lanes=max(1, target.lanes(q.dtype)),
    )


__all__ = ["AttentionShape", "attention_shape"]
