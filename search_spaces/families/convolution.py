"""Direct convolutions: a register tile of pixels × output channels, weights packed in visiting order.

Knobs: those of a contraction but ``kernel``, with ``outer_rows`` (a second spatial axis in the register tile),
``reduce_order`` (window or channels outermost) and ``stage`` (where the padded input is stored), and for
images of a few planes ``stage_order`` (in which order). ``k_block`` counts input channels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.families import depthwise
from search_spaces.families.contraction import pack_knob
from search_spaces.space import Space
from search_spaces.tile.blocked import k_block_constraint, k_block_knob
from search_spaces.tile.order import order_knob
from search_spaces.tile.tiled import stage_knob, tiled_space

if TYPE_CHECKING:
    from autotune.graph.program import AnyWorkload
    from autotune.target import Target
    from search_spaces.tile.shape import TileShape

FAMILY = "convolution"


def space(workload: AnyWorkload, target: Target, shape: TileShape) -> Space:
    """Return the schedules of a direct convolution around ``shape``."""
    if shape.taps is not None:
        return depthwise.space(workload, target, shape)
    # Without a window, what blocks would win has not been seen: 0.95 to 1.05 times as fast as without.
    windowed = any(shape.extents[axis] > 1 for axis in shape.window)
    blocks = k_block_knob(shape) if windowed and shape.dot is None else []
    rules = [k_block_constraint(shape, target)] if blocks else []
    knobs = [*pack_knob(shape), *blocks, *stage_knob(shape), *order_knob(shape)]
    return tiled_space(FAMILY, workload, target, shape, knobs, rules)


__all__ = ["FAMILY", "space"]
