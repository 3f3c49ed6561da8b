"""The base of graph passes: a frozen value with a name, typed options and ``apply``."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from autotune.graph.ir import Graph
from autotune.passes.partition import Partition, partition


@dataclass(frozen=True)
class GraphPass(ABC):
    """A function from graph to graph; the fields of a subclass are its options.

    ``str(pass)`` names it with the options that differ from their defaults.
    """

    name: ClassVar[str]

    @abstractmethod
    def apply(self, graph: Graph) -> Graph:
        """Return the transformed graph; the same object if nothing changes."""

    def __str__(self) -> str:
        options = [
            f"{field.name}={getattr(self, field.name)}"
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        ]
        return f"{self.name}{{{' '.join(options)}}}" if options else self.name


REORDERED_ATTENTION = 1e-5
"""The error declared where attention is summed in another order: several times what was seen with 2048 keys."""


PROMISING = 2.0
"""The analytic model is rarely further off than this when it compares options."""


class Algorithm(GraphPass):
    """Another way to compute a region: a pass over its graph, in which it may become several regions.

    ``apply`` gives the very same graph back where the algorithm cannot compute the region. What is the same for every
    value of a subclass is an attribute of the class there.
    """

    @property
    @abstractmethod
    def label(self) -> str:
        """The name that databases store and users read."""

    @property
    def speculative(self) -> bool:
        """Return whether it is not estimated where nothing is tuned, as its estimate has not been seen
        to gain anything."""
        return False

    @property
    @abstractmethod
    def error(self) -> float:
        """The bound on its error that is declared, over the largest magnitude of the exact result.

        It holds for inputs and weights of independent elements. An algorithm that exceeds it when it
        is measured is not used.
        """

    @property
    def promising(self) -> float:
        """Return the factor by which its estimate may exceed that of the fastest option for it to be
        measured at all."""
        return PROMISING

    @property
    def amplification(self) -> float:
        """Return the factor by which an error in its weights counts more in the result than directly."""
        return 1.0

    @property
    def feature(self) -> str:
        """The feature of x86-64 without which it is too slow to be tried, if any."""
        return ""

    def divide(self, graph: Graph) -> Partition:
        """Return the dispatches of what :meth:`apply` gave."""
        return partition(graph)

    @property
    def growth(self) -> float:
        """Return the factor by which a value that is computed from an input may exceed the input's largest magnitude.

        Above 1, inputs beyond the largest number over it may overflow, and what is not finite in an input may
        reach all results of its tile.
        """
        return 1.0


__all__ = ["PROMISING", "REORDERED_ATTENTION", "Algorithm", "GraphPass"]
