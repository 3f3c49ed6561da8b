"""The schedule of an attention: blocks of query rows, whose scores stay in scratch memory.

For each head and block of rows: scores by a register tile over transposed keys, softmax row by row, values
by a second register tile. With blocks of keys the same happens once a block, and a running maximum and sum
join what the blocks give (FlashAttention: Dao et al., NeurIPS 2022).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.schedule.index_map import IndexMap
from autotune.target import ITEM_BYTES
from autotune.te.tensor import ComputeOp, PlaceholderOp
from search_spaces.families.attention_shape import AttentionShape
from search_spaces.families.plain import schedule_plain
from search_spaces.nest import CACHE_LINE
from search_spaces.rows.vectors import attach, partial_vectors, vectorize_row
from search_spaces.sketch import Choices

if TYPE_CHECKING:
    from autotune.schedule.schedule import Schedule
    from autotune.schedule.stage import Stage
    from autotune.te.expr import IterVar

_ROW_VECTORS = 4
_KEY_STEPS = 16


def schedule_attention(schedule: Schedule, shape: AttentionShape, config: Choices) -> None:
    """Apply the tiles of ``config``."""
    _Attention(schedule, shape, config).build()


class _Attention:
    def __init__(self, schedule: Schedule, shape: AttentionShape, config: Choices) -> None:
        self.schedule = schedule
        self.shape = shape
        self.config = config
        self.output = schedule[shape.structure.stored.name]

    def build(self) -> None:
        for op in self.shape.inlined:
            self.schedule[op.name].compute_inline()
        base = f"{self.shape.name}.base"
        if base in (op.name for op in self.shape.structure.order):
            self.schedule[base].compute_inline()
        heads, block, inside = self._row_blocks()
        if self.shape.blocked:
            parent, loop, product = self._merge(block)
        else:
            parent, loop, product = self.output, block, self._stage("acc")
            self._tile(self.output, self.output.split(inside, factor=self.config["rows"]), "", product)
            self._attach("rcp", parent, loop)
        self._softmax(parent, loop)
        self._scores(parent, loop)
        self._flags(block)
        if self.shape.once:
            self._panels_of_keys().compute_at(parent, loop)
        else:
            self._transpose_keys(heads)
        if self.config["copy_values"]:
            self._copy_values(product, heads)
        for op in self.shape.structure.rest:
            schedule_plain(self.schedule[op.name], self.shape.lanes, inline=True)

    def _stage(self, suffix: str) -> Stage:
        return self.schedule[f"{self.shape.name}.{suffix}"]

    def _attach(self, suffix: str, parent: Stage, loop: IterVar) -> Stage:
        stage = self._stage(suffix)
        stage.compute_at(parent, loop)
        return stage

    def _row_blocks(self) -> tuple[IterVar | None, IterVar, IterVar]:
        """Split the output into blocks of rows: loops over heads, over blocks, and inside of a block.

        There is no loop over heads alone where blocks of all heads are shared among the workers.
        """
        stage, (*lead, row, column) = self.output, _axes(self.output)
        # The last block overlaps the one before, so that all have the same rows and none needs a guard.
        height = self.config["rows"] * self.config["row_block"]
        block, inside = stage.split(row, factor=height, tail="overlap")
        stage.reorder(*lead, block, inside, column)
        heads = None
        if lead and self.config["share"] == "heads":
            heads = shared = stage.fuse(*lead) if len(lead) > 1 else lead[0]
        else:
            block = shared = stage.fuse(*lead, block) if lead else block
        stage.parallel(shared, when=self.config["parallel"])
        return heads, block, inside

    def _tile(self, stored: Stage, loops: tuple[IterVar, IterVar], prefix: str, product: Stage) -> None:
        """Compute ``product`` in the registers of a tile of ``stored``; the loops are tiles and their rows."""
        tiles, rows = loops
        column = _axes(stored)[-1]
        lanes = min(self.shape.lanes, column.extent)
        panels, column = stored.split(column, factor=self.config[prefix + "vectors"] * lanes, tail="peel")
        vectors, lane = stored.split(column, factor=lanes)
        stored.reorder(panels, tiles, rows, vectors, lane)
        for loop in (rows, vectors):
            stored.unroll(loop)
        stored.vectorize(lane)
        product.compute_at(stored, tiles)
        product.set_scope("local")
        assert isinstance(product.op, ComputeOp)
        *lead, row, column = product.op.axis
        steps, step = product.split(product.op.reduce_axis[0], factor=self.config[prefix + "unroll"])
        vectors, lane = product.split(column, factor=lanes)
        product.reorder(*lead, steps, step, row, vectors, lane)
        for loop in (step, row, vectors):
            product.unroll(loop)
        product.vectorize(lane)

    def _merge(self, block: IterVar) -> tuple[Stage, IterVar, Stage]:
        """Return blocks of keys inside a block of rows: (stage and loop at which a block is computed, its product)."""
        vectorize_row(self.output, _axes(self.output), self.shape.lanes, self._vectors_of(self.shape.e))
        merged = self._attach("merged", self.output, block)
        assert isinstance(merged.op, ComputeOp)
        (keys,) = merged.op.reduce_axis
        *lead, row, column = merged.op.axis
        vectors, lane = merged.split(column, factor=min(self.shape.lanes, column.extent))
        merged.reorder(*lead, keys, row, vectors, lane)
        merged.vectorize(lane)
        acc = self._stage("acc")
        product = self.schedule[self.schedule.cache_write(acc.tensor, "local")]
        acc.compute_at(merged, keys)
        self._tile(acc, acc.split(_axes(acc)[-2], factor=self.config["rows"]), "", product)
        return merged, keys, product

    def _softmax(self, parent: Stage, loop: IterVar) -> None:
        """Schedule sums, exponentials and maxima of the rows of a block."""
        lanes, count = self.shape.lanes, self._vectors_of(self.shape.block)
        for suffix in ("sum", "exp", "max"):  # readers first
            stage = self._attach(suffix, parent, loop)
            assert isinstance(stage.op, ComputeOp)
            if suffix == "exp":
                self._spread_rows(stage)
                vectorize_row(stage, stage.op.axis, lanes, count)
            else:
                row = stage.op.axis[-1]
                attach(partial_vectors(self.schedule, stage, lanes, count), stage, row)

    def _spread_rows(self, stage: Stage) -> None:
        """Start each row of scratch memory in cache sets of its own: tiles walk down several rows at a time."""
        line = CACHE_LINE // ITEM_BYTES[stage.tensor.dtype]
        stage.storage_align(_axes(stage)[-2], factor=2 * line, offset=line)

    def _vectors_of(self, width: int) -> int:
        """Return vectors of a row that are worked on together: as many as divide it."""
        whole = [c for c in (1, 2, _ROW_VECTORS) if width % (c * self.shape.lanes) == 0]
        return max(whole, default=1)

    def _scores(self, parent: Stage, loop: IterVar) -> None:
        masked = self._attach("masked", parent, loop)
        self._spread_rows(masked)
        loops = masked.split(_axes(masked)[-2], factor=self.config["score_rows"], tail="overlap")
        self._tile(masked, loops, "score_", self._stage("scores"))

    def _flags(self, block: IterVar) -> None:
        """Look for blocks of keys that are masked, before the first."""
        name = f"{self.shape.name}.filled"
        if name in (op.name for op in self.shape.structure.order):
            stage = self._attach("filled", self.output, block)
            assert isinstance(stage.op, ComputeOp)
            lanes = max(self.shape.lanes, 1)
            attach(partial_vectors(self.schedule, stage, lanes, 1), stage, stage.op.axis[-1])

    def _transpose_keys(self, heads: IterVar | None) -> None:
        """Transpose keys for a head, or for all of them beforehand."""
        stage = self._panels_of_keys()
        if heads is not None:
            stage.compute_at(self.output, heads)
        else:
            outer = stage.leaf_iter_vars[:-3]
            stage.parallel(stage.fuse(*outer) if len(outer) > 1 else outer[0], when=self.config["parallel"])

    def _panels_of_keys(self) -> Stage:
        """Store keys in panels of one vector: tiles of any width read them."""
        keys = self._stage("keys")
        *lead, column, row = (f"i{number}" for number in range(len(_axes(keys))))
        lanes = min(self.shape.lanes, self.shape.block)
        panels = IndexMap((*lead, f"{row} // {lanes}", column, f"{row} % {lanes}"))
        stage = self.schedule[self.schedule.transform_layout(keys.tensor, panels)]
        *_, columns, lane = _axes(stage)
        # The unrolled steps of a vector are a block that is read along its lines and turned in registers.
        _, step = stage.split(columns, factor=_KEY_STEPS)
        stage.unroll(step)
        stage.vectorize(lane)
        return stage

    def _copy_values(self, product: Stage, heads: IterVar | None) -> None:
        """Store values in dense rows; only worth it where theirs are far apart."""
        assert isinstance(product.op, ComputeOp)
        (values,) = (t for t in product.op.input_tensors if isinstance(t.op, PlaceholderOp))
        stage = self.schedule[self.schedule.cache_read(values, "global", [product])]
        if heads is not None:
            stage.compute_at(self.output, heads)
        parallel = heads is None and self.config["parallel"]
        schedule_plain(stage, self.shape.lanes, inline=False, parallel=parallel)


def _axes(stage: Stage) -> tuple[IterVar, ...]:
    assert isinstance(stage.op, ComputeOp)
    return stage.op.axis


__all__ = ["schedule_attention"]
