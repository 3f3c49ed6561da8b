"""If, Loop and Scan: branches and bodies in the place of their nodes, or as the body of a loop.

A condition that is known when a model is compiled chooses a branch. Of another one both become branches of which one
runs (:mod:`autotune.graph.ops.branch`), or where both are a few elementwise nodes both are computed and each result is
chosen. A branch that has no meaning at the sizes at hand is refused when it is chosen. Bodies of few nodes and steps
stand there for each step, and so do those whose shapes depend on the step; any other becomes one loop over its graph
(:mod:`autotune.graph.ops.loop`), of which steps behind the end are not computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.frontends.onnx.branches import Branches
from autotune.frontends.onnx.budget import MAX_PARTS, check_count
from autotune.frontends.onnx.diverging import ShapesDifferError
from autotune.frontends.onnx.nodes import OnnxNode
from autotune.frontends.onnx.repeated import Repeated
from autotune.frontends.onnx.scope import Importing
from autotune.frontends.onnx.subgraphs import with_rest
from autotune.graph.ir import ABSENT
from autotune.graph.ops.loop import ANY_NUMBER

CONTROL = ("If", "Loop", "Scan")
"""Operators that have graphs."""


def control(node: OnnxNode, graphs: Mapping[str, Any], model: Importing) -> None:
    """Add what a node becomes; ``graphs`` are its attributes that are graphs.

    Raises:
        UnknownParameterError: a condition or the number of steps depends on inputs, and decides shapes.
        ModelImportError: the node is not as ONNX defines it, or has steps without end.
    """
    wanted = {"If": ("then_branch", "else_branch")}.get(node.op, ("body",))
    missing = [name for name in wanted if name not in graphs]
    if missing:
        raise node.fail(f"attribute {missing[0]!r}, a graph, is missing")
    if node.op == "If":
        _if(node, graphs["then_branch"], graphs["else_branch"], model)
    elif node.op == "Loop":
        _loop(node, graphs["body"], model)
    elif model.opset >= 9:
        _scan(node, graphs["body"], model)
    else:
        _scan_of_batches(node, graphs["body"], model)


def _if(node: OnnxNode, then: Any, other: Any, model: Importing) -> None:
    condition = node.inputs[0]
    known = model.constants.get(condition)
    if known is not None:
        chosen = then if known.reshape(-1)[0] else other
        results, rest = with_rest(chosen, f"{node.name}.", [], model)
        if rest is not None:
            names = dict(zip(node.outputs, results, strict=False))
            raise ShapesDifferError(rest.named([], names), rest.reason)
        _name(node, results, model)
        return
    Branches(node, model).add(then, other)


def _name(node: OnnxNode, results: Sequence[str], model: Importing) -> None:
    """Give results the names of a node's outputs."""
    if len(results) < len(node.outputs):
        raise node.fail(f"it has {len(node.outputs)} outputs, its graph gives {len(results)}")
    for result, output in zip(results, node.outputs, strict=False):
        if output != ABSENT:
            model.alias(result, output)


def _loop(node: OnnxNode, body: Any, model: Importing) -> None:
    initial = node.inputs[2:]
    _check_body(node, body, len(initial) + 2, len(initial) + 1)
    collects = len(body.output) > len(initial) + 1
    trips, going, limit, first = None, True, ABSENT, ABSENT
    if node.input(0) != ABSENT:
        count = model.constants.get(node.inputs[0])
        if count is not None:
            trips = min(max(int(count.reshape(-1)[0]), 0), ANY_NUMBER)
        elif collects:
            raise node.unknown(f"the number of steps ({node.inputs[0]!r})", node.inputs[0])
        else:
            limit = node.inputs[0]
    if node.input(1) != ABSENT:
        condition = model.constants.get(node.inputs[1])
        if condition is not None:
            going = bool(condition.reshape(-1)[0])
        elif collects and trips is None:
            raise node.unknown(f"its first condition ({node.inputs[1]!r})", node.inputs[1])
        else:
            first = node.inputs[1]
    trips = trips if going else 0
    repeated = Repeated(node, body, model, initial, [], trips, counted=True, limit=limit, first=first)
    _name(node, repeated.results(), model)


def _check_body(node: OnnxNode, body: Any, takes: int, gives: int) -> None:
    if len(body.input) != takes or len(body.output) < gives:
        raise node.fail(
            f"its body takes {len(body.input)} values and gives {len(body.output)}; "
            f"it should take {takes} and give at least {gives}"
        )


def _scanned(node: OnnxNode, most: int) -> int:
    """Return the number of inputs that are scanned."""
    count = int(node.attrs["num_scan_inputs"])
    if not 1 <= count <= most:
        raise node.fail(f"num_scan_inputs is {count}, of {most} inputs")
    return count


def _scan(node: OnnxNode, body: Any, model: Importing) -> None:
    count = _scanned(node, len(node.inputs))
    states, scanned = node.inputs[: len(node.inputs) - count], node.inputs[len(node.inputs) - count :]
    _check_body(node, body, len(node.inputs), len(states))
    collected = len(body.output) - len(states)
    in_axes = node.attrs.get("scan_input_axes", (0,) * count)
    out_axes = node.attrs.get("scan_output_axes", (0,) * collected)
    for name, values, wanted in (
        ("scan_input_axes", in_axes, count),
        ("scan_output_axes", out_axes, collected),
    ):
        if len(values) != wanted:
            raise node.fail(f"{name} has {len(values)} elements, it should have {wanted}")
    ends = [
        *node.attrs.get("scan_input_directions", (0,) * count),
        *node.attrs.get("scan_output_directions", (0,) * collected),
    ]
    taken = [_moved(v, axis, 0, model) for v, axis in zip(scanned, in_axes, strict=True)]
    trips = {model.type_of(v).shape[0] for v in taken}
    if len(trips) != 1:
        raise node.fail(f"what it scans has {', '.join(map(str, sorted(trips)))} elements along its axes")
    repeated = Repeated(node, body, model, states, taken, trips.pop(), counted=False, from_end=ends)
    results = repeated.results()
    found = [_moved(v, 0, axis, model) for v, axis in zip(results[len(states) :], out_axes, strict=True)]
    _name(node, [*results[: len(states)], *found], model)


def _moved(value: str, source: int, target: int, model: Importing) -> str:
    """Return a value with one axis elsewhere."""
    rank = model.type_of(value).rank
    order = [axis for axis in range(rank) if axis != source % rank]
    order.insert(target % rank, source % rank)
    if order == list(range(rank)):
        return value
    name = model.fresh(f"{value}.moved")
    model.append("Transpose", [value], [name], {"perm": tuple(order)}, name)
    return name


def _scan_of_batches(node: OnnxNode, body: Any, model: Importing) -> None:
    """Scan of opset 8: one after another for each element of a batch, which is the first axis of all there is."""
    if node.input(0) != ABSENT:
        raise node.fail("lengths of sequences are not supported\n  export the model with opset 9 or later")
    given = node.inputs[1:]
    count = _scanned(node, len(given))
    states, scanned = given[: len(given) - count], given[len(given) - count :]
    _check_body(node, body, len(given), len(states))
    ends = [*node.attrs.get("directions", (0,) * count), *([0] * (len(body.output) - len(states)))]
    batch = model.type_of(given[0]).shape[0]
    check_count(node, batch, MAX_PARTS, "elements of a batch")
    found = []
    for number in range(batch):
        own = OnnxNode(node.op, f"{node.name}.{number}", node.inputs, node.outputs, node.attrs, node.scope)
        parts = [_taken_of(v, number, model) for v in given]
        trips = model.type_of(parts[len(states)]).shape[0] if scanned else 0
        repeated = Repeated(own, body, model, parts[: len(states)], parts[len(states) :], trips, False, ends)
        found.append([_batched(v, model) for v in repeated.results()])
    for results, output in zip(zip(*found, strict=True), node.outputs, strict=False):
        if output != ABSENT:
            model.append("Concat", list(results), [output], {"axis": 0}, node.name)


def _taken_of(value: str, number: int, model: Importing) -> str:
    cut, name = model.fresh(f"{value}.cut"), model.fresh(f"{value}.{number}")
    attrs = {"starts": (number,), "ends": (number + 1,), "axes": (0,)}
    model.append("Slice", [value], [cut], attrs, cut)
    model.append("Reshape", [cut], [name], {"shape": model.type_of(value).shape[1:]}, name)
    return name


def _batched(value: str, model: Importing) -> str:
    name = model.fresh(f"{value}.batch")
    model.append("Reshape", [value], [name], {"shape": (1, *model.type_of(value).shape)}, name)
    return name


__all__ = ["CONTROL", "control"]
