"""The axes that a model declares of its inputs: sizes, symbols, and sums of them as exporters write them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from autotune.errors import UsageError
from autotune.frontends.models import ReadModel, declared_shapes, open_shapes
from autotune.frontends.sizes import Given, InputSizes, open_names, sum_terms
from autotune.runtime.axes import Axes, Factor, axis, sum_of, terms_of
from autotune.suggest import listing


def declared_axes(model: ReadModel, sums: Mapping[str, str]) -> dict[str, Axes]:
    """Return axes of the inputs that have open dimensions; ``sums`` says which follow from others.

    Raises UsageError where ``sums`` name no open dimension, or are not made of some.
    """
    shapes = open_shapes(model)
    names = {d for shape in shapes.values() for d in shape if isinstance(d, str)}
    unknown = sorted({*sums} - names)
    if unknown:
        raise UsageError(
            f"{model.origin} leaves no size {unknown[0]!r} open\n  it leaves open: {listing(unknown[0], sorted(names))}"
        )
    known = {name: _sum(name, names) for name in names}
    for name, text in sums.items():
        found = _sum(text, names - {*sums})
        if found is None:
            raise UsageError(
                f"{name}={text} is no sum of dynamic dimensions and whole numbers, such as {name}="
                f"{next(iter(sorted(names - {*sums})), 'past')}+1\n  it leaves open: {', '.join(sorted(names))}"
            )
        known[name] = found
    return {
        name: tuple(axis(d if isinstance(d, int) else known[d] or _symbol(d)) for d in shape)
        for name, shape in shapes.items()
    }


def _symbol(name: str) -> str:
    """Return the name of a dimension without the marks of expressions."""
    return re.sub(r"[*/()]", "_", name.replace("+", "_plus_"))


def _sum(text: str, names: Iterable[str]) -> Factor | None:
    """Return ``past + 1``, of names of dimensions or of what may be one; None for what is no such sum."""
    symbols, number = sum_terms(text)
    if symbols == [text]:
        return text if text in names else None
    return sum_of(symbols, number) if all(s in names or s.isidentifier() for s in symbols) else None


def by_dimension(model: ReadModel, given: Mapping[str, str | Sequence[int] | int]) -> dict[str, str]:
    """Return sizes and ranges of dimensions as texts, where shapes of inputs are given among them.

    Raises UsageError where a shape does not fit, or a size is given twice.
    """
    texts = {name: text for name, text in given.items() if isinstance(text, str)}
    fixed: Given = {name: size for name, size in given.items() if not isinstance(size, str)}
    declared = declared_shapes(model)
    sizes = InputSizes(model.origin, declared, fixed)
    for name in open_names(declared):
        size = sizes.size(name)
        if size is not None and name in texts:
            raise UsageError(f"the size {name!r} of {model.origin} is given as {size} and as {texts[name]!r}")
        if size is not None:
            texts[name] = str(size)
    return texts


def symbols_in_order(axes: Axes) -> list[str]:
    """Return the symbols of axes, each once."""
    factors = (factor for each in axes for factor in each)
    return list(dict.fromkeys(symbol for factor in factors for symbol in terms_of(factor)[0]))


__all__ = ["declared_axes", "symbols_in_order"]
