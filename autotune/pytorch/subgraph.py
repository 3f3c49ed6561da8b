"""One graph between two graph breaks: compiled for each shape that comes, or run by PyTorch, and why."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.errors import AutotuneError, MissError, UsageError
from autotune.pytorch.program import TorchProgram, Weight, compiled

MOST_PROGRAMS = 8
"""A graph that is given more shapes than these, or whose weights change more often, is PyTorch's."""

_LOG = logging.getLogger("autotune.pytorch")


@dataclass
class Subgraph:
    """The fate of one graph. ``operators`` is the number of its calls; ``reason`` says why PyTorch runs it, and is
    empty where it is compiled; ``programs`` are those compiled so far, by the shapes of their inputs.

    ``weights`` are the arguments that are the same tensors at every call, ``captured`` the tensors that the graph
    itself holds; ``hashed`` says whether their bytes are compared at each call."""

    number: int
    operators: int
    graph: Callable[..., Any] = field(repr=False)
    weights: tuple[int, ...] = field(repr=False)
    captured: tuple[Any, ...] = field(repr=False)
    hashed: bool
    shapes_vary: bool
    options: Mapping[str, Any] = field(repr=False)
    reason: str = ""
    programs: dict[Any, TorchProgram] = field(default_factory=dict, repr=False)
    made: int = 0

    @property
    def dispatches(self) -> int:
        """Of all programs."""
        return sum(len(each.module.dispatches) for each in self.programs.values() if each.module is not None)

    @property
    def seconds(self) -> float:
        """That compiling the programs took."""
        return sum(each.seconds for each in self.programs.values())

    @property
    def error(self) -> float:
        """The largest error of first results, relative to the largest value."""
        return max((each.error for each in self.programs.values()), default=0.0)

    def __call__(self, *arguments: Any) -> Any:
        """Return the results of a call, by compiled code or by PyTorch."""
        if self.reason:
            return self.graph(*arguments)
        program = self.programs.get(self._key(arguments))
        if program is not None and program.holds(arguments):
            return program(arguments)
        return self._first(arguments)

    def _key(self, arguments: Sequence[Any]) -> Any:
        """Return the key of a program. Where shapes are fixed PyTorch has checked them before the call."""
        if not self.shapes_vary:
            return None
        return tuple(
            (tuple(value.shape), tuple(value.stride())) if hasattr(value, "stride") else value
            for value in arguments
        )

    def _first(self, arguments: Sequence[Any]) -> Any:
        """Return a call with new shapes or new weights: PyTorch answers it, and the program that is
        compiled must agree."""
        weights = self._weights(arguments)
        versions = [_version(value) for value in arguments]
        expected = self.graph(*arguments)
        written = [i for i, value in enumerate(arguments) if _version(value) != versions[i]]
        if written:
            self.leave(f"it writes to its input {written[0]}")
        elif self.made >= MOST_PROGRAMS:
            self.leave(f"its shapes or weights changed more than {MOST_PROGRAMS} times")
        else:
            self.made += 1
            try:
                self.programs[self._key(arguments)] = compiled(
                    self.graph, arguments, weights, expected, self.options
                )
            except (UsageError, MissError):
                raise
            except AutotuneError as error:
                self.leave(str(error).split("\n  supported:")[0])
        return expected

    def _weights(self, arguments: Sequence[Any]) -> list[Weight]:
        """Record the weights as they are now. Those of inference mode, which count no writes, are inputs instead."""
        given = [(index, arguments[index]) for index in self.weights if not arguments[index].is_inference()]
        return [Weight.of(*pair, self.hashed) for pair in (*given, *((None, each) for each in self.captured))]

    def leave(self, reason: str) -> None:
        """Leave the graph to PyTorch from now on, and say so."""
        self.reason = reason
        self.programs.clear()
        _LOG.warning(
            "subgraph %d (%d operators) is run by PyTorch, not compiled: %s",
            self.number,
            self.operators,
            reason,
        )


def _version(value: Any) -> int:
    """Return the number of writes to a tensor; tensors of inference mode do not count."""
    return int(value._version) if hasattr(value, "is_inference") and not value.is_inference() else 0


__all__ = ["MOST_PROGRAMS", "Subgraph"]
