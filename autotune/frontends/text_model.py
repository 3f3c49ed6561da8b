"""Models written as the text of our graphs, with sizes that may be left open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from autotune.errors import GraphError, ModelImportError, UsageError
from autotune.frontends.sizes import Given, InputSizes, open_names
from autotune.graph.ir import Array, Graph, TensorType
from autotune.graph.text_file import parse_file
from autotune.graph.text_parser import Parser
from autotune.graph.verify import verify
from autotune.suggest import listing

_ANY = 1024
"""A size for those that are open, while only their names are wanted."""


class _Names(dict[str, int]):
    """Sizes that are not known yet."""

    def __missing__(self, name: str) -> int:
        self[name] = _ANY
        return _ANY


@dataclass(frozen=True)
class TextModel:
    """A model's text, where it came from, and the folder of its constants (if it is a file)."""

    text: str
    origin: str
    folder: Path | None
    inputs: Mapping[str, tuple[int | str, ...]]
    """Shapes of the inputs, with the names of dynamic dimensions."""
    values: Mapping[str, Array] = field(default_factory=dict)
    """Inputs that are constant from here on."""

    def __str__(self) -> str:
        return self.origin

    @classmethod
    def of(cls, data: bytes, origin: str, folder: Path | None) -> TextModel:
        """Parse a file's bytes; raises ModelImportError with the line and column of what is wrong."""
        names = _Names()
        try:
            text = data.decode("utf-8")
            graph = Parser(text, names, inferred=True).file().graph
        except UnicodeDecodeError as error:
            raise ModelImportError(f"{origin} is no text: {error}") from error
        except GraphError as error:
            raise ModelImportError(f"{origin}: {error}") from error
        inputs = {name: graph.shapes[name] for role, name in graph.sources if role == "input"}
        for name, shape in inputs.items():
            for size in shape:
                if isinstance(size, str) and not size.isidentifier():
                    raise ModelImportError(
                        f"{origin}: input {name!r} has the size {size!r}: those of inputs are numbers or names"
                    )
        unknown = sorted(set(names) - {size for shape in inputs.values() for size in shape})
        if unknown:
            raise ModelImportError(
                f"{origin}: no input has the size {unknown[0]!r}: nothing gives it a value"
            )
        return cls(text, origin, folder, inputs)

    def graph(self, shapes: Given, values: Mapping[str, Array]) -> Graph:
        """Return the graph with these dynamic dimensions, and inputs that are constant.

        Raises:
            UsageError: ``shapes`` or ``values`` do not fit.
            ModelImportError: sizes are missing, or the text is wrong.
        """
        values = {**self.values, **values}
        unknown = sorted({*values} - {*self.inputs})
        if unknown:
            raise UsageError(
                f"{self.origin} has no input {unknown[0]!r}\n  inputs: {listing(unknown[0], self.inputs)}"
            )
        sizes = self._sizes({**shapes, **{name: array.shape for name, array in values.items()}})
        try:
            graph = parse_file(self.text, self.folder, sizes)
            graph = _with_constants(graph, values)
            verify(graph)
        except GraphError as error:
            raise ModelImportError(f"{self.origin}: {error}") from error
        if not graph.outputs:
            raise ModelImportError(f"{self.origin} has no outputs: nothing to compute")
        return graph.pruned()

    def _sizes(self, given: Given) -> dict[str, int]:
        """Return the dynamic dimensions by their names."""
        sizes = InputSizes(self.origin, self.inputs, given)
        sizes.check_complete(self.inputs)
        return {name: size for name in open_names(self.inputs) if (size := sizes.size(name)) is not None}


def _with_constants(graph: Graph, values: Mapping[str, Array]) -> Graph:
    """Return the graph with inputs that are constant."""
    for name, array in values.items():
        found, declared = TensorType.of(np.asarray(array)), graph.type_of(name)
        if found != declared:
            raise UsageError(f"value {found} does not fit input {name!r}, which is {declared}")
    inputs = tuple(name for name in graph.inputs if name not in values)
    return graph.replace(inputs=inputs, constants={**graph.constants, **values})


__all__ = ["TextModel"]
