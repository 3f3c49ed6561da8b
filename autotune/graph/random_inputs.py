"""Random inputs of a region that keep its outputs finite and of the order of 1.

Weights are scaled by 1/sqrt(fan-in), variances and divisors are positive, indices in range. What an
input is for is found by following it through data movement to the operator that uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from autotune.graph import evaluate, ops
from autotune.graph.ir import Array, Graph, Node, TensorType
from autotune.te.dtypes import is_float

if TYPE_CHECKING:
    from autotune.graph.region import Region

Draw: TypeAlias = Callable[[np.random.Generator, TensorType], Array]


def random_inputs(region: Region, seed: int, *, same_sign: bool = False) -> list[Array]:
    """Return one array an input, in order; the same ones for the same seed.

    With ``same_sign`` no float is negative, so that nothing cancels in sums: they lose precision as they grow.
    """
    graph = region.graph
    consumers = graph.consumers()
    arrays = {}
    for i, value in enumerate(graph.inputs):
        rng = np.random.default_rng([seed, i])
        draw = _use_of(value, graph, consumers, region.constant_inputs) or _normal
        arrays[value] = draw(rng, graph.type_of(value).dense)
        if same_sign and is_float(arrays[value].dtype.name):
            arrays[value] = np.abs(arrays[value])
    if any(ops.get(n.op).positive_inputs for n in graph.nodes) and not _finite(graph, arrays):
        for i, value in enumerate(graph.inputs):
            if is_float(arrays[value].dtype.name):
                rng = np.random.default_rng([seed, i])
                arrays[value] = _positive(rng, graph.type_of(value).dense)
    return [arrays[v] for v in graph.inputs]


def _finite(graph: Graph, arrays: Mapping[str, Array]) -> bool:
    results = evaluate.run(graph, arrays)
    return all(bool(np.isfinite(a).all()) for a in results.values() if is_float(a.dtype.name))


def _normal(rng: np.random.Generator, t: TensorType) -> Array:
    if t.dtype == "bool":
        return rng.integers(0, 2, t.shape).astype(bool)
    if not is_float(t.dtype):
        return rng.integers(0, 8, t.shape).astype(t.dtype)
    if t.dtype == "float64":
        return rng.standard_normal(t.shape)
    return rng.standard_normal(t.shape, dtype=np.float32).astype(t.dtype, copy=False)


def _positive(rng: np.random.Generator, t: TensorType) -> Array:
    if t.dtype == "bool":
        return np.ones(t.shape, bool)
    if not is_float(t.dtype):
        return rng.integers(1, 8, t.shape).astype(t.dtype)
    return rng.uniform(0.5, 1.5, t.shape).astype(t.dtype)


def _scaled(fan_in: int) -> Draw:
    factor = max(fan_in, 1) ** -0.5

    def draw(rng: np.random.Generator, t: TensorType) -> Array:
        array = _normal(rng, t)
        return array * array.dtype.type(factor) if is_float(array.dtype.name) else array

    return draw


def _bits(rng: np.random.Generator, t: TensorType) -> Array:
    limits = np.iinfo(t.dtype)
    return rng.integers(limits.min, limits.max, t.shape, dtype=t.dtype, endpoint=True)


def _power(exponent: int) -> Draw:
    return lambda rng, t: (2.0 ** (exponent - rng.integers(0, 3, t.shape))).astype(t.dtype)


def _index(size: int) -> Draw:
    return lambda rng, t: rng.integers(0, max(size, 1), t.shape).astype(t.dtype)


def _use_of(
    value: str, graph: Graph, consumers: Mapping[str, tuple[Node, ...]], fixed: frozenset[str]
) -> Draw | None:
    """Return the distribution of an input after its first telling use; None if any use takes a normal one."""
    for node in consumers.get(value, ()):
        position = node.inputs.index(value)
        draw = _role(node, position, graph, fixed)
        if draw is None and ops.get(node.op).kind == "movement" and position == 0:
            for output in node.present_outputs:
                draw = draw or _use_of(output, graph, consumers, fixed)
        if draw is not None:
            return draw
    return None


def _role(node: Node, position: int, graph: Graph, fixed: frozenset[str]) -> Draw | None:
    domain = ops.get(node.op).domain(graph.input_types(node), node.attrs, position)
    if domain is None:
        return None
    if domain.kind == "positive":
        return _positive
    if domain.kind == "bits":
        return _bits
    if domain.kind == "index":
        return _index(domain.size)
    if domain.kind == "power":
        return _power(domain.size)
    # One factor of a product is scaled: the second, unless only the first is constant.
    first_only = node.inputs[0] in fixed and node.inputs[1] not in fixed
    if domain.kind == "factor" and (position == 0) != first_only:
        return None
    return _scaled(domain.size)
