"""Models of any kind as graphs: ONNX in all its forms, the zoo, PyTorch's exported programs, and text."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from autotune.errors import ModelImportError
from autotune.frontends.onnx import declared
from autotune.frontends.onnx import importer as onnx
from autotune.frontends.onnx import read as onnx_read
from autotune.frontends.onnx.read import BYTES, ZOO_PREFIX, LoadedModel, ModelSource
from autotune.frontends.sizes import Declared, Given
from autotune.frontends.text_model import TextModel
from autotune.graph.ir import Array, Graph
from autotune.graph.text_file import is_text

ReadModel: TypeAlias = "LoadedModel | TextModel"
_HEAD = 4096


def read_model(source: ModelSource | ReadModel) -> ReadModel:
    """Parse and check a model, of which the sizes may be open; what was read already is as it is.

    Raises:
        UsageError: the file does not exist or is no file; there is no such zoo model.
        ModelImportError: this is no model, or one that is not supported.
    """
    if isinstance(source, (LoadedModel, TextModel)):
        return source
    if isinstance(source, bytes) and is_text(source[:_HEAD]):
        return TextModel.of(source, BYTES, None)
    if isinstance(source, (str, os.PathLike)) and not str(source).startswith(ZOO_PREFIX):
        path = Path(source)
        if os.path.isfile(path) and is_text(_head(path)):  # Path.is_file raises where a folder is locked
            return TextModel.of(onnx_read.read_file(path), str(path), path.parent)
    return onnx_read.read_model(source)


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD)
    except OSError:
        return b""  # reading it whole says why


def load(
    source: ModelSource | ReadModel,
    *,
    shapes: Given | None = None,
    values: Mapping[str, Array] | None = None,
) -> Graph:
    """Return the graph of a model; arguments and errors are those of :func:`autotune.frontends.onnx.importer.load`."""
    model = read_model(source)
    if isinstance(model, TextModel):
        return model.graph(shapes or {}, values or {})
    return onnx.load(model, shapes=shapes, values=values)


def with_values(source: ModelSource | ReadModel, values: Mapping[str, Array]) -> ReadModel:
    """Return a model of which these inputs are constant from here on; errors are those of :func:`read_model`."""
    model = read_model(source)
    return replace(model, values={**model.values, **values})


def load_traced(model: ReadModel, shapes: Given, assumed: Mapping[str, int] | None = None) -> onnx.Traced:
    """Return the graph of a model, and what was evaluated on the way to it: nothing for a text.

    ``assumed`` is that of :func:`autotune.frontends.onnx.importer.load_traced`.
    """
    if isinstance(model, TextModel):
        graph = model.graph(shapes, {})
        return onnx.Traced(graph, {}, graph.types, graph.constants)
    return onnx.load_traced(model, shapes, assumed)


def load_begun(model: ReadModel, shapes: Given, assumed: Mapping[str, int]) -> onnx.Begun:
    """Return :func:`autotune.frontends.onnx.importer.load_begun`; a text computes no lengths, and knows nothing."""
    return onnx.Begun({}, {}, {}) if isinstance(model, TextModel) else onnx.load_begun(model, shapes, assumed)


def declared_shapes(model: ReadModel) -> Declared:
    """Return the shapes of a model's inputs, with the names of open dimensions, ``INPUT.AXIS`` for one without."""
    if isinstance(model, TextModel):
        return {name: shape for name, shape in model.inputs.items() if name not in model.values}
    return declared.declared_shapes(declared.inputs_of(model))


def open_shapes(model: ReadModel) -> dict[str, list[int | str]]:
    """Return inputs of a model that leave sizes open; raises ModelImportError for an input of unknown rank."""
    found = dict[str, list[int | str]]()
    for name, shape in declared_shapes(model).items():
        if shape is None:
            raise ModelImportError(f"{model.origin}: input {name!r} has no rank\n  give it a shape")
        if any(isinstance(extent, str) for extent in shape):
            found[name] = [*shape]
    return found


__all__ = [
    "ReadModel",
    "declared_shapes",
    "load",
    "load_begun",
    "load_traced",
    "open_shapes",
    "read_model",
    "with_values",
]
