"""Models of fixed sizes as graphs, also those that compute lengths and go on with values of these."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np

from autotune.compiler.dynamic.further import looked_at
from autotune.compiler.dynamic.observed import Observed, Twin
from autotune.errors import ComputedLengthError, ModelImportError, PaddingError, UnknownParameterError
from autotune.frontends import models
from autotune.frontends.models import ReadModel, load_begun, load_traced, read_model
from autotune.frontends.onnx.lengths import Length
from autotune.frontends.onnx.read import ModelSource
from autotune.frontends.sizes import Given
from autotune.graph.ir import Graph
from autotune.runtime.axes import axis

_LOG = logging.getLogger("autotune.compiler")
_TRIES = 10_000


def load(source: ModelSource | ReadModel, *, shapes: Given | None = None) -> Graph:
    """Return the graph of a model, as :func:`autotune.frontends.models.load` does.

    Where something looks along an axis whose length is computed, each such value is as long as it can become, and what
    looks along it is masked by the length. ``shapes`` may have bounds of lengths, by the names of the values that are
    them.

    Raises:
        ModelImportError: a result would depend on what lies beyond a length, or nothing bounds it.
        The errors of :func:`autotune.frontends.models.load`.
    """
    model = read_model(source)
    try:
        return models.load(model, shapes=shapes)
    except (ComputedLengthError, UnknownParameterError) as error:
        _LOG.info("%s\n  lengths that it computes count as sizes", error)
        return _with_lengths(model, shapes or {})


def _with_lengths(model: ReadModel, shapes: Given) -> Graph:
    traced = load_traced(model, shapes, {})
    bounds = traced.bounds
    twins = [Twin(sizes, load_traced(model, shapes, sizes)) for sizes in other_lengths(bounds)]
    observed = Observed(traced, bounds, dict.fromkeys(bounds, 0), twins, lengths=bounds)
    graph = traced.graph
    inputs = {name: tuple(map(axis, graph.type_of(name).shape)) for name in graph.inputs}
    try:
        return looked_at(
            observed, further_lengths(bounds), lambda sizes: load_begun(model, shapes, sizes), inputs
        ).graph
    except PaddingError as error:
        raise ModelImportError(f"{model.origin}: {error}{_said(traced.lengths, str(error))}") from error


def other_lengths(bounds: Mapping[str, int]) -> list[dict[str, int]]:
    """Return lengths at which a model is imported besides: large ones and small ones, no two alike in
    both; a few; and ones.

    >>> other_lengths({"boxes": 100, "kept": 100})[-1]
    {'boxes': 1, 'kept': 1}
    """
    if not bounds:
        return []
    rng, taken, large, small = np.random.default_rng(0), set[tuple[int, ...]](), {}, {}
    for symbol, bound in bounds.items():
        few = min(bound, bound // 8 + 8)
        pairs = zip(rng.integers(bound // 2, bound, _TRIES), rng.integers(1, few, _TRIES), strict=True)
        pair = next(((int(a), int(b)) for a, b in pairs if (a, b) not in taken), None)
        if pair is None:
            raise ModelImportError(f"more than {len(taken)} lengths of at most {bound} cannot be told apart")
        taken.add(pair)
        large[symbol], small[symbol] = pair
    least = {symbol: int(rng.integers(1, 6)) for symbol in bounds}
    return [large, small, least, dict.fromkeys(bounds, 1)]


def further_lengths(bounds: Mapping[str, int]) -> list[dict[str, int]]:
    """Return lengths at which what was found at :func:`other_lengths` must hold too: some, and nothing found.

    >>> further_lengths({"boxes": 100})[-1]
    {'boxes': 0}
    """
    rng = np.random.default_rng(1)
    found = list[dict[str, int]]()
    for part in (4, 2, 1, 1, 1, 1):  # several: what rounds down is told apart by few of them
        found.append({s: int(rng.integers(1, max(2, most // part + 1))) for s, most in bounds.items()})
    return [*found, dict.fromkeys(bounds, 0)] if bounds else []


def _said(lengths: Mapping[str, Length], text: str) -> str:
    """Return lines about the lengths that a message names."""
    named = {symbol: each for symbol, each in lengths.items() if symbol in text}
    lines = [
        f"\n  {symbol} is the length that {each.value!r} says, computed, at most {each.bound}"
        for symbol, each in named.items()
    ]
    return "".join(lines[:4])


__all__ = ["further_lengths", "load", "other_lengths"]
