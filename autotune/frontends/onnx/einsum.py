"""Einsum as transposes, sums, and matrix products of two operands at a time.

Letters of both operands and of the result are batch dimensions of the product, those of both operands alone are summed
by it, those of one operand are its rows or columns. A letter that one operand alone has and nothing needs is summed
beforehand. Three and more operands are taken in the order that numpy.einsum_path finds.
"""

from __future__ import annotations

import math
import string
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.frontends.onnx.emit import Composer, Emitter
from autotune.frontends.onnx.nodes import OnnxNode
from autotune.te.dtypes import is_float

_ELLIPSIS = "..."
_UNNAMED = "0123456789"
"""Letters of dimensions that an ellipsis stands for; the last ones are aligned."""


@dataclass(frozen=True)
class _Term:
    """A value with a letter a dimension."""

    value: str
    letters: str


def einsum(node: OnnxNode, emit: Emitter) -> None:
    """Add the nodes of an Einsum."""
    inputs, result = _parsed(node)
    extents: dict[str, int] = {}
    for value, letters in zip(node.inputs, inputs, strict=True):
        for letter, extent in zip(letters, emit.type_of(value).shape, strict=True):
            known = extents.setdefault(letter, extent)
            if extent != known and 1 not in (extent, known):
                raise node.fail(f"dimension {letter!r} has {known} and {extent} elements")
            extents[letter] = max(known, extent) if 0 not in (known, extent) else 0
    algebra = _Algebra(emit, extents)
    terms = [_Term(value, letters) for value, letters in zip(node.inputs, inputs, strict=True)]
    # A repeated letter is a diagonal; a dimension of one element beside longer ones is repeated.
    terms = [algebra.without_units(algebra.diagonal(term)) for term in terms]
    for first, second in _order(inputs, result, extents):
        left, right = terms[first], terms[second]
        terms = [term for n, term in enumerate(terms) if n not in (first, second)]
        needed = set(result).union(*(term.letters for term in terms))
        terms.append(algebra.product(left, right, needed))
    algebra.finish(terms[0], result, node.outputs[0])


def _parsed(node: OnnxNode) -> tuple[list[str], str]:
    """Return letters of each operand and of the result, ellipses written out."""
    equation = "".join(str(node.attrs.get("equation", "")).split())
    left, arrow, right = equation.partition("->")
    operands = left.split(",")
    if len(operands) != len(node.inputs):
        raise node.fail(f"equation {equation!r} has {len(operands)} operands, the node {len(node.inputs)}")
    found = []
    for number, (text, value) in enumerate(zip(operands, node.inputs, strict=True)):
        rank = node.scope.type_of(value).rank
        unnamed = rank - len(text.replace(_ELLIPSIS, ""))
        if (_ELLIPSIS in text and not 0 <= unnamed <= len(_UNNAMED)) or (_ELLIPSIS not in text and unnamed):
            raise node.fail(
                f"equation {equation!r}: operand {number} has {rank} dimensions, not those of {text!r}"
            )
        found.append(text.replace(_ELLIPSIS, _UNNAMED[len(_UNNAMED) - unnamed :] if unnamed else ""))
    every = Counter("".join(found))
    unnamed_letters = "".join(letter for letter in _UNNAMED if letter in every)
    if arrow:
        result = right.replace(_ELLIPSIS, unnamed_letters)
    else:
        once = sorted(letter for letter, count in every.items() if count == 1 and letter.isalpha())
        result = unnamed_letters + "".join(once)
    allowed = string.ascii_letters + _UNNAMED
    wrong = [letter for letter in (*every, *result) if letter not in allowed]
    missing = [letter for letter in result if letter not in every or result.count(letter) > 1]
    if wrong or missing:
        what = (
            f"{wrong[0]!r} is no letter"
            if wrong
            else f"the result has {missing[0]!r} twice or from no operand"
        )
        raise node.fail(f"equation {equation!r}: {what}")
    return found, result


def _order(inputs: Sequence[str], result: str, extents: Mapping[str, int]) -> list[tuple[int, int]]:
    """Return the order of multiplications, two terms each; their product is the last term then."""
    if len(inputs) < 3:
        return [(0, 1)] * (len(inputs) - 1)
    letters = dict(zip(sorted(extents), string.ascii_letters, strict=False))
    written = ["".join(letters[letter] for letter in operand) for operand in inputs]
    equation = f"{','.join(written)}->{''.join(letters[letter] for letter in result)}"
    arrays = [np.broadcast_to(0.0, [extents[letter] for letter in operand]) for operand in inputs]
    path = np.einsum_path(equation, *arrays, optimize=("greedy", 0))[0][1:]
    found: list[tuple[int, int]] = []
    left = len(inputs)
    for step in path:
        picked = sorted(step)
        while len(picked) > 1:  # more than two at a time are taken two by two
            found.append((picked[0], picked[1]))
            left -= 1
            picked = [p - 2 for p in picked[2:]] + [left - 1]
    return found


@dataclass(frozen=True)
class _Algebra:
    emit: Emitter
    extents: Mapping[str, int]

    def diagonal(self, term: _Term) -> _Term:
        """Return the elements where the places along dimensions of one letter are the same."""
        while len(set(term.letters)) < len(term.letters):
            letter = next(a for a in term.letters if term.letters.count(a) > 1)
            others = [n for n, a in enumerate(term.letters) if a != letter]
            mine = [n for n, a in enumerate(term.letters) if a == letter]
            moved = self._transposed(term.value, [*others, *mine])
            shape = self.emit.type_of(moved).shape
            extent, count = shape[-1], len(mine)
            step = sum(extent**power for power in range(count))
            flat = self.emit("Reshape", [moved], {"shape": (*shape[: len(others)], extent**count)}, "flat")
            axis = len(others)
            cut = {"axes": (axis,), "starts": (0,), "ends": (extent**count,), "steps": (step,)}
            value = self.emit("Slice", [flat], cut, "diagonal")
            term = _Term(value, "".join(term.letters[n] for n in others) + letter)
        return term

    def without_units(self, term: _Term) -> _Term:
        """Return less dimensions of one element where other operands have more."""
        shape = self.emit.type_of(term.value).shape
        gone = [n for n, a in enumerate(term.letters) if shape[n] == 1 and self.extents[a] != 1]
        if not gone:
            return term
        letters = "".join(a for n, a in enumerate(term.letters) if n not in gone)
        return _Term(self.emit("Squeeze", [term.value], {"axes": tuple(gone)}), letters)

    def product(self, a: _Term, b: _Term, needed: Collection[str]) -> _Term:
        """Return two terms multiplied, and summed over what is not needed."""
        a = self.summed(a, {*needed, *b.letters})
        b = self.summed(b, {*needed, *a.letters})
        both = [letter for letter in a.letters if letter in b.letters]
        batch = [letter for letter in both if letter in needed]
        inner = [letter for letter in both if letter not in needed]
        rows = [letter for letter in a.letters if letter not in b.letters]
        columns = [letter for letter in b.letters if letter not in a.letters]
        multiplies = is_float(self.emit.type_of(a.value).dtype) and inner and (rows or columns)
        if not multiplies:
            letters = "".join([*batch, *rows, *columns, *inner])
            value = self.emit("Mul", [self.aligned(a, letters), self.aligned(b, letters)])
            return self.summed(_Term(value, letters), needed)
        left = self.arranged(a, batch, rows, inner)
        right = self.arranged(b, batch, inner, columns)
        made = self.emit("MatMul", [left, right])
        letters = "".join([*batch, *rows, *columns])
        shape = tuple(self.extents[letter] for letter in letters)
        if self.emit.type_of(made).shape != shape:
            made = self.emit("Reshape", [made], {"shape": shape}, "apart")
        return _Term(made, letters)

    def arranged(self, term: _Term, batch: Sequence[str], *sides: Sequence[str]) -> str:
        """Return the term with its batch dimensions first, and two more that its other letters are joined to."""
        order = [term.letters.index(letter) for letter in (*batch, *sides[0], *sides[1])]
        value = self._transposed(term.value, order)
        shape = [self.extents[letter] for letter in batch]
        shape += [math.prod(self.extents[letter] for letter in side) for side in sides]
        if self.emit.type_of(value).shape == tuple(shape):
            return value
        return self.emit("Reshape", [value], {"shape": tuple(shape)}, "joined")

    def aligned(self, term: _Term, letters: str) -> str:
        """Return the term with a dimension for each of ``letters``, of one element for those that it lacks."""
        value = self._transposed(term.value, [term.letters.index(a) for a in letters if a in term.letters])
        lacking = tuple(n for n, a in enumerate(letters) if a not in term.letters)
        return self.emit("Unsqueeze", [value], {"axes": lacking}) if lacking else value

    def summed(self, term: _Term, needed: Collection[str]) -> _Term:
        """Return the term summed over the letters that are not needed."""
        gone = tuple(n for n, a in enumerate(term.letters) if a not in needed)
        if not gone:
            return term
        value = self.emit("ReduceSum", [term.value], {"axes": gone, "keepdims": 0}, "sum")
        return _Term(value, "".join(a for a in term.letters if a in needed))

    def finish(self, term: _Term, result: str, output: str) -> None:
        """Make the last term the result."""
        term = self.summed(term, result)
        lacking = [a for a in result if a not in term.letters]  # of one element in each operand
        value = self.aligned(term, result) if lacking else term.value
        letters = result if lacking else term.letters
        order = tuple(letters.index(a) for a in result)
        if order == tuple(range(len(order))):
            self.emit("Identity", [value], {}, "", output)
        else:
            self.emit("Transpose", [value], {"perm": order}, "", output)

    def _transposed(self, value: str, order: Sequence[int]) -> str:
        if list(order) == list(range(len(order))):
            return value
        return self.emit("Transpose", [value], {"perm": tuple(order)})


COMPOSED_EINSUM: Mapping[str, Composer] = {"Einsum": einsum}

__all__ = ["COMPOSED_EINSUM", "einsum"]
