"""The activations that recurrent operators of ONNX name, as operators of the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.frontends.onnx.nodes import OnnxNode
from autotune.graph.build import GraphBuilder


@dataclass(frozen=True)
class Activation:
    """One activation, ``name`` in lower case; ``alpha`` and ``beta`` are its parameters, 0 where it has none."""

    name: str
    alpha: float
    beta: float

    def add(self, builder: GraphBuilder, value: str) -> str:
        """Add the nodes of its result for a value."""
        return _KINDS[self.name].add(builder, value, self.alpha, self.beta)


@dataclass(frozen=True)
class _Kind:
    add: Callable[[GraphBuilder, str, float, float], str]
    alpha: float | None = None
    """Its default; None where there is no such parameter."""
    beta: float | None = None


def _scaled(builder: GraphBuilder, value: str, factor: float) -> str:
    return value if factor == 1 else builder.node("Mul", value, _number(builder, value, factor))


def _number(builder: GraphBuilder, value: str, number: float) -> str:
    name = f"{value}.{number!r}"
    if name not in builder.known:
        builder.constant(name, np.array(number, builder.type_of(value).dtype))
    return name


def _affine(builder: GraphBuilder, value: str, alpha: float, beta: float) -> str:
    return builder.node("Add", _scaled(builder, value, alpha), _number(builder, value, beta))


def _scaled_tanh(builder: GraphBuilder, value: str, alpha: float, beta: float) -> str:
    return _scaled(builder, builder.node("Tanh", _scaled(builder, value, beta)), alpha)


def _thresholded(builder: GraphBuilder, value: str, alpha: float, _beta: float) -> str:
    above = builder.node("Greater", value, _number(builder, value, alpha))
    return builder.node("Where", above, value, _number(builder, value, 0.0))


def _softsign(builder: GraphBuilder, value: str, _alpha: float, _beta: float) -> str:
    size = builder.node("Add", builder.node("Abs", value), _number(builder, value, 1.0))
    return builder.node("Div", value, size)


def _plain(op: str) -> _Kind:
    return _Kind(lambda builder, value, _alpha, _beta: builder.node(op, value))


_KINDS: Mapping[str, _Kind] = {
    "affine": _Kind(_affine, 1.0, 0.0),
    "elu": _Kind(lambda b, v, alpha, _: b.node("Elu", v, alpha=alpha), 1.0),
    "hardsigmoid": _Kind(
        lambda b, v, alpha, beta: b.node("HardSigmoid", v, alpha=alpha, beta=beta), 0.2, 0.5
    ),
    "leakyrelu": _Kind(lambda b, v, alpha, _: b.node("LeakyRelu", v, alpha=alpha), 0.01),
    "relu": _plain("Relu"),
    "scaledtanh": _Kind(_scaled_tanh, 1.0, 1.0),
    "sigmoid": _plain("Sigmoid"),
    "softplus": _plain("Softplus"),
    "softsign": _Kind(_softsign),
    "tanh": _plain("Tanh"),
    "thresholdedrelu": _Kind(_thresholded, 1.0),
}
_DEFAULTS: Mapping[str, tuple[str, ...]] = {
    "GRU": ("Sigmoid", "Tanh"),
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
    "RNN": ("Tanh",),
}


def activations(node: OnnxNode, directions: int) -> list[tuple[Activation, ...]]:
    """Return the activations of each direction; parameters go to those that have one, in their order.

    Raises:
        ModelImportError: there is no such activation, or they are too few or too many.
    """
    defaults = _DEFAULTS[node.op]
    names = node.attrs.get("activations") or defaults * directions
    if len(names) != len(defaults) * directions:
        raise node.fail(
            f"{len(names)} activations for {directions} direction{'s' * (directions > 1)}; "
            f"{len(defaults)} for each"
        )
    unknown = [name for name in names if name.lower() not in _KINDS]
    if unknown:
        raise node.fail(f"unknown activation {unknown[0]!r}; known: {', '.join(sorted(_KINDS))}")
    alphas, betas = (_given(node.attrs.get(f"activation_{key}", ())) for key in ("alpha", "beta"))
    found = []
    for name in names:
        kind = _KINDS[name.lower()]
        alpha, beta = _next(alphas, kind.alpha), _next(betas, kind.beta)
        found.append(Activation(name.lower(), alpha, beta))
    width = len(defaults)
    return [tuple(found[i * width : (i + 1) * width]) for i in range(directions)]


def _given(values: Sequence[Any]) -> list[float]:
    return [float(value) for value in values]


def _next(values: list[float], default: float | None) -> float:
    """Return the next of the values that are given, for an activation that takes one."""
    if default is None:
        return 0.0
    return values.pop(0) if values else default


__all__ = ["Activation", "activations"]
