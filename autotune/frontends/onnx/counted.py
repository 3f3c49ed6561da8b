"""Values whose extent along one axis is known only when they are computed: what may read them as they are.

Such a value is as long as it can become, and another value says how much of it is there. What moves or converts
elements one by one leaves it so; any other reader would take what is not there for elements. It is refused here, and
masked where lengths count as sizes (:mod:`autotune.frontends.onnx.lengths`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.errors import ComputedLengthError
from autotune.graph import ops
from autotune.graph.ir import ABSENT, Node, TensorType

_CARRIERS = (
    "Cast, Gather, GatherND, Identity, Slice and Split along other axes, Squeeze, Transpose, Unsqueeze, and \
elementwise operators with constants of one element"
)


@dataclass(frozen=True)
class Counted:
    """Along ``axis`` there are as many elements as the value ``count`` says, an int64 of one element."""

    axis: int
    count: str


def carried(
    node: Node, types: Mapping[str, TensorType], known: Mapping[str, Counted], constants: Mapping[str, object]
) -> dict[str, Counted]:
    """Return the counts of the results of a node; raises ComputedLengthError where it looks along such an axis."""
    positions = [n for n, value in enumerate(node.inputs) if value in known]
    if not positions:
        return {}
    first = known[node.inputs[positions[0]]]
    axis = _axis(node, positions, first.axis, types, constants)
    if axis is None:
        value = node.inputs[positions[0]]
        raise ComputedLengthError(
            f"node {node.name!r} ({node.op}) reads {value!r}, whose extent along axis {first.axis} is known only when "
            f"it is computed\n  it may be an output of the model, or read by {_CARRIERS}"
        )
    return {output: replace(first, axis=axis) for output in node.present_outputs}


def _axis(
    node: Node,
    positions: Sequence[int],
    axis: int,
    types: Mapping[str, TensorType],
    constants: Mapping[str, object],
) -> int | None:
    """Return the position of the axis in the results; None where the node is no carrier."""
    attrs, first = node.attrs, types[node.inputs[positions[0]]]
    others = [v for n, v in enumerate(node.inputs) if n not in positions and v != ABSENT]
    if len(positions) > 1:
        return None
    if ops.get(node.op).pointwise:
        alone = all(v in constants and types[v].size == 1 for v in others)
        shift = types[node.outputs[0]].rank - first.rank
        return axis + shift if alone else None
    if node.op in ("Identity", "Cast"):
        return axis
    along = attrs.get("axis", 0)
    assert isinstance(along, int)
    if node.op == "Gather" and positions == [1]:
        return along + axis
    if node.op == "Gather":
        inserted = types[node.inputs[1]].rank
        return None if along == axis else axis if axis < along else axis + inserted - 1
    if node.op == "GatherND" and positions == [1]:
        return axis if axis < first.rank - 1 else None
    if node.op == "Split":
        return axis if along != axis else None
    axes = attrs.get("axes", attrs.get("perm", ()))
    assert isinstance(axes, tuple)
    if node.op == "Transpose":
        return axes.index(axis)
    if node.op == "Slice":
        return axis if axis not in axes else None
    if node.op == "Squeeze":
        return axis - sum(a < axis for a in axes) if axis not in axes else None
    if node.op == "Unsqueeze":
        kept = [a for a in range(first.rank + len(axes)) if a not in axes]
        return kept[axis]
    return None


__all__ = ["Counted", "carried"]
