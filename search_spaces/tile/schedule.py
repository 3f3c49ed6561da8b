"""The schedule of a register-tiled anchor: accumulators in registers, the epilogue on each tile.

The stored stage is tiled; the anchor is computed inside the innermost tile loop into local accumulators,
its reduction loops outside the unrolled rows and vectors. This is the outer-product kernel of Goto and
van de Geijn (TOMS 2008) in the form of TVM's CPU schedules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune.schedule.knob_value import KnobValue, maximum
from autotune.te.expr import IterVar
from autotune.te.tensor import ComputeOp
from search_spaces.families.plain import schedule_plain
from search_spaces.sketch import Choices
from search_spaces.tile.block_sums import pack_blocks, sum_inputs, tile_blocks
from search_spaces.tile.border import INLINE, STORED, peel_border
from search_spaces.tile.dot import tensorize_group, tensorize_taps
from search_spaces.tile.knobs import WHOLE
from search_spaces.tile.lhs import pack_lhs, place_lhs, prefetch_lhs
from search_spaces.tile.library import TILES, call_library
from search_spaces.tile.matrix_unit import multiply_tiles, with_unit
from search_spaces.tile.order import order_staged
from search_spaces.tile.panels import pack_weights
from search_spaces.tile.patches import is_packing, schedule_patches
from search_spaces.tile.prefetch import fetch_image, fetch_weights
from search_spaces.tile.shape import TileShape

if TYPE_CHECKING:
    from autotune.schedule.schedule import Schedule
    from autotune.schedule.stage import Stage


def schedule_tile(schedule: Schedule, shape: TileShape, config: Choices) -> None:
    """Apply the register tile of ``config``."""
    plan, shape = shape.structure, with_unit(shape, config)
    for op in (*plan.side, *plan.epilogue):
        if op.name != plan.stored.name and op.reduction is None:
            schedule[op.name].compute_inline()
    order_staged(schedule, shape, config)
    by_library = config.get("kernel", TILES) != TILES
    in_blocks = by_library or config.get("k_block", WHOLE) != WHOLE
    looped = config.get("epilogue") == "looped" and not in_blocks
    whole = shape.by_tiles and plan.stored is plan.anchor
    stored, accumulator = _accumulator(schedule, shape, looped, whole)
    width = config["vectors"] * shape.lanes
    weights = None
    if config.get("pack"):
        pack = pack_weights if shape.blocks is None else pack_blocks
        weights = pack(schedule, shape, accumulator, config)
    panels = pack_lhs(schedule, shape, accumulator, config)
    if in_blocks:
        block = _block_stored(stored, shape, config, width)
        accumulator.compute_at(stored, block)
        place = call_library if by_library else _block_accumulator
        place(accumulator, shape, config, width)
    else:
        block, tiles, along, inner = _tile_stored(stored, shape, config, width)
        if looped:
            _spill(schedule[plan.anchor.name], stored, tiles[-1], shape)
        if whole:
            multiply_tiles(
                stored, shape, dict(zip((*shape.spatial, shape.vector), inner, strict=True)), config
            )
        else:
            accumulator.compute_at(stored, tiles[-1])
            if shape.blocks is None:
                steps = _tile_accumulator(accumulator, shape, config)
                fetch_weights(accumulator, weights, shape, steps, config)
            else:
                tile_blocks(accumulator, schedule[shape.blocks.name], shape, config)
            _finish(stored, shape, inner, looped or shape.by_tiles)
        fetch_image(stored, shape, tiles, along, config)
    place_lhs(panels, shape, stored, block, config)
    _place_producers(schedule, shape, stored, block, config)
    for op in plan.rest:
        schedule_plain(schedule[op.name], shape.lanes, inline=True, across=True)


def schedule_products(schedule: Schedule, shape: TileShape, config: Choices) -> Stage:
    """Schedule the register tiles of an anchor that another stage computes in its blocks, and return the
    stage to place there."""
    config = {"tail": "overlap", "pack": shape.weights is not None, **config}
    config |= {"row_block": WHOLE, "vector_block": WHOLE, "parallel": False}
    stored, accumulator = _accumulator(schedule, shape)
    width = config["vectors"] * shape.lanes
    if config["pack"]:
        pack_weights(schedule, shape, accumulator, config)
    _, tiles, _, inner = _tile_stored(stored, shape, config, width)
    accumulator.compute_at(stored, tiles[-1])
    _tile_accumulator(accumulator, shape, config)
    _finish(stored, shape, inner, looped=False)
    return stored


def _accumulator(
    schedule: Schedule, shape: TileShape, looped: bool = False, whole: bool = False
) -> tuple[Stage, Stage]:
    """Return the stage that is stored, and the one that accumulates in registers: the same where a ``whole`` tile is
    stored at once."""
    plan = shape.structure
    if whole:
        return schedule[plan.anchor.name], schedule[plan.anchor.name]
    if plan.stored is plan.anchor or looped:
        cache = schedule.cache_write(schedule[plan.anchor.name].tensor, "local")
        return schedule[plan.stored.name], schedule[cache]
    accumulator = schedule[plan.anchor.name]
    accumulator.set_scope("local")
    return schedule[plan.stored.name], accumulator


def _tile_stored(
    stage: Stage, shape: TileShape, config: Choices, width: Any
) -> tuple[IterVar, list[IterVar], IterVar, list[IterVar]]:
    """Return split, reorder and parallelise the stored stage.

    Returns the block loop, the tile loops, which of them walks along rows, and the loops in a tile.
    """
    axes = _named(stage, shape)
    tail = config["tail"]
    vector_tail = "peel" if config.get("pack") else tail
    vector_tiles, columns = stage.split(axes[shape.vector], factor=width, tail=vector_tail)
    outer, inner = {}, {}
    for axis, knob in zip(reversed(shape.spatial), ("rows", "outer_rows"), strict=False):
        outer[axis], inner[axis] = stage.split(axes[axis], factor=config[knob], tail=tail)
    row_tiles = [outer[axis] for axis in shape.spatial]
    row_blocks: list[IterVar] = []
    if shape.spatial:
        row_blocks, row_tiles[0] = _blocks(stage, row_tiles[0], config["row_block"])
    vector_blocks, vector_tiles = _blocks(stage, vector_tiles, config["vector_block"])
    blocks = _ordered(stage, vector_blocks, row_blocks, config.get("block_order", "rows") == "vector")
    blocks = [*(axes[axis] for axis in shape.batch), *blocks]
    if not blocks:  # everything is one block: a loop of one iteration to attach to
        one, vector_tiles = stage.split(vector_tiles, nparts=1)
        blocks = [one]
    tiles = _ordered(stage, [vector_tiles], row_tiles, config.get("tile_order", "vector") == "vector")
    stage.reorder(*blocks, *tiles, *(inner[axis] for axis in shape.spatial), columns)
    block = stage.fuse(*blocks) if len(blocks) > 1 else blocks[0]
    stage.parallel(block, when=config["parallel"])
    if config.get("stage", STORED) == INLINE:
        rows = {
            axis: config[knob]
            for axis, knob in zip(reversed(shape.spatial), ("rows", "outer_rows"), strict=False)
        }
        peel_border(stage, shape, dict(zip(shape.spatial, row_tiles, strict=True)), rows)
    along = row_tiles[-1] if row_tiles else tiles[-1]
    return block, tiles, along, [*(inner[axis] for axis in shape.spatial), columns]


def _blocks(stage: Stage, loop: IterVar, size: Any, tail: Any = "peel") -> tuple[list[IterVar], IterVar]:
    """Return a loop over blocks of ``size`` iterations of a loop, and the loop in them; no such loop if
    one block is all."""
    if not isinstance(size, KnobValue) and size == WHOLE:
        return [], loop
    block, inside = stage.split(loop, factor=maximum(size, (size == WHOLE) * loop.extent), tail=tail)
    return [block], inside


def _ordered(stage: Stage, loops: list[IterVar], others: list[IterVar], outside: Any) -> list[IterVar]:
    """Return the order with up to one loop outside of the ``others`` or inside of them.

    A knob that says which need not change the steps: the loop is split in two, one of which does not repeat.
    """
    if not loops or not others or not isinstance(outside, KnobValue):
        return [*loops, *others] if outside else [*others, *loops]
    (loop,) = loops
    outer, inner = stage.split(loop, factor=maximum(1, loop.extent - outside * loop.extent))
    return [outer, *others, inner]


def _tile_accumulator(stage: Stage, shape: TileShape, config: Choices) -> IterVar | None:
    """Order the loops: reduction outside, rows unrolled, vectors innermost; return the innermost one that repeats,
    where there is one."""
    axes = _named(stage, shape)
    if shape.by_tiles:
        multiply_tiles(stage, shape, axes, config)
        return None
    assert isinstance(stage.op, ComputeOp)
    reduce = dict(zip(_reduce_names(shape), stage.op.reduce_axis, strict=True))
    steps = shape.extents[shape.main] if shape.taps is not None else config["unroll"] * shape.group
    main, step = stage.split(reduce[shape.main], factor=steps)
    window = [reduce[axis] for axis in shape.window]
    vectors, lanes = stage.split(axes[shape.vector], factor=shape.lanes)
    loops = _ordered(stage, [main], window, config.get("reduce_order", "window") == "channel")
    rows = [axes[axis] for axis in shape.spatial]
    batch = [axes[axis] for axis in shape.batch]
    stage.reorder(*batch, *loops, step, *rows, vectors, lanes)
    prefetch_lhs(stage, shape, loops[0], config)
    for loop in window:
        stage.unroll(loop, when=config.get("unroll_window", False))
    unrolled = [*rows, vectors]
    if shape.taps is not None:
        tensorize_taps(stage, shape.taps, step, lanes)
    else:
        step = step if shape.dot is None else tensorize_group(stage, shape.dot, step, lanes)
        unrolled = [step, *unrolled]
    for loop in unrolled:
        stage.unroll(loop)
    if shape.dot is None and shape.taps is None:
        stage.vectorize(lanes)
    return main


def _block_stored(stage: Stage, shape: TileShape, config: Choices, width: Any) -> IterVar:
    """Split the stored stage into blocks and run the epilogue over each; returns the block loop."""
    axes = _named(stage, shape)
    tail = config["tail"]
    rows, columns = [axes[axis] for axis in shape.spatial], axes[shape.vector]
    row_blocks: list[IterVar] = []
    if rows:
        size = config["row_block"] * config["outer_rows" if len(rows) == 2 else "rows"]
        row_blocks, rows[0] = _blocks(stage, rows[0], size, tail)
    vector_tail = "peel" if config.get("pack") else tail
    vector_blocks, columns = _blocks(stage, columns, config["vector_block"] * width, vector_tail)
    blocks = _ordered(stage, vector_blocks, row_blocks, config.get("block_order", "rows") == "vector")
    blocks = [*(axes[axis] for axis in shape.batch), *blocks]
    stage.reorder(*blocks, *rows, columns)
    if not blocks:  # everything is one block: a loop of one iteration to attach to
        one, rest = stage.split(rows[0] if rows else columns, nparts=1)
        rows, columns = ([rest, *rows[1:]], columns) if rows else ([], rest)
        blocks = [one]
    block = stage.fuse(*blocks) if len(blocks) > 1 else blocks[0]
    stage.parallel(block, when=config["parallel"])
    stage.vectorize(stage.split(columns, factor=shape.lanes)[1])
    return block


def _block_accumulator(stage: Stage, shape: TileShape, config: Choices, width: Any) -> None:
    """Order the loops: blocks of the reduction outside, then tiles, then the steps of a block with sums in
    registers."""
    axes = _named(stage, shape)
    assert isinstance(stage.op, ComputeOp)
    reduce = dict(zip(_reduce_names(shape), stage.op.reduce_axis, strict=True))
    vector_tiles, columns = stage.split(axes[shape.vector], factor=width)
    vectors, lanes = stage.split(columns, factor=shape.lanes)
    outer, inner = {}, {}
    for axis, knob in zip(reversed(shape.spatial), ("rows", "outer_rows"), strict=False):
        outer[axis], inner[axis] = stage.split(axes[axis], factor=config[knob])
    row_tiles, rows = [outer[axis] for axis in shape.spatial], [inner[axis] for axis in shape.spatial]
    blocks, steps = stage.split(reduce[shape.main], factor=config["k_block"])
    steps, step = stage.split(steps, factor=config["unroll"])
    tiles = _ordered(stage, [vector_tiles], row_tiles, config.get("tile_order", "vector") == "vector")
    batch = [axes[axis] for axis in shape.batch]
    window = [reduce[axis] for axis in shape.window]
    loops = _ordered(stage, [steps], window, config.get("reduce_order", "window") == "channel")
    stage.reorder(*batch, blocks, *tiles, *loops, step, *rows, vectors, lanes)
    prefetch_lhs(stage, shape, loops[0], config)
    for loop in (step, *rows, vectors):
        stage.unroll(loop)
    stage.vectorize(lanes)


def _reduce_names(shape: TileShape) -> list[str]:
    return [axis.name for axis in shape.structure.anchor.reduce_axis]


def _spill(stage: Stage, stored: Stage, tile: IterVar, shape: TileShape) -> None:
    """Write the accumulators of a tile to scratch memory, for an epilogue that loops over them."""
    stage.compute_at(stored, tile)
    stage.set_scope("local")
    axes = _named(stage, shape)
    vectors, lanes = stage.split(axes[shape.vector], factor=shape.lanes)
    for loop in (*(axes[axis] for axis in shape.spatial), vectors):
        stage.unroll(loop)
    stage.vectorize(lanes)


def _finish(stage: Stage, shape: TileShape, inner: list[IterVar], looped: bool) -> None:
    """Vectorise the columns of the stored tile, and unroll its rows unless the epilogue is long."""
    vectors, lanes = stage.split(inner[-1], factor=shape.lanes)
    for loop in (*(() if looped else inner[:-1]), vectors):
        stage.unroll(loop)
    stage.vectorize(lanes)


def _place_producers(
    schedule: Schedule, shape: TileShape, stored: Stage, block: IterVar, config: Choices
) -> None:
    """Inline views; store padding and prologues whole, once a block, or not at all."""
    plan = shape.structure
    place = config.get("stage", STORED)
    in_block, inline = place == "block", place == INLINE
    for op in reversed(plan.producers):  # readers first
        stage = schedule[op.name]
        if op is shape.blocks:
            continue
        if op.reduction is not None and shape.blocks is not None:
            sum_inputs(schedule, stage, shape.lanes)
        elif op.reduction is not None:
            schedule_plain(stage, shape.lanes, inline=False)
        elif op.name not in shape.staged or inline:
            stage.compute_inline()
        else:
            at_block = op.name not in shape.whole and bool(in_block)
            if at_block:
                stage.compute_at(stored, block)
            if is_packing(op, plan.anchor):
                schedule_patches(stage, shape.lanes, parallel=not at_block)
            else:
                schedule_plain(stage, shape.lanes, inline=False, parallel=not at_block)


def _named(stage: Stage, shape: TileShape) -> dict[str, IterVar]:
    """Return the data axes of a stage by the names that the anchor gives them."""
    assert isinstance(stage.op, ComputeOp)
    names = [axis.name for axis in shape.structure.anchor.axis]
    return dict(zip(names, stage.op.axis, strict=True))


__all__ = ["schedule_products", "schedule_tile"]
