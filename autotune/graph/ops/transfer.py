"""The operator between devices.

Transfer(x): attribute device, a name such as "cpu:1" -> the same elements in memory of that device. Programs of several
devices are cut there: it is in no dispatch, and nothing is computed across it.
"""

from __future__ import annotations

from autotune.graph.ir import Array, Attrs, TensorType
from autotune.graph.ops.common import at
from autotune.graph.ops.definition import Arrays, Attribute, Types
from autotune.graph.ops.registry import define


def _infer(types: Types, _attrs: Attrs) -> list[TensorType]:
    return [at(types, 0).dense]


def _reference(arrays: Arrays, _attrs: Attrs) -> list[Array]:
    return [at(arrays, 0)]


define(
    "Transfer",
    "movement",
    (1, 1),
    _infer,
    _reference,
    attributes={"device": Attribute("str", required=True)},
    in_onnx=False,
    crosses=True,
)
