"""The peak rate of a CPU's arithmetic by the type of its operands: vectors, dot products, or tiles of a matrix unit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.target import ITEM_BYTES
from autotune.te.dot_products import DOT_PRODUCTS, DotProduct

if TYPE_CHECKING:
    from autotune.target import Target
    from cost_models.machine import Machine

_HALVES = ("float16", "bfloat16")
"""Stored so; arithmetic is float32, unless there is an instruction for sums of their products."""


def peak(machine: Machine, target: Target, dtype: str) -> float:
    """Return operations a second of all workers on elements of a dtype, a multiply-add as two; "" is float32."""
    kind = dtype or "float32"
    fitting = [
        _products(machine, each)
        for each in DOT_PRODUCTS
        if each.arch == target.arch
        and set(each.requires) <= set(target.features)
        and kind in (each.left, each.right)
    ]
    plain = "float32" if kind in _HALVES or kind not in ITEM_BYTES else kind
    products = max(machine.arithmetic_ports * target.lanes(plain), *fitting, 0.0)
    return 2.0 * products * machine.hertz * machine.threads


def _products(machine: Machine, dot: DotProduct) -> float:
    """Return products that an instruction makes and adds in a cycle of one core."""
    products = dot.rows * dot.lanes * dot.group * dot.depth
    if dot.rows > 1:
        return products / machine.tile_cycles
    return products * (machine.pair_ports if dot.of_pairs else machine.arithmetic_ports)


__all__ = ["peak"]
