"""The text of a model with dynamic shapes: sizes that follow from open ones are sums and products of these.

The model is imported at several sizes. Where the texts differ in a number, the number is fitted: a product of symbols,
or a sum. What comes of it is read back at each of these sizes, and must give the graph that was imported.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path

from autotune.compiler.dynamic.buckets import SizeRange
from autotune.compiler.dynamic.declared import declared_axes, symbols_in_order
from autotune.errors import AutotuneError, UsageError
from autotune.frontends.models import ReadModel, load_traced, read_model
from autotune.frontends.onnx.importer import Traced
from autotune.graph.ir import Array, Graph, Node
from autotune.graph.text_file import file_text, write_text
from autotune.runtime.axes import Axes, Sizes, extents

_WORD = re.compile(r"\w+|\W")
_PRIMES = (5, 7, 11, 13, 17, 19, 23, 29)
"""Sizes of symbols without a range: what is equal to two of them is so by accident only for one."""


def write_open_text(
    model: ReadModel, path: Path, ranges: Mapping[str, SizeRange], sums: Mapping[str, str]
) -> None:
    """Write a model as a text that leaves its sizes open, but those of one size only, and its constants beside it.

    Symbols without a range may have any size. Raises UsageError where the model is not the same for all sizes but for
    sums and products of them, and OSError.
    """
    axes = declared_axes(model, sums)
    symbols = list(dict.fromkeys(s for each in axes.values() for s in symbols_in_order(each)))
    sizes = _Sizes(symbols, ranges)
    graphs = _evaluated([_at(model, axes, each) for each in sizes.probes])
    name = f"{path.stem}.npz"
    texts = [file_text(graph, name) for graph in graphs]
    text = "".join(sizes.fitted(words, model.origin) for words in _aligned(texts, model.origin))
    write_text(graphs[0], text, path)
    try:
        written = read_model(path)
        for each, wanted in zip(sizes.probes, texts, strict=True):
            if file_text(_at(written, axes, each).graph, name) != wanted:
                raise UsageError(f"{model.origin} has no one text: at {_said(each)} it is another model")
    except AutotuneError:
        path.unlink()
        raise


class _Sizes:
    """Sizes at which a model is imported: first those that all others differ from in one symbol, last others."""

    def __init__(self, symbols: Sequence[str], ranges: Mapping[str, SizeRange]) -> None:
        base, other = dict[str, int](), dict[str, int]()
        for symbol, prime in zip(symbols, itertools.cycle(_PRIMES), strict=False):
            given = ranges.get(symbol)
            base[symbol] = prime if given is None else given.most
            other[symbol] = prime + 2 if given is None else max(given.least, given.most - given.step, 1)
        self.base = base
        self.open = [symbol for symbol in symbols if base[symbol] != other[symbol]]
        self._others = [base | {symbol: other[symbol]} for symbol in self.open]
        self.probes = [base, *self._others, base | {symbol: other[symbol] for symbol in self.open}]

    def fitted(self, words: Sequence[str], origin: str) -> str:
        """Return a word that stands for what the texts have at these sizes."""
        if len({*words}) == 1:
            return words[0]
        if not all(word.isdecimal() for word in words):
            raise UsageError(
                f"{origin} has {words[0]!r} at {_said(self.base)}, and at other sizes something else: it has no one "
                "text for all of them\n  give one size of each"
            )
        here, *numbers = map(int, words)
        for text, values in self._candidates(here, numbers):
            if values == [here, *numbers]:
                return text
        raise UsageError(
            f"{origin} has the number {here} at {_said(self.base)}, which is no sum and no product of them at others\n"
            "  give one size of each"
        )

    def _candidates(self, here: int, numbers: Sequence[int]) -> Iterator[tuple[str, list[int]]]:
        """Yield expressions in the symbols by which a number grows, with what they are at all probes."""
        grown = [symbol for symbol, number in zip(self.open, numbers, strict=False) if number != here]
        size = prod(self.base[symbol] for symbol in grown)
        if grown and here % size == 0:
            factor = [str(here // size)] if here != size else []
            values = [here // size * prod(each[s] for s in grown) for each in self.probes]
            yield "*".join([*factor, *grown]), values
        rest = here - sum(self.base[symbol] for symbol in grown)
        terms = [*grown, *([str(rest)] if rest > 0 else [])]
        yield "+".join(terms), [sum(each[s] for s in grown) + rest for each in self.probes if rest >= 0]


def _aligned(texts: Sequence[str], origin: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of texts beside each other."""
    words = [_WORD.findall(text) for text in texts]
    if len({*map(len, words)}) > 1:
        raise UsageError(
            f"{origin} has other nodes at other sizes: it has no one text\n  give one size of each"
        )
    return zip(*words, strict=True)


def _evaluated(traced: Sequence[Traced]) -> list[Graph]:
    """Return the graphs with the nodes that were evaluated to constants, where these differ at other sizes."""
    made = [list[Node]() for _ in traced]
    seen = set[str]()

    def visit(name: str) -> None:
        arrays = [each.constants.get(name) for each in traced]
        if name in seen or arrays[0] is None or all(_same(arrays[0], other) for other in arrays[1:]):
            return
        seen.add(name)
        nodes = [_node(each, name) for each in traced]
        if any(node is None for node in nodes):
            return  # its data differ, which is said of the text
        for value in nodes[0].inputs if nodes[0] is not None else ():
            visit(value)
        for mine, node in zip(made, nodes, strict=True):
            if node is not None:
                mine.append(node)

    for name in traced[0].graph.constants:
        visit(name)
    return [_with(each, nodes) for each, nodes in zip(traced, made, strict=True)]


def _node(traced: Traced, name: str) -> Node | None:
    """Return the node that was evaluated to a constant, as an operator of the graph."""
    node = traced.folded.get(name)
    if node is None or node.op != "Range":
        return node
    numbers = [traced.constants[value] for value in node.inputs]
    attrs = dict(zip(("start", "limit", "delta"), (number.item() for number in numbers), strict=True))
    return Node("Range", (), node.outputs, {**attrs, "dtype": str(numbers[0].dtype)})


def _with(traced: Traced, nodes: Sequence[Node]) -> Graph:
    """Return the graph in which these nodes are not evaluated."""
    graph, made = traced.graph, {name for node in nodes for name in node.outputs}
    read = {name for node in nodes for name in node.inputs}
    constants = {**graph.constants, **{n: a for n, a in traced.constants.items() if n in read}}
    return graph.replace(
        nodes=(*nodes, *graph.nodes),
        types={
            **graph.types,
            **{name: traced.types[name] for name in {*made, *read} if name in traced.types},
        },
        constants={name: array for name, array in constants.items() if name not in made},
    ).pruned()


def _same(one: Array, other: Array | None) -> bool:
    return other is not None and one.shape == other.shape and one.tobytes() == other.tobytes()


def _at(model: ReadModel, axes: Mapping[str, Axes], sizes: Sizes) -> Traced:
    return load_traced(model, {name: extents(each, sizes) for name, each in axes.items()})


def _said(sizes: Sizes) -> str:
    return ", ".join(f"{symbol} = {size}" for symbol, size in sizes.items())


__all__ = ["write_open_text"]
