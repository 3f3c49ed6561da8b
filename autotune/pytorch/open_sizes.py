"""Sizes that TorchDynamo left open in a graph: its symbols, their guards, and the buckets that requests fall into."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import gcd
from typing import Any, TypeAlias

Place: TypeAlias = tuple[int, int]
"""An argument, and the axis of it whose extent a symbol is."""
FINE, COARSE = 4, 2
"""Buckets from one power of two to the next: a size between them is padded by a quarter, or by a half, at most."""
_MOST_CHECKED = 256
"""Sizes of a bucket at which guards are evaluated: they are expressions of SymPy."""


@dataclass(frozen=True)
class SizeBucket:
    """Sizes from ``least`` to ``most`` by ``step``, which one compilation for ``most`` serves."""

    least: int
    most: int
    step: int = 1

    @classmethod
    def of(
        cls, size: int, least: int, most: int | None, allows: Callable[[int], bool], parts: int = FINE
    ) -> SizeBucket:
        """Return the bucket of a size: from a power of two to the next there are ``parts``, of a step of one at least;
        the last ends where the range does.

        ``allows`` says which sizes there are; where they go up by a step, the bucket does too.

        >>> SizeBucket.of(9, 2, None, lambda size: True)
        SizeBucket(least=9, most=10, step=1)
        >>> SizeBucket.of(9, 2, None, lambda size: True, COARSE)
        SizeBucket(least=9, most=12, step=1)
        >>> SizeBucket.of(352, 2, None, lambda size: size % 32 == 0)
        SizeBucket(least=352, most=384, step=32)
        >>> SizeBucket.of(100, 2, 110, lambda size: True)
        SizeBucket(least=97, most=110, step=1)
        """
        before, end = _around(size, parts)
        first, last = max(before + 1, least), end if most is None else min(end, most)
        found = [each for each in _sample(first, last, size) if each == size or allows(each)]
        step = gcd(*(each - size for each in found))
        if not step:
            return cls(size, size)
        least, most = size - (size - first) // step * step, size + (last - size) // step * step
        return cls(least, most, step)

    @property
    def text(self) -> str:
        """Return it as a range of one bucket, of those that :func:`autotune.compile` takes."""
        if self.least == self.most:
            return str(self.most)
        return f"{self.least}..{self.most}:+{self.step}:{self.most}"

    def holds(self, size: int) -> bool:
        """Return whether a size is one of these."""
        return self.least <= size <= self.most and (size - self.least) % self.step == 0


def _around(size: int, parts: int) -> tuple[int, int]:
    """Return the ends of the bucket before and of the one that a size falls into."""
    below = (1 << max(size - 1, 0).bit_length()) // 2
    step = max(below // parts, 1)
    end = below - (below - size) // step * step
    return end - step, end


def _sample(first: int, last: int, size: int) -> Iterable[int]:
    """Return the sizes of a bucket, or as many of them around one."""
    begin = max(first, min(size - _MOST_CHECKED // 2, last - _MOST_CHECKED + 1))
    return range(begin, min(last, begin + _MOST_CHECKED - 1) + 1)


@dataclass(frozen=True)
class OpenSizes:
    """Symbols of a graph: where a call has each, the range of each (None: without end), and the guards that hold.

    ``shapes`` are those of the arguments that are tensors, each extent a number or an expression in symbols.
    ``symbols`` are arguments that are such a size, ``numbers`` those that decide what is computed, and are part of what
    is compiled.
    """

    places: Mapping[str, Place] = field(default_factory=dict)
    shapes: Mapping[int, tuple[Any, ...]] = field(default_factory=dict)
    ranges: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    guards: Sequence[Any] = ()
    numbers: tuple[int, ...] = ()
    symbols: Mapping[int, str] = field(default_factory=dict)

    def sizes_of(self, arguments: Sequence[Any]) -> dict[str, int]:
        """Return the size of each symbol in a call."""
        return {symbol: int(arguments[index].shape[axis]) for symbol, (index, axis) in self.places.items()}

    def key(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Return all sizes and numbers of a call: what is the same for two calls runs the same code in the same way."""
        given = [arguments[index] for index in self.symbols]
        read = [arguments[index].shape[axis] for index, axis in self._read]
        return (*given, *read, *self.numbers_of(arguments))

    @cached_property
    def _read(self) -> tuple[Place, ...]:
        """The places of the symbols that no argument is: reading a shape takes longer than reading a number."""
        given = set(self.symbols.values())
        return tuple(place for symbol, place in self.places.items() if symbol not in given)

    def numbers_of(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Return the numbers of a call."""
        return tuple([_number(arguments[index]) for index in self.numbers])

    def bucket(self, symbol: str, sizes: Mapping[str, int], parts: int) -> SizeBucket:
        """Return the bucket that a call's size of a symbol falls into, of so many from one power of two to the next."""
        least, most = self.ranges[symbol]
        guards = [guard for guard in self.guards if symbol in _names(guard)]

        def allows(size: int) -> bool:
            return all(_holds(guard, {**sizes, symbol: size}) for guard in guards)

        return SizeBucket.of(sizes[symbol], least, most, allows, parts)

    @classmethod
    def of(cls, placeholders: Sequence[Any], examples: Sequence[Any]) -> OpenSizes:
        """Return the open sizes of a graph of TorchDynamo: its placeholders, and examples of its arguments."""
        import torch

        values = [
            node.meta.get("example_value", each) for node, each in zip(placeholders, examples, strict=True)
        ]
        shapes = {
            i: _extents(value.shape) for i, value in enumerate(values) if isinstance(value, torch.Tensor)
        }
        places = {
            str(extent): (index, axis)
            for index, shape in reversed(shapes.items())
            for axis, extent in reversed([*enumerate(shape)])
            if getattr(extent, "is_Symbol", False)
        }
        named = {i: str(value.node.expr) for i, value in enumerate(values) if isinstance(value, torch.SymInt)}
        symbols = {index: name for index, name in named.items() if name in places}
        scalars = [index for index, node in enumerate(placeholders) if is_scalar(node)]
        numbers = (*(index for index in named if index not in symbols), *scalars)
        env = next(filter(None, map(_environment, values)), None)
        if env is None:
            return cls(shapes=shapes, numbers=numbers)
        bounds = {str(symbol): found for symbol, found in env.var_to_range.items()}
        ranges = {name: (int(bounds[name].lower), _end(bounds[name].upper)) for name in places}
        return cls(places, shapes, ranges, tuple(guard.expr for guard in env.guards), numbers, symbols)


def _extents(shape: Sequence[Any]) -> tuple[Any, ...]:
    """Return a shape as numbers and expressions."""
    found = (each if isinstance(each, int) else each.node.expr for each in shape)
    return tuple(int(each) if isinstance(each, int) or each.is_Integer else each for each in found)


def is_scalar(node: Any) -> bool:
    """Return whether a placeholder is a number that TorchDynamo passes as a tensor: all that is read is its item."""
    value = node.meta.get("example_value")
    return (
        getattr(value, "shape", None) == ()
        and bool(node.users)
        and all(user.op == "call_method" and user.target == "item" for user in node.users)
    )


def value_of(expression: Any, sizes: Mapping[str, int]) -> int:
    """Return the value of an extent, a stride or an offset."""
    return int(_at(expression, sizes))


def _holds(guard: Any, sizes: Mapping[str, int]) -> bool:
    """Return whether a guard is true for such sizes, or says something else than of these."""
    return str(_at(guard, sizes)) != "False"


def _at(expression: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(expression, (bool, int)):
        return expression
    known = {each: sizes[each.name] for each in expression.free_symbols if each.name in sizes}
    return expression.xreplace(known)


def _names(expression: Any) -> set[str]:
    return {symbol.name for symbol in expression.free_symbols}


def _environment(value: Any) -> Any:
    """Return what knows the symbols of a fake tensor or a symbolic number."""
    mode = getattr(value, "fake_mode", None)
    return getattr(mode, "shape_env", None) or getattr(getattr(value, "node", None), "shape_env", None)


def _end(bound: Any) -> int | None:
    """Return the end of a range; None for one without, or one that stands for none."""
    return int(bound) if getattr(bound, "is_Integer", False) and int(bound) < 1 << 30 else None


def _number(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


__all__ = ["COARSE", "FINE", "OpenSizes", "Place", "SizeBucket", "is_scalar", "value_of"]
