"""One graph between two graph breaks: compiled for each bucket of its sizes, or run by PyTorch, and why."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from autotune.errors import AutotuneError, MissError, ModelImportError, PaddingError, UsageError
from autotune.pytorch.exported import ExportedGraph, TracedGraph, exported
from autotune.pytorch.open_sizes import COARSE, FINE, SizeBucket
from autotune.pytorch.program import TorchProgram, checked, compiled
from autotune.pytorch.shared import SharedConstants
from autotune.pytorch.weights import RecordedWeights

MOST_CHANGES = 8
"""A graph whose weights change more often is PyTorch's."""
MOST_PROGRAMS = 64
"""Programs that are kept of a graph; sizes and numbers that none of them serves are PyTorch's from then on."""
_FINE_PROGRAMS = 16
"""So many are compiled for fine buckets; more sizes have coarse ones, and seldom meet ``MOST_PROGRAMS``."""
_MOST_CALLS = 4096
"""Sizes whose results' shapes are kept."""

_LOG = logging.getLogger("autotune.pytorch")


@dataclass
class Subgraph:
    """The fate of one graph. ``operators`` is the number of its calls; ``reason`` says why PyTorch runs it, and is
    empty where it is compiled; ``programs`` are those compiled so far, each for a bucket of its sizes.

    ``weights`` are the arguments that are the same tensors at every call, ``captured`` the tensors that the graph
    itself holds; ``hashed`` says whether their bytes are compared at each call. ``made`` counts compilations,
    ``exact`` has the sizes that are compiled exactly, because padding of them cannot be masked."""

    number: int
    operators: int
    graph: TracedGraph = field(repr=False)
    weights: tuple[int, ...] = field(repr=False)
    captured: tuple[Any, ...] = field(repr=False)
    hashed: bool
    options: Mapping[str, Any] = field(repr=False)
    reason: str = ""
    exact: frozenset[str] = frozenset()
    programs: list[TorchProgram] = field(default_factory=list, repr=False)
    made: int = 0
    _changes: int = 0
    _exported: ExportedGraph | None = field(default=None, repr=False)
    _memory: SharedConstants = field(default_factory=SharedConstants, repr=False)
    _calls: dict[tuple[Any, ...], TorchProgram] = field(default_factory=dict, repr=False)

    @property
    def shapes_vary(self) -> bool:
        """True if it has open sizes."""
        return bool(self.graph.sizes.places)

    @property
    def dispatches(self) -> int:
        """Of all programs."""
        return sum(len(each.module.dispatches) for each in self.programs if each.module is not None)

    @property
    def seconds(self) -> float:
        """That compiling the programs took."""
        return sum(each.seconds for each in self.programs)

    @property
    def error(self) -> float:
        """The largest error of first results, relative to the largest value."""
        return max((each.error for each in self.programs), default=0.0)

    def __call__(self, *arguments: Any) -> Any:
        """Return the results of a call, by compiled code or by PyTorch."""
        if self.reason:
            return self.graph.module.forward(*arguments)
        program = self._calls.get(self.graph.sizes.key(arguments))
        if program is not None and program.holds(arguments):
            return program(arguments)
        return self._first(arguments)

    def _first(self, arguments: Sequence[Any]) -> Any:
        """Return a call with new sizes or new weights: by the program of their bucket, or one is compiled."""
        sizes, numbers = self.graph.sizes.sizes_of(arguments), self.graph.sizes.numbers_of(arguments)
        for program in self.programs:
            if program.serves(sizes, numbers) and program.holds(arguments):
                return self._take(program, arguments, sizes)(arguments)
        return self._answered(arguments, sizes)

    def _take(
        self, program: TorchProgram, arguments: Sequence[Any], sizes: Mapping[str, int]
    ) -> TorchProgram:
        """Return a program for the sizes of a call, which later calls find by them."""
        if len(self._calls) >= _MOST_CALLS:
            self._calls.clear()
        return self._calls.setdefault(self.graph.sizes.key(arguments), program.at(sizes))

    def _answered(self, arguments: Sequence[Any], sizes: Mapping[str, int]) -> Any:
        """Return PyTorch's results of a call, with which those of the program that is compiled must agree."""
        weights = self._weights(arguments)
        versions = [_version(value) for value in arguments]
        expected = self.graph.module.forward(*arguments)
        written = [i for i, value in enumerate(arguments) if _version(value) != versions[i]]
        if written:
            self.leave(f"it writes to its input {written[0]}")
        elif self._is_open(arguments):
            try:
                self._compile(arguments, sizes, weights, expected)
            except (UsageError, MissError):
                raise
            except AutotuneError as error:
                self.leave(str(error).split("\n  supported:")[0])
        return expected

    def _is_open(self, arguments: Sequence[Any]) -> bool:
        """Return whether more may be compiled; leave a graph whose weights change too often."""
        if self._exported is not None and not self._exported.holds(arguments):
            self._exported, self._changes, self._memory = None, self._changes + 1, SharedConstants()
            self.programs.clear()
            self._calls.clear()
        if self._changes > MOST_CHANGES:
            self.leave(f"its weights changed more than {MOST_CHANGES} times")
        if len(self.programs) == MOST_PROGRAMS:
            _LOG.warning(
                "subgraph %d is compiled for %d buckets of its sizes: PyTorch runs others",
                self.number,
                MOST_PROGRAMS,
            )
        return not self.reason and len(self.programs) < MOST_PROGRAMS

    def _compile(
        self,
        arguments: Sequence[Any],
        sizes: Mapping[str, int],
        weights: RecordedWeights,
        expected: Sequence[Any],
    ) -> None:
        graph = self._exported
        if graph is None or graph.numbers != self.graph.sizes.numbers_of(arguments) or self._is_fixed(graph):
            graph = self._exported = exported(self.graph, arguments, weights, expected)
        self.made += 1
        program = self._program(graph, sizes).at(sizes)
        program = checked(program, arguments, expected)
        self.programs.append(replace(program, results=graph.results))
        self._calls[self.graph.sizes.key(arguments)] = program

    def _is_fixed(self, graph: ExportedGraph) -> bool:
        """Return whether a graph was exported for the sizes of one call, though others come."""
        return self.shapes_vary and graph.model is not None and not graph.symbols

    def _program(self, graph: ExportedGraph, sizes: Mapping[str, int]) -> TorchProgram:
        """Return a program for the buckets of some sizes; exact ones where what lies beyond a request cannot be masked.

        Raises ModelImportError and PaddingError of the last attempt."""
        attempts = [each for each in _attempts(graph.symbols) if each >= self.exact]
        parts = FINE if len(self.programs) < _FINE_PROGRAMS else COARSE
        for exact in attempts:
            buckets = {
                symbol: self.graph.sizes.bucket(symbol, sizes, parts)
                if symbol in graph.symbols and symbol not in exact
                else SizeBucket(size, size)
                for symbol, size in sizes.items()
            }
            try:
                program = compiled(graph, buckets, self.options, self._memory)
            except (ModelImportError, PaddingError) as error:
                if exact == attempts[-1]:
                    raise
                _LOG.info("subgraph %d has no buckets of all its sizes: %s", self.number, error)
            else:
                self.exact = exact
                return program
        raise AssertionError("the last attempt is for exact sizes")

    def _weights(self, arguments: Sequence[Any]) -> RecordedWeights:
        """Record the weights as they are now. Those of inference mode, which count no writes, are inputs instead."""
        given = {index: arguments[index] for index in self.weights if not arguments[index].is_inference()}
        return RecordedWeights.of(given, self.captured, self.hashed)

    def leave(self, reason: str) -> None:
        """Leave the graph to PyTorch from now on, and say so."""
        self.reason = reason
        self.programs.clear()
        self._calls.clear()
        _LOG.warning(
            "subgraph %d (%d operators) is run by PyTorch, not compiled: %s",
            self.number,
            self.operators,
            reason,
        )


def _attempts(symbols: Sequence[str]) -> Iterator[frozenset[str]]:
    """Yield sets of symbols to compile exactly: none, all but one, all."""
    yield frozenset()
    if len(symbols) > 1:
        yield from (frozenset(symbols) - {each} for each in symbols)
    if symbols:
        yield frozenset(symbols)


def _version(value: Any) -> int:
    """Return the number of writes to a tensor; tensors of inference mode do not count."""
    return int(value._version) if hasattr(value, "is_inference") and not value.is_inference() else 0


__all__ = ["MOST_CHANGES", "MOST_PROGRAMS", "Subgraph"]
