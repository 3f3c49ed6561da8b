"""Branches whose results have other shapes: what reads them is imported into each branch, until shapes agree.

This is the continuation of a program moved into both arms of a conditional (Kelsey 1995, A Correspondence between
Continuation Passing Style and Static Single Assignment Form), of which only what must is moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np

from autotune.errors import GraphError, ModelImportError, UnknownParameterError
from autotune.frontends.onnx.scope import Importing, names_of, renamed
from autotune.graph.ir import ABSENT, Node


@dataclass(frozen=True)
class BranchPath:
    """One way through branches: the nodes that only it runs, and the value that it has for each name."""

    prefix: str
    nodes: Sequence[Node]
    names: Mapping[str, str]


class Joining(Protocol):
    """An If, which can be added with other branches than it had."""

    def join(self, yes: Way, no: Way, results: Sequence[str], outputs: Sequence[str]) -> None:
        """Add it with ways that have values of one shape for each of ``results``; ``outputs`` are their names."""


@dataclass(frozen=True)
class Fork:
    """Nodes that run before a condition decides, and what runs then."""

    before: Sequence[Node]
    joining: Joining
    yes: Way
    no: Way

    def join(self, results: Sequence[str], outputs: Sequence[str]) -> None:
        """Add what runs when the condition decides."""
        self.joining.join(self.yes, self.no, results, outputs)


Way: TypeAlias = "BranchPath | Fork | ModelImportError"
"""An error stands for what has no meaning at the sizes at hand."""


class ShapesDifferError(Exception):
    """The results of an If have other shapes in each branch; ``reason`` is for who cannot go on in each."""

    def __init__(self, fork: Fork, reason: UnknownParameterError) -> None:
        super().__init__(str(reason))
        self.fork, self.reason = fork, reason


@dataclass(frozen=True)
class ImportStep:
    """A node of ONNX, and what imports it or a copy of it with other names."""

    proto: Any
    imports: Callable[[Any], None]

    @property
    def made(self) -> set[str]:
        """The names of its results."""
        return {v for v in self.proto.output if v != ABSENT}


def import_in_order(steps: Sequence[ImportStep], needed: Sequence[str], model: Importing) -> Rest | None:
    """Import nodes; what reads results of other shapes in each branch is imported into each.

    Returns None where the graph has all values that are ``needed``, else the branches that have those.
    """
    for index, step in enumerate(steps):
        try:
            step.imports(step.proto)
        except ShapesDifferError as found:
            rest = Rest(model, found.fork, found.reason, needed)
            return rest.with_all(steps[index + 1 :])
    return None


@dataclass
class Rest:
    """The nodes behind an If whose branches give other shapes.

    ``later`` are nodes that read only what has one shape: they stand behind the branches, unless what is read within
    reads them too. ``differ`` are values of branches that have no common shape."""

    model: Importing
    fork: Fork
    reason: UnknownParameterError
    needed: Sequence[str]
    later: list[ImportStep] = field(default_factory=list)
    parts: list[tuple[str, int, str, str]] = field(default_factory=list)
    """Values that are padded in each branch: the axis, what says how much is there, and the name of what is."""
    differ: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.differ = self._differing()

    @property
    def open(self) -> list[str]:
        """The needed values that have no common shape."""
        return [v for v in dict.fromkeys(self.needed) if v in self.differ]

    def with_all(self, steps: Sequence[ImportStep]) -> Rest | None:
        """Import nodes: into the branches, behind them, or before them where they read nothing of them.

        Returns the branches that have needed values, as :func:`import_in_order` does."""
        for step in steps:
            read = names_of(step.proto)
            if read & self.differ:
                self._take(step)
            elif read & self._behind():
                self.later.append(step)
            else:
                self._import_before(step)
        if not self.open:
            return self._joined()
        self._take_later(set(self.needed))
        self.differ = self._differing()
        return self

    def _import_before(self, step: ImportStep) -> None:
        """Import a node that reads nothing of the branches; one that has such branches too is imported into each."""
        try:
            step.imports(step.proto)
        except ShapesDifferError:
            self._take(step)

    def _joined(self) -> Rest | None:
        """Add the branches, and what stands behind them: that may have others."""
        read = set(self.needed).union(*(names_of(step.proto) for step in self.later))
        results = [v for v in self._inside() if v in read]
        self.model.extend(self.fork.before)
        self.fork.join(results, results)
        for part in self.parts:
            self.model.part(*part)
        return import_in_order(self.later, self.needed, self.model)

    def named(self, before: Sequence[Node], names: Mapping[str, str]) -> Fork:
        """Return the branches behind some nodes, their values by other names; what none computes is as it is."""

        def renamed_path(path: BranchPath) -> BranchPath:
            return BranchPath(
                path.prefix, path.nodes, {new: path.names.get(old, old) for new, old in names.items()}
            )

        fork = _mapped(self.fork, renamed_path)
        return Fork([*before, *fork.before], fork.joining, fork.yes, fork.no)

    def count_lengths(self) -> None:
        """Make values of other lengths along one axis as long as the longest, and say how much of each is there.

        Raises UnknownParameterError for values that differ in more.
        """
        for value in self.open:
            self._count_length(value)
        self._joined()

    def _count_length(self, value: str) -> None:
        axis, longest = self._open_axis(value)
        model, count, room = self.model, self.model.fresh(f"{value}.count"), self.model.fresh(f"{value}.room")

        def padded(path: BranchPath) -> BranchPath:
            own, length = path.names[value], model.fresh(f"{path.prefix}{value}.count")
            found, whole = model.type_of(own), model.fresh(f"{path.prefix}{value}.whole")
            ends = tuple(longest - extent if n == axis else 0 for n, extent in enumerate(found.shape))
            model.define(length, np.array([found.shape[axis]], np.int64))
            with model.apart() as nodes:
                model.append("Pad", [own], [whole], {"pads": (*(0,) * found.rank, *ends)}, whole)
            names = {**path.names, room: whole, count: length}
            del names[value]
            return BranchPath(path.prefix, [*path.nodes, *nodes], names)

        self.fork = _mapped(self.fork, padded)
        self.needed = [*self.needed, count, room]
        self.differ.discard(value)
        self.parts.append((room, axis, count, value))

    def _open_axis(self, value: str) -> tuple[int, int]:
        """Return the only axis of which the extent differs, and the largest there."""
        own = [path.names[value] for path in paths(self.fork)]
        types = [self.model.type_of(v) for v in own if v not in self.model.sequences]
        if len(types) < len(own) or len({(found.rank, found.dtype) for found in types}) > 1:
            raise self.reason
        extents = [set(each) for each in zip(*(found.shape for found in types), strict=True)]
        axes = [axis for axis, found in enumerate(extents) if len(found) > 1]
        if len(axes) != 1:
            raise self.reason
        return axes[0], max(extents[axes[0]])

    def _inside(self) -> list[str]:
        """Return the names of values that branches compute."""
        return list(dict.fromkeys(v for path in paths(self.fork) for v in path.names))

    def _behind(self) -> set[str]:
        return {*self._inside()}.union(*(step.made for step in self.later))

    def _differing(self) -> set[str]:
        return {v for v in self._inside() if not self._agrees(v)}

    def _agrees(self, value: str) -> bool:
        model, own = self.model, [path.names[value] for path in paths(self.fork) if value in path.names]
        return not any(v in model.sequences for v in own) and len({model.type_of(v) for v in own}) == 1

    def _take(self, step: ImportStep) -> None:
        """Import a node into each path, behind those of the later ones that it reads."""
        self._take_later(names_of(step.proto))
        self.fork = self._with(self.fork, step)
        self.differ = self._differing()

    def _take_later(self, read: set[str]) -> None:
        """Import later nodes that make some values, and those that these read, into each path."""
        wanted = list[ImportStep]()
        for step in reversed(self.later):
            if step.made & read:
                wanted.append(step)
                read = read | names_of(step.proto)
        self.later = [step for step in self.later if step not in wanted]
        for step in reversed(wanted):
            self.fork = self._with(self.fork, step)

    def _with(self, fork: Fork, step: ImportStep) -> Fork:
        yes, no = (self._continued(way, step) for way in (fork.yes, fork.no))
        if isinstance(yes, ModelImportError) and isinstance(no, ModelImportError):
            raise yes
        return Fork(fork.before, fork.joining, yes, no)

    def _continued(self, way: Way, step: ImportStep) -> Way:
        if isinstance(way, ModelImportError):
            return way
        try:
            return self._with(way, step) if isinstance(way, Fork) else self._along(way, step)
        except UnknownParameterError:
            raise
        except GraphError as error:
            return ModelImportError(str(error))
        except ModelImportError as error:
            return error

    def _along(self, path: BranchPath, step: ImportStep) -> BranchPath | Fork:
        """Import a node into a path; another If may divide it."""
        model, made = self.model, {v: self.model.fresh(f"{path.prefix}{v}") for v in step.made}
        proto = renamed(step.proto, {**path.names, **made}, path.prefix)
        model.read.update(names_of(proto), (new for old, new in made.items() if old in model.read))
        model.expansion.add(path.prefix)
        try:
            with model.apart() as nodes:
                step.imports(proto)
        except ShapesDifferError as found:
            rest = Rest(model, found.fork, found.reason, ())
            names = {**path.names, **made}
            return rest.named([*path.nodes, *nodes], names)
        return BranchPath(path.prefix, [*path.nodes, *nodes], {**path.names, **made})


def paths(way: Way) -> Iterator[BranchPath]:
    """Yield the paths of a way that have a meaning."""
    if isinstance(way, Fork):
        yield from paths(way.yes)
        yield from paths(way.no)
    elif isinstance(way, BranchPath):
        yield way


def _mapped(fork: Fork, change: Callable[[BranchPath], BranchPath]) -> Fork:
    """Return a fork with each of its paths changed."""

    def mapped(way: Way) -> Way:
        if isinstance(way, Fork):
            return _mapped(way, change)
        return change(way) if isinstance(way, BranchPath) else way

    return Fork(fork.before, fork.joining, mapped(fork.yes), mapped(fork.no))


__all__ = ["BranchPath", "Fork", "ImportStep", "Rest", "ShapesDifferError", "Way", "import_in_order", "paths"]
