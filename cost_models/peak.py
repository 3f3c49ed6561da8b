"""The peak rate of a CPU's arithmetic by the type of its operands: vectors, dot products, or tiles of a matrix unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autotune.target import ITEM_BYTES
from autotune.te.dot_products import DOT_PRODUCTS

if TYPE_CHECKING:
    from autotune.target import Target
    from cost_models.machine import Machine

_HALVES = ("float16", "bfloat16")
"""Stored so; arithmetic is float32, unless there is an instruction for sums of their products."""


def peak(machine: Machine, target: Target, dtype: str) -> float:
    """Return operations a second of all workers on elements of a dtype, a multiply-add as two; "" is float32."""
    kind = dtype or "float32"
    vectors = machine.arithmetic_ports * _products(target, kind, tiles=False)
    products = max(vectors, _products(target, kind, tiles=True) / machine.tile_cycles)
    return 2.0 * products * machine.hertz * machine.threads


def _products(target: Target, dtype: str, *, tiles: bool) -> int:
    """Return products that one instruction on vectors, or on tiles, makes and adds; 0 without one on tiles."""
    fitting: Sequence[int] = [
        each.rows * each.lanes * each.group * each.depth
        for each in DOT_PRODUCTS
        if each.arch == target.arch
        and (each.rows > 1) is tiles
        and set(each.requires) <= set(target.features)
        and dtype in (each.left, each.right)
    ]
    plain = "float32" if dtype in _HALVES or dtype not in ITEM_BYTES else dtype
    return max([0 if tiles else target.lanes(plain), *fitting])


__all__ = ["peak"]
