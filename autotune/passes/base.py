"""What a graph pass is: a frozen value with a name, typed options and ``apply``."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from autotune.graph.ir import Graph


@dataclass(frozen=True)
class GraphPass(ABC):
    """A function from graph to graph; the fields of a subclass are its options.

    ``str(pass)`` names it with the options that differ from their defaults.
    """

    name: ClassVar[str]

    @abstractmethod
    def apply(self, graph: Graph) -> Graph:
        """The transformed graph; the same object if nothing changes."""

    def __str__(self) -> str:
        options = [
            f"{field.name}={getattr(self, field.name)}"
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        ]
        return f"{self.name}{{{' '.join(options)}}}" if options else self.name


__all__ = ["GraphPass"]
