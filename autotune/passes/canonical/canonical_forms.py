"""Softmax and normalisations that models write out become one operator, however they were written.

As one operator a row is read once and stays in registers or a cache near them; written out, each reduction and what
follows it is a dispatch that goes through memory. A group normalisation is written as one of instances between two
Reshapes, which only the order of axes that it came in allows: as one operator it has channels last as convolutions do.
:data:`FORMS` lists what is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from autotune.graph.ir import Array, Attr, Graph, Node
from autotune.passes.attributes import integer, ints
from autotune.passes.base import GraphPass
from autotune.passes.canonical.patterns import (
    Accepts,
    AnyConstant,
    AnyNumber,
    AnyValue,
    Either,
    Match,
    Matcher,
    Of,
    Pattern,
)
from autotune.passes.rewriter import Rewriter

_DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class Parameters:
    """Attributes of an operator, and its constants by what they are called."""

    attrs: Mapping[str, Attr]
    constants: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class CanonicalForm:
    """Values that fit ``pattern`` are what ``op`` makes of X, in their shape, and what ``parameters`` says, unless it
    refuses."""

    op: str
    pattern: Pattern
    parameters: Callable[[Graph, Match], Parameters | None]


@dataclass(frozen=True)
class CanonicalForms(GraphPass):
    """Convert values that fit one of the forms, the largest first, where nothing else reads what is inside."""

    name: ClassVar[str] = "canonical_forms"

    def apply(self, graph: Graph) -> Graph:
        if not {"ReduceSum", "ReduceMean", "InstanceNormalization"} & {node.op for node in graph.nodes}:
            return graph
        matcher, taken, found = Matcher.of(graph), set[str](), dict[str, _Found]()
        for node in reversed(graph.nodes):
            value = node.outputs[0]
            if value not in taken and graph.type_of(value).dtype in _DTYPES:
                form = next((f for form in FORMS if (f := _found(matcher, form, value))), None)
                if form is not None and taken.isdisjoint(form.inside):
                    found[value] = form
                    taken |= form.inside
        return _converted(graph, found) if found else graph


@dataclass(frozen=True)
class _Found:
    """A form, what it reads, its parameters and the values of its nodes."""

    op: str
    x: str
    parameters: Parameters
    inside: frozenset[str]


def _found(matcher: Matcher, form: CanonicalForm, value: str) -> _Found | None:
    match = matcher.match(form.pattern, value)
    parameters = None if match is None else form.parameters(matcher.graph, match)
    if match is None or parameters is None:
        return None
    inside = frozenset(node.outputs[0] for node in match.nodes)
    return _Found(form.op, match.values[X], parameters, inside)


def _converted(graph: Graph, found: Mapping[str, _Found]) -> Graph:
    """Return the graph with forms converted; nodes inside of a form go, as nothing reads them any more."""
    rewriter = Rewriter(graph)
    for node in rewriter.walk():
        (output, form) = node.outputs[0], found.get(node.outputs[0])
        if form is None:
            rewriter.keep(node)
            continue
        constants = [
            rewriter.constant(f"{output}.{name}", array) for name, array in form.parameters.constants.items()
        ]
        x, shape = rewriter.current(form.x), graph.type_of(output).shape
        x = x if rewriter.type_of(x).shape == shape else rewriter.reshape(x, *shape)
        rewriter.become(output, form.op, [x, *constants], form.parameters.attrs)
    return rewriter.finish()


# patterns -------------------------------------------------------------------------------------------


def _one_axis(graph: Graph, node: Node) -> bool:
    return len(ints(node, "axes")) == 1 and integer(node, "keepdims") == 1


def _last_axes(graph: Graph, node: Node) -> bool:
    axes, rank = ints(node, "axes"), graph.type_of(node.inputs[0]).rank
    return bool(axes) and axes == tuple(range(rank - len(axes), rank)) and integer(node, "keepdims") == 1


def _of(op: str, *operands: Pattern, accepts: Accepts | None = None) -> Of:
    return Of(op, operands, accepts)


def _mean_of(value: Pattern) -> Of:
    return _of("ReduceMean", value, accepts=_last_axes)


def _mean_square(value: Pattern) -> Of:
    return _mean_of(_of("Mul", value, value))


def _root(squares: Pattern) -> tuple[Pattern, Pattern]:
    """Return the root of a mean of squares and a small number, and one over it."""
    total = _of("Add", squares, EPSILON)
    real = _of("Sqrt", total)
    # A power of 1/2 differs from a root at minus infinity, which no mean of squares is.
    root = Either((real, _of("Where", _of("Equal", total, AnyNumber(-np.inf)), AnyNumber(np.inf), real)))
    others = _of("Div", AnyNumber(1.0), root), _of("Pow", total, AnyNumber(-0.5))
    return root, Either((_of("Reciprocal", root), *others))


def _over_root(value: Pattern, squares: Pattern) -> tuple[Pattern, Pattern]:
    """Return a value over a root, and the same times a scale that is multiplied by any part of it."""
    root, inverse = _root(squares)
    plain = Either((_of("Div", value, root), _of("Mul", value, inverse)))
    scaled = _of("Mul", value, SCALE)
    whole, part = _of("Mul", plain, SCALE), _of("Mul", value, _of("Mul", inverse, SCALE))
    return plain, Either((whole, part, _of("Mul", scaled, inverse), _of("Div", scaled, root)))


X, EPSILON, SCALE, BIAS = AnyValue(), AnyNumber(), AnyConstant(), AnyConstant()


def _over_sum(value: Pattern) -> Pattern:
    total = _of("ReduceSum", value, accepts=_one_axis)
    return Either((_of("Div", value, total), _of("Mul", value, _of("Reciprocal", total))))


SOFTMAX = _over_sum(_of("Exp", _of("Sub", X, _of("ReduceMax", X, accepts=_one_axis))))
SOFTMAX_WITHOUT_MAXIMUM = _over_sum(_of("Exp", X))
MEAN = _mean_of(X)
_SAME_MEAN = Either((MEAN, _mean_of(X)))
"""The same, or the same computed a second time."""
CENTRED = _of("Sub", X, MEAN)
_BY_MOMENTS = _of("Sub", _mean_square(X), _of("Mul", _SAME_MEAN, _SAME_MEAN))
VARIANCE = Either(
    (
        *map(_mean_square, (CENTRED, _of("Sub", X, _SAME_MEAN), _of("Sub", _SAME_MEAN, X))),
        *(_BY_MOMENTS, _of("Max", _BY_MOMENTS, AnyNumber(0.0)), _of("Relu", _BY_MOMENTS)),
    )
)
STANDARD, SCALED = _over_root(CENTRED, VARIANCE)
SHIFTED = _of("Add", Either((SCALED, STANDARD)), BIAS)
_FACTOR = _of("Mul", _root(VARIANCE)[1], SCALE)
AS_BATCH_NORM = _of("Add", _of("Mul", X, _FACTOR), _of("Sub", BIAS, _of("Mul", _SAME_MEAN, _FACTOR)))
"""As TensorFlow writes it: a factor and an offset for each row."""
RMS, RMS_SCALED = _over_root(X, _mean_square(X))
GROUP_SCALE, GROUP_BIAS = AnyConstant(), AnyConstant()
GROUPS = _of("InstanceNormalization", _of("Reshape", X), GROUP_SCALE, GROUP_BIAS)
GROUPED = _of("Reshape", GROUPS)
GROUPED_SCALED = _of("Mul", GROUPED, SCALE)
GROUPED_SHIFTED = _of("Add", Either((GROUPED_SCALED, GROUPED)), BIAS)


# what they become -------------------------------------------------------------------------------------


def _softmax(_: Graph, match: Match) -> Parameters | None:
    axes = {ints(node, "axes") for node in match.nodes if "axes" in node.attrs}
    return Parameters({"axis": axes.pop()[0]}) if len(axes) == 1 else None


def _normalised(graph: Graph, match: Match) -> Parameters | None:
    axes = {ints(node, "axes") for node in match.nodes if "axes" in node.attrs}
    if len(axes) > 1:
        return None
    axis, x = axes.pop()[0], graph.type_of(match.values[X])
    constants: dict[str, Array] = {"scale": np.ones((), x.dtype)}
    for name, pattern in (("scale", SCALE), ("bias", BIAS)):
        if pattern in match.values:
            array = graph.constants[match.values[pattern]]
            if not _fits(array.shape, x.shape[axis:]):
                return None
            own = array.shape[max(array.ndim - (x.rank - axis), 0) :]
            constants[name] = np.ascontiguousarray(array.reshape(own))
    epsilon = float(graph.constants[match.values[EPSILON]].reshape(()))
    return Parameters({"axis": axis, "epsilon": epsilon}, constants)


def _grouped(graph: Graph, match: Match) -> Parameters | None:
    """Return statistics of a group are those of an instance with one channel a group."""
    node = next(n for n in match.nodes if n.op == "InstanceNormalization")
    inner = graph.type_of(node.outputs[0])
    result = graph.type_of(match.values[GROUPED])
    if node.attrs["layout"] != "NCHW" or result.rank < 3 or result.shape[0] != inner.shape[0]:
        return None
    channels, groups = result.shape[1], inner.shape[1]
    if channels % groups:
        return None
    made = {
        name: np.repeat(graph.constants[match.values[pattern]], channels // groups)
        for name, pattern in (("scale", GROUP_SCALE), ("bias", GROUP_BIAS))
    }
    for name, pattern in (("scale", SCALE), ("bias", BIAS)):
        if pattern not in match.values:
            continue
        array = graph.constants[match.values[pattern]]
        if array.ndim > result.rank or not _is_along(
            array.reshape((1,) * (result.rank - array.ndim) + array.shape)
        ):
            return None
        numbers = array.reshape(-1)
        if name == "scale":
            made = {key: value * numbers for key, value in made.items()}
        else:
            made["bias"] = made["bias"] + numbers
    return Parameters({"num_groups": groups, "epsilon": node.attrs["epsilon"]}, made)


def _is_along(array: Array) -> bool:
    """Return whether all numbers are along axis 1."""
    return bool(array.size == array.shape[1])


def _fits(shape: tuple[int, ...], inner: tuple[int, ...]) -> bool:
    """Return whether a constant is the same for every row of extents ``inner``."""
    lead, own = shape[: max(len(shape) - len(inner), 0)], shape[max(len(shape) - len(inner), 0) :]
    full = inner[len(inner) - len(own) :]
    return set(lead) <= {1} and all(a in (1, b) for a, b in zip(own, full, strict=True))


FORMS = (
    CanonicalForm("Softmax", SOFTMAX, _softmax),
    CanonicalForm("Softmax", SOFTMAX_WITHOUT_MAXIMUM, _softmax),
    CanonicalForm("LayerNormalization", SHIFTED, _normalised),
    CanonicalForm("LayerNormalization", AS_BATCH_NORM, _normalised),
    CanonicalForm("LayerNormalization", SCALED, _normalised),
    CanonicalForm("LayerNormalization", STANDARD, _normalised),
    CanonicalForm("RMSNormalization", RMS_SCALED, _normalised),
    CanonicalForm("RMSNormalization", RMS, _normalised),
    CanonicalForm("GroupNormalization", GROUPED_SHIFTED, _grouped),
    CanonicalForm("GroupNormalization", GROUPED_SCALED, _grouped),
    CanonicalForm("GroupNormalization", GROUPED, _grouped),
)
"""The recognised forms, the larger of two that may fit first."""


__all__ = ["FORMS", "CanonicalForm", "CanonicalForms", "Parameters"]
