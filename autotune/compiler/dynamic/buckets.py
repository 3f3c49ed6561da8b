"""Shape buckets of a model with dynamic shapes: each serves requests of up to its sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType

from autotune.compiler.dynamic.case import PaddedGraph
from autotune.compiler.dynamic.declared import declared_axes, symbols_in_order
from autotune.compiler.dynamic.further import looked_at
from autotune.compiler.dynamic.load import further_lengths, other_lengths
from autotune.compiler.dynamic.observed import Observed, Twin
from autotune.errors import ModelImportError, PaddingError, UsageError
from autotune.frontends.models import ReadModel, load_begun, load_traced, read_model
from autotune.frontends.onnx.importer import Begun, Traced
from autotune.frontends.onnx.read import ModelSource
from autotune.graph import ops
from autotune.graph.ir import Graph
from autotune.runtime.axes import (
    Axes,
    Factor,
    Sizes,
    axis,
    extents,
    is_symbolic,
    shape_text,
    size_of,
    sum_of,
    terms_of,
)
from autotune.suggest import listing

_RANGE = re.compile(r"(\d+)(?:\.\.(\d+)(?::\+([1-9]\d*))?(?::(\d+(?:,\d+)*))?)?")


@dataclass(frozen=True)
class SizeRange:
    """Sizes of a symbol from ``least`` to ``most`` by ``step``; compiled for are ``buckets``, which ascend to ``most``.

    ``named`` says that they were chosen by whom the range is from."""

    least: int
    most: int
    buckets: tuple[int, ...]
    named: bool = True
    step: int = 1

    @classmethod
    def parse(cls, text: str, what: str = "") -> SizeRange:
        """Parse a range: ``8`` is one size, ``1..32`` has the powers of two as buckets, ``1..32:4,32`` has
        those; ``320..1280:+32`` are the sizes that go up by 32. Raises UsageError.

        >>> SizeRange.parse("1..20").buckets
        (1, 2, 4, 8, 16, 20)
        >>> SizeRange.parse("1..32:4,32").buckets
        (4, 32)
        >>> SizeRange.parse("320..1280:+32").buckets
        (320, 512, 1024, 1280)
        """
        found = _RANGE.fullmatch(text)
        if found is None:
            raise UsageError(
                f"{what}{text!r} is no range of sizes\n  such as 8, 1..32, 1..32:4,32 with the buckets, or "
                "320..1280:+32 by steps"
            )
        least = int(found[1])
        most = int(found[2] or least)
        if not least <= most or not most:
            raise UsageError(f"{what}{text!r}: sizes go up, to 1 or more")
        step = int(found[3] or 1)
        if (most - least) % step:
            raise UsageError(
                f"{what}{text!r}: steps of {step} from {least} lead to {most - (most - least) % step} and "
                f"{most + -(most - least) % step}, not to {most}"
            )
        given = tuple(map(int, found[4].split(","))) if found[4] else _powers(least, most, step)
        if list(given) != sorted(set(given)) or given[0] < least or given[-1] != most:
            raise UsageError(f"{what}{text!r}: buckets ascend, from {least} or more to {most}")
        if any((bucket - least) % step for bucket in given):
            raise UsageError(
                f"{what}{text!r}: buckets are sizes of the range, from {least} in steps of {step}"
            )
        if not least and given[0] < 2:
            raise UsageError(
                f"{what}{text!r}: the bucket that takes a size of 0 is for 2 or more, got {given[0]}"
            )
        return cls(least, most, given, bool(found[4]) or least == most, step)

    def below(self, bucket: int) -> int:
        """Return the least size that a bucket is for."""
        at = self.buckets.index(bucket)
        return self.least if at == 0 else self.buckets[at - 1] + self.step

    def others(self, bucket: int) -> list[int]:
        """Return sizes at which a bucket's model is looked at: the one before, the least, and one between them, of
        another remainder where there is one."""
        least = max(self.below(bucket), self.least or self.step)
        between = least + (bucket - least) // self.step // 2 * self.step
        if self.step % 2 and (between - bucket) % 4 == 0 and between < bucket - self.step:
            between += self.step
        return [*dict.fromkeys(size for size in (bucket - self.step, between, least) if 0 < size < bucket)]


def _powers(least: int, most: int, step: int) -> tuple[int, ...]:
    found = [least or max(min(most, 2), step)]
    while found[-1] < most:
        power = 1 << found[-1].bit_length()
        found.append(min(most, power + (least - power) % step))
    return tuple(found)


@dataclass(frozen=True)
class Bucket:
    """A graph for requests of up to ``sizes``; symbols that are no factor of its axes have exactly their size."""

    sizes: Mapping[str, int]
    graph: Graph
    size_inputs: Mapping[str, str]
    inputs: Mapping[str, Axes]
    outputs: Mapping[str, Axes]


def buckets(
    source: ModelSource | ReadModel,
    ranges: Mapping[str, SizeRange],
    sums: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Bucket]:
    """Yield the graphs of a model for all combinations of the buckets of its symbols.

    A symbol is the name of a dimension that the model leaves open, or ``INPUT.AXIS`` of one without a name. ``sums``
    are dimensions that follow from others: ``{"total": "past+1"}``.

    Raises:
        UsageError: ``ranges`` are not those of the model's symbols.
        PaddingError: what a request's answer is would depend on what lies beyond its size, and cannot be masked.
        ModelImportError: the model cannot be imported.
    """
    model = read_model(source)
    shapes = declared_axes(model, sums)
    symbols = list(dict.fromkeys(s for axes in shapes.values() for s in symbols_in_order(axes)))
    _check(model.origin, symbols, ranges)
    for combination in product(*(ranges[symbol].buckets for symbol in symbols)):
        yield _bucket(model, shapes, dict(zip(symbols, combination, strict=True)), ranges)


def _bucket(
    model: ReadModel, shapes: Mapping[str, Axes], sizes: dict[str, int], ranges: Mapping[str, SizeRange]
) -> Bucket:
    least = {s: ranges[s].below(size) for s, size in sizes.items() if ranges[s].below(size) < size}
    padding = {symbol: sizes[symbol] for symbol in least}
    traced = _at(model, shapes, sizes, {})
    bounds = traced.bounds
    twins = [
        Twin({symbol: other}, _twin(model, shapes, sizes | {symbol: other}, symbol, bounds))
        for symbol, size in padding.items()
        for other in _others(traced.graph, ranges[symbol], size)
    ]
    twins += [Twin(lengths, _at(model, shapes, sizes, lengths)) for lengths in other_lengths(bounds)]

    def axes(name: str) -> Axes:
        return tuple(axis(*(_with_padding(factor, sizes, padding) for factor in d)) for d in shapes[name])

    graph = traced.graph
    inputs = {name: axes(name) if name in shapes else _plain(graph, name) for name in graph.inputs}
    if not padding and not bounds:
        outputs = {name: _plain(graph, name) for name in graph.outputs}
        return Bucket(sizes, graph, {}, inputs, outputs)
    steps = {symbol: ranges[symbol].step for symbol in padding}
    all_sizes, all_least = {**padding, **bounds}, {**least, **dict.fromkeys(bounds, 0)}

    def begin(at: Sizes) -> Begun:
        return load_begun(
            model, _shapes_at(shapes, {**sizes, **{s: at[s] for s in padding}}), {s: at[s] for s in bounds}
        )

    observed = Observed(traced, all_sizes, all_least, twins, steps, bounds)
    further = [{**padding, **lengths} for lengths in further_lengths(bounds)]
    found: PaddedGraph = looked_at(observed, further, begin, inputs)
    _check_cuts(found)
    return Bucket(sizes, found.graph, found.size_inputs, found.inputs, found.outputs)


def _check_cuts(found: PaddedGraph) -> None:
    """Refuse outputs of which a request's size and a length that is computed both say how much is there."""
    for number, _, _ in found.graph.counted:
        name = found.graph.outputs[number]
        if any(is_symbolic(each) for each in found.outputs[name]):
            raise PaddingError(
                f"output {name!r} grows with {shape_text(found.outputs[name])} and a computed length"
            )


def _others(graph: Graph, of: SizeRange, bucket: int) -> list[int]:
    """Return other sizes at which a model is imported: three where windows move over it, which round, else two."""
    windows = any(ops.get(node.op).kind in ("convolution", "pool") for node in graph.nodes)
    found = of.others(bucket)
    return found if windows else [*dict.fromkeys((found[0], found[-1]))]


def _twin(
    model: ReadModel, shapes: Mapping[str, Axes], sizes: Mapping[str, int], symbol: str, bounds: Sizes
) -> Traced:
    """Return the model at another size of a symbol. Raises PaddingError where it is not one at that size."""
    try:
        return _at(model, shapes, sizes, bounds)
    except ModelImportError as error:
        raise PaddingError(
            f"the model is none with {symbol} = {sizes[symbol]}: {error}\n  if it takes only some sizes, say which: "
            f"{symbol}=320..1280:+32 are those that go up by 32"
        ) from error


def _with_padding(factor: Factor, sizes: Sizes, padding: Sizes) -> Factor:
    """Return a factor in which only symbols with padding are left."""
    symbols, _ = terms_of(factor)
    left = [symbol for symbol in symbols if symbol in padding]
    return sum_of(left, size_of(factor, sizes) - sum(sizes[symbol] for symbol in left))


def _plain(graph: Graph, name: str) -> Axes:
    return tuple(axis(size) for size in graph.type_of(name).shape)


def _at(model: ReadModel, shapes: Mapping[str, Axes], sizes: Mapping[str, int], assumed: Sizes) -> Traced:
    return load_traced(model, _shapes_at(shapes, sizes), assumed)


def _shapes_at(shapes: Mapping[str, Axes], sizes: Sizes) -> dict[str, tuple[int, ...]]:
    return {name: extents(axes, sizes) for name, axes in shapes.items()}


def _check(origin: str, symbols: Sequence[str], ranges: Mapping[str, SizeRange]) -> None:
    if not symbols:
        raise UsageError(f"{origin} leaves no size open: it has none to give ranges for")
    unknown = sorted(set(ranges) - set(symbols))
    if unknown:
        raise UsageError(
            f"{origin} leaves no size {unknown[0]!r} open\n  it leaves open: {listing(unknown[0], symbols)}"
        )
    missing = [symbol for symbol in symbols if symbol not in ranges]
    if missing:
        raise UsageError(
            f"{origin} leaves more dimensions open: {', '.join(missing)}\n  give each a size or a range, such as "
            f"{missing[0]}=1..32"
        )


__all__ = ["Bucket", "SizeRange", "buckets"]
