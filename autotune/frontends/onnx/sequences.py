"""Sequences and optionals: lists of values that are known when a model is imported, so that nothing is left of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from autotune.frontends.onnx.budget import MAX_PARTS, check_count
from autotune.frontends.onnx.nodes import OnnxNode
from autotune.frontends.onnx.scope import Importing
from autotune.graph.ir import ABSENT


def is_of_sequences(op: str, first: str, model: Importing) -> bool:
    """Return whether a node with this first input is imported here."""
    return op in SEQUENCES or (op == "Identity" and first in model.sequences)


def sequence_node(node: OnnxNode, model: Importing) -> None:
    """Import a node that makes or takes sequences or optionals.

    Raises:
        UnknownParameterError: a position or a division is not known when the model is compiled.
        ModelImportError: there is no such element, or something else than a sequence is given.
    """
    SEQUENCES.get(node.op, _optional)(node, model)


def _elements(node: OnnxNode, model: Importing, index: int = 0) -> list[str]:
    found = model.sequences.get(node.input(index))
    if found is None:
        raise node.fail(
            f"input {node.input(index)!r} is no sequence that is known when the model is compiled"
        )
    return found


def _known(
    node: OnnxNode, model: Importing, index: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]] | None:
    """Return the values of an optional input that must be constant; None where it is absent."""
    value = node.input(index)
    if value == ABSENT:
        return None
    array = model.constants.get(value)
    if array is None:
        raise node.unknown(f"input {value!r}", value)
    return np.asarray(array, np.int64)


def _position(node: OnnxNode, model: Importing, index: int, least: int, most: int) -> int | None:
    """Return a position, counted from the end where it is negative."""
    found = _known(node, model, index)
    if found is None:
        return None
    position = int(found.reshape(-1)[0])
    if not least <= position <= most:
        raise node.fail(f"position {position} is out of range; it may be from {least} to {most}")
    return position


def _construct(node: OnnxNode, model: Importing) -> None:
    model.sequences[node.outputs[0]] = list(node.inputs)


def _insert(node: OnnxNode, model: Importing) -> None:
    found = list(_elements(node, model))
    position = _position(node, model, 2, -len(found), len(found))
    check_count(node, len(found) + 1, MAX_PARTS, "elements of a sequence")
    found.insert(len(found) if position is None else position, node.inputs[1])
    model.sequences[node.outputs[0]] = found


def _erase(node: OnnxNode, model: Importing) -> None:
    found = list(_elements(node, model))
    position = _position(node, model, 1, -len(found), len(found) - 1)
    del found[-1 if position is None else position]
    model.sequences[node.outputs[0]] = found


def _at(node: OnnxNode, model: Importing) -> None:
    found = _elements(node, model)
    position = _position(node, model, 1, -len(found), len(found) - 1)
    model.alias(found[position or 0], node.outputs[0])


def _length(node: OnnxNode, model: Importing) -> None:
    model.define(node.outputs[0], np.array(len(_elements(node, model)), np.int64))


def _split(node: OnnxNode, model: Importing) -> None:
    """Split into equal parts where the division is a number, those of its sizes where it is a list."""
    shape = model.type_of(node.inputs[0]).shape
    axis, sizes = int(node.attrs.get("axis", 0)) % max(len(shape), 1), _known(node, model, 1)
    extent, keep = shape[axis], sizes is not None or bool(node.attrs.get("keepdims", 1))
    if sizes is None or not sizes.ndim:
        step = 1 if sizes is None else int(sizes)
        if step < 1:
            raise node.fail(f"parts of {step} elements")
        check_count(node, -(-extent // step), MAX_PARTS, "parts")
        parts = [min(step, extent - begin) for begin in range(0, extent, step)]
    else:
        parts = [int(size) for size in sizes]
    names = [model.fresh(f"{node.outputs[0]}.{number}") for number in range(len(parts))]
    model.append("Split", [node.inputs[0]], names, {"axis": axis, "split": tuple(parts)}, node.name)
    if not keep:
        kept = shape[:axis] + shape[axis + 1 :]
        whole, names = names, [f"{name}.element" for name in names]
        for source, name in zip(whole, names, strict=True):
            model.append("Reshape", [source], [name], {"shape": kept}, name)
    model.sequences[node.outputs[0]] = names


def _concat(node: OnnxNode, model: Importing) -> None:
    parts, axis = _elements(node, model), int(node.attrs["axis"])
    if not parts:
        raise node.fail("the sequence is empty: nothing to join")
    if node.attrs.get("new_axis", 0):
        rank = model.type_of(parts[0]).rank + 1
        stacked = [model.fresh(f"{node.outputs[0]}.{number}") for number in range(len(parts))]
        for source, name in zip(parts, stacked, strict=True):
            shape = list(model.type_of(source).shape)
            shape.insert(axis % rank, 1)
            model.append("Reshape", [source], [name], {"shape": tuple(shape)}, name)
        parts, axis = stacked, axis % rank
    model.append("Concat", list(parts), [node.outputs[0]], {"axis": axis}, node.name)


def _optional(node: OnnxNode, model: Importing) -> None:
    """Take the optional itself for what it has; one without is known to be empty."""
    if node.input(0) == ABSENT:
        model.sequences[node.outputs[0]] = None
    else:
        model.alias(node.inputs[0], node.outputs[0])


def _has_element(node: OnnxNode, model: Importing) -> None:
    value = node.input(0)
    empty = value == ABSENT or model.sequences.get(value, []) is None
    model.define(node.outputs[0], np.array(not empty))


def _get_element(node: OnnxNode, model: Importing) -> None:
    if model.sequences.get(node.inputs[0], []) is None:
        raise node.fail(f"the optional {node.inputs[0]!r} is empty")
    model.alias(node.inputs[0], node.outputs[0])


SEQUENCES: Mapping[str, Callable[[OnnxNode, Importing], None]] = {
    "ConcatFromSequence": _concat,
    "Optional": _optional,
    "OptionalGetElement": _get_element,
    "OptionalHasElement": _has_element,
    "SequenceAt": _at,
    "SequenceConstruct": _construct,
    "SequenceEmpty": _construct,
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _length,
    "SplitToSequence": _split,
}

__all__ = ["SEQUENCES", "is_of_sequences", "sequence_node"]
