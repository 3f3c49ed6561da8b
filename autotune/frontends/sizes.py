"""Sizes that a model leaves open: given by the name of a dimension, or with the shape of an input.

A dimension is called as the model calls it, or ``INPUT.AXIS`` where it has no name. One that the model calls by a sum
(``past + 1``) follows from its terms.
"""

from __future__ import annotations

import operator
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from autotune.errors import ModelImportError, UsageError
from autotune.suggest import listing

Declared: TypeAlias = Mapping[str, Sequence[int | str] | None]
"""Shapes of inputs as a model declares them, a text for a dynamic size; None for unknown rank."""
Given: TypeAlias = Mapping[str, str | Sequence[int] | int]
"""Sizes by the name of a dimension, shapes by the name of an input; a text is a range, which one graph cannot have."""

_BATCH_NAMES = ("n", "b", "bs", "batch", "batch_size", "batchsize")
_LENGTH, _PIXELS = 128, 224
"""Advised extents of an axis that is no batch, and of one of an image: a model of length 1 is seldom what is meant."""


def sum_terms(name: str) -> tuple[list[str], int]:
    """Return the names in a sum of dynamic dimensions, and what its numbers add; another text is one name.

    >>> sum_terms("past + seq + 1"), sum_terms("batch"), sum_terms("floor(a/2) + 1")
    ((['past', 'seq'], 1), (['batch'], 0), (['floor(a/2) + 1'], 0))
    """
    terms = [term.strip() for term in name.split("+")]
    names = [term for term in terms if not term.isdecimal()]
    if len(terms) == 1 or not names or not all(term.replace(".", "_").isidentifier() for term in names):
        return [name], 0
    return names, sum(int(term) for term in terms if term.isdecimal())


def open_names(declared: Declared) -> list[str]:
    """Return the names of all open dimensions, each once; of a sum, those in it.

    >>> open_names({"x": ["batch", 3], "y": ["batch", "past + 1"]})
    ['batch', 'past']
    """
    extents = (d for shape in declared.values() for d in shape or () if isinstance(d, str))
    return list(dict.fromkeys(name for extent in extents for name in sum_terms(extent)[0]))


def is_dimension(name: str, numbers: int, declared: Declared) -> bool:
    """Return whether so many numbers by a name are the size of an open dimension; else they are the
    shape of an input."""
    if numbers != 1 or name not in open_names(declared):
        return False
    shape = declared.get(name, ())
    return shape is not None and len(shape) != 1


def as_shape(given: Any) -> tuple[int, ...]:
    """Return a size or a shape as a tuple.

    >>> as_shape(3), as_shape([1, 3])
    ((3,), (1, 3))
    """
    return tuple(map(operator.index, given)) if isinstance(given, Sequence) else (operator.index(given),)


def given_numbers(name: str, given: Any) -> tuple[int, ...]:
    """Return the size or the shape given by a name as a tuple; raises UsageError where it is a range, or no numbers."""
    if isinstance(given, str):
        raise UsageError(
            f"{name} has the size {given!r}: ranges of sizes are for `autotune compile`, `autotune run`, "
            f"`autotune tune` and autotune.compile_for_sizes\n  give one size: {shlex.quote(name)}=1"
        )
    try:
        return as_shape(given)
    except TypeError as error:
        raise UsageError(f"{name} has the size {given!r}: sizes are whole numbers") from error


class InputSizes:
    """The shapes of a model's inputs, with the dynamic dimensions that were given."""

    def __init__(self, origin: str, declared: Declared, given: Given) -> None:
        """Check what was given; raises UsageError where it is of nothing that the model has, or does not fit."""
        self.origin, self.declared = origin, declared
        self.shapes: dict[str, tuple[int, ...]] = {}
        """Of the inputs whose shapes were given."""
        self._known: dict[str, dict[int, str]] = {}
        for name, numbers in given.items():
            self._take(name, given_numbers(name, numbers))
        for name in given:
            self.size(name)  # a size and a shape may contradict each other

    def shape(self, name: str) -> list[int | str] | None:
        """Return an input's shape as far as it is known."""
        if name in self.shapes:
            return [*self.shapes[name]]
        declared = self.declared[name]
        if declared is None:
            return None
        return [extent if (size := self.size(extent)) is None else size for extent in declared]

    def size(self, extent: int | str) -> int | None:
        """Return the size of a dimension; None where it is not known. Raises UsageError where it was
        given differently."""
        if isinstance(extent, int):
            return extent
        sources = self._known.get(extent, {})
        if len(sources) > 1:
            said = " and ".join(f"{size} by {source}" for size, source in sources.items())
            raise UsageError(f"the size {extent!r} of {self.origin} is given as {said}")
        if sources:
            return next(iter(sources))
        names, number = sum_terms(extent)
        if names == [extent]:
            return None
        sizes = [self.size(name) for name in names]
        return None if None in sizes else sum(filter(None, sizes)) + number

    def check_complete(self, names: Iterable[str]) -> None:
        """Raise ModelImportError, with advice, where shapes of inputs are not known."""
        shapes = {name: self.shape(name) for name in names}
        missing = {name: s for name, s in shapes.items() if s is None or any(isinstance(d, str) for d in s)}
        if missing:
            raise ModelImportError(open_shapes_message(self.origin, missing))

    def _take(self, name: str, numbers: tuple[int, ...]) -> None:
        if is_dimension(name, len(numbers), self.declared):
            if numbers[0] <= 0:
                raise UsageError(f"the size {name!r} of {self.origin} is 1 or more, got {numbers[0]}")
            self._learn(name, numbers[0], f"{name}={numbers[0]}")
            return
        if name not in self.declared:
            raise UsageError(unknown_name_message(self.origin, name, self.declared))
        declared = self.declared[name]
        if not _fits(numbers, declared):
            raise UsageError(
                f"shape {numbers} does not fit input {name!r} of {self.origin}, which is "
                f"{shape_text(['?'] if declared is None else declared)}"
            )
        self.shapes[name] = numbers
        for extent, size in zip(declared or (), numbers, strict=declared is not None):
            if isinstance(extent, str):
                self._learn(extent, size, f"the shape of {name!r}")

    def _learn(self, extent: str, size: int, source: str) -> None:
        self._known.setdefault(extent, {}).setdefault(size, source)


def unknown_name_message(origin: str, name: str, declared: Declared) -> str:
    """Return the inputs and open dimensions that there are, where a name is none of them."""
    inputs, dimensions = list(declared), open_names(declared)
    return (
        f"{origin} has no input {name!r}, and no open dimension of that name\n"
        f"  inputs: {listing(name, inputs)}\n  open dimensions: {listing(name, dimensions) or 'none'}"
        f"{_instead(declared)}"
    )


def _instead(declared: Declared) -> str:
    """Return a further line of a message with the options that give all open dimensions; nothing without any."""
    sizes = advised_sizes(declared)
    return f"\n  give {' '.join(option(*each) for each in sizes.items())}" if sizes else ""


def advised_sizes(declared: Declared) -> dict[str, int]:
    """Return a size for each open dimension: 1 for a batch, what models are usually run with for others.

    >>> advised_sizes({"ids": ["batch", "seq"], "image": ["batch", 3, "h", "image.3"]})
    {'batch': 1, 'seq': 128, 'h': 224, 'image.3': 224}
    """
    found = dict[str, int]()
    for shape in declared.values():
        for axis, extent in enumerate(shape or ()):
            for name in sum_terms(extent)[0] if isinstance(extent, str) else ():
                found.setdefault(name, _advised_size(name, axis, len(shape or ())))
    return found


def _advised_size(name: str, axis: int, rank: int) -> int:
    if name.lower() in _BATCH_NAMES or (axis == 0 and rank > 1):
        return 1
    return _PIXELS if rank == 4 and axis >= 2 else _LENGTH


def _fits(shape: Sequence[int], declared: Sequence[int | str] | None) -> bool:
    """Return whether an input declared so can have a shape."""
    if declared is None:
        return all(size > 0 for size in shape)
    pairs = zip(declared, shape, strict=False)
    return len(shape) == len(declared) and all(s > 0 if isinstance(d, str) else d == s for d, s in pairs)


def open_shapes_message(origin: str, inputs: Declared) -> str:
    """Return the message about inputs that have open dimensions, and the options that fix them."""
    lines = [f"{origin} has dynamic shapes; compiling needs fixed sizes:"]
    lines += [
        f"  input {n!r}: {'of unknown rank' if s is None else shape_text(s)}" for n, s in inputs.items()
    ]
    names = open_names(inputs)
    if names and all(_only_batch(name, shape) for name, shape in inputs.items()):
        lines.append("  only the batch size is open: 1 gives the lowest latency")
    unranked = [name for name, shape in inputs.items() if shape is None]
    advised = advised_sizes(inputs)
    options = [option(name, "1x3x224x224") for name in unranked]
    options += [option(name, advised[name]) for name in names]
    example = dict.fromkeys(unranked, "(1, 3, 224, 224)") | {name: str(advised[name]) for name in names}
    python = ", ".join(f"{name!r}: {value}" for name, value in example.items())
    lines.append(f"  give the sizes, e.g. {' '.join(options)} (in Python: shapes={{{python}}})")
    if names and not unranked:
        lines[-1] += ","
        ranges = [*options[:-1], option(names[-1], f"1..{max(64, 4 * advised[names[-1]])}")]
        lines.append(f"  or compile it for many shapes: {' '.join(ranges)} (compile, run, tune)")
    return "\n".join(lines)


def _only_batch(name: str, shape: Sequence[int | str] | None) -> bool:
    """Return whether an input's one dynamic size is the first of several, and called like a batch."""
    if shape is None or len(shape) < 2 or any(isinstance(extent, str) for extent in shape[1:]):
        return False
    return str(shape[0]).lower() in (*_BATCH_NAMES, f"{name}.0".lower())


def option(name: str, size: int | str) -> str:
    """Return the option that gives a size, as a shell takes it."""
    return f"--shape {shlex.quote(f'{name}={size}')}"


def shape_text(shape: Sequence[int | str]) -> str:
    """Return a shape for messages.

    >>> shape_text(["batch", 3])
    '[batch, 3]'
    """
    return f"[{', '.join(map(str, shape))}]"


__all__ = [
    "Declared",
    "Given",
    "InputSizes",
    "advised_sizes",
    "as_shape",
    "given_numbers",
    "is_dimension",
    "open_names",
    "open_shapes_message",
    "option",
    "shape_text",
    "sum_terms",
    "unknown_name_message",
]
