"""The models that a job is asked to tune: what is wrong with one of them is said before anything is measured."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from autotune.compiler import divide
from autotune.compiler.dividing import imported, on_one_device
from autotune.compiler.request import CompileRequest, MachineOptions
from autotune.compiler.sites.decision import model_row
from autotune.errors import ModelImportError, UsageError
from autotune.frontends.models import declared_shapes, read_model
from autotune.frontends.sizes import Declared, open_names
from autotune.graph.ir import Graph
from autotune.suggest import listing
from autotune.target import Target

if TYPE_CHECKING:
    from autotune.compiler.dividing import Model
    from autotune.passes.partition import Partition

SUFFIX = ".onnx"
"""Of the files of a folder that are models."""


@dataclass(frozen=True)
class AskedModel:
    """A model of a job, read: by its request, as a graph and in dispatches."""

    source: Model
    name: str
    request: CompileRequest
    graph: Graph
    parts: Partition

    def by(self, request: CompileRequest) -> AskedModel:
        """Return it as another request divides it."""
        if request.layout == self.request.layout and request.one_target() == self.request.one_target():
            return replace(self, request=request)
        return replace(self, request=request, parts=_divided(self.graph, request))


def sources_of(model: Model | Sequence[Model]) -> list[Model]:
    """Return the models that are given: one, several, those of folders; each file once. Raises UsageError."""
    given = list(model) if isinstance(model, list | tuple) else [model]
    found: dict[object, Model] = {}
    for source in (each for one in given for each in _files(one)):
        found.setdefault(os.fspath(source) if isinstance(source, str | Path) else id(source), source)
    if not found:
        raise UsageError("tune takes a model, several or a folder of them, got an empty list")
    return list(found.values())


def _files(source: Model) -> list[Model]:
    """Return the ONNX files of a folder, in the order of their names; anything else is a model itself."""
    if not isinstance(source, str | Path) or not os.path.isdir(source):
        return [source]
    files = sorted(path for path in Path(source).iterdir() if path.suffix == SUFFIX)
    if not files:
        raise UsageError(f"{source} is a folder without models: none of its files ends in {SUFFIX}")
    return list(map(str, files))


def read_models(sources: Sequence[Model], **options: Unpack[MachineOptions]) -> list[AskedModel]:
    """Read models, and divide each into its dispatches; raises what is wrong with the first that is not as it should
    be. Of several models each takes those of the sizes that it leaves open."""
    requests = [CompileRequest(source, **options).checked() for source in sources]
    if len(sources) > 1 and requests[0].shapes:
        requests = _own_sizes(requests)
    return named([_read(source, request) for source, request in zip(sources, requests, strict=True)])


def _own_sizes(requests: Sequence[CompileRequest]) -> list[CompileRequest]:
    """Return the requests, each with the sizes of its model; raises UsageError for one that is no model's."""
    names = [{*declared, *open_names(declared)} for declared in map(_declared, requests)]
    for name in requests[0].shapes or {}:
        if not any(name in own for own in names):
            known = sorted(set[str]().union(*names))
            raise UsageError(
                f"none of {len(requests)} models has an input or an open dimension {name!r}\n"
                f"  they have: {listing(name, known) or 'none'}"
            )
    return [
        replace(request, shapes={name: size for name, size in (request.shapes or {}).items() if name in own})
        for request, own in zip(requests, names, strict=True)
    ]


def _declared(request: CompileRequest) -> Declared:
    """Return the shapes that a model declares; none of a graph, whose sizes are fixed."""
    return {} if isinstance(request.model, Graph) else declared_shapes(read_model(request.model))


def _read(source: Model, request: CompileRequest) -> AskedModel:
    graph = on_one_device(imported(request.model, request.shapes))
    parts = _divided(graph, request)
    name = str(source) if isinstance(source, str | Path) else parts.name
    if not parts.dispatches:
        raise ModelImportError(
            f"{name}: nothing of the model is computed at run time: there is nothing to tune"
        )
    return AskedModel(source, name, request, graph, parts)


def _divided(graph: Graph, request: CompileRequest) -> Partition:
    return divide(graph, layout=request.layout, target=request.one_target())


def named(models: Sequence[AskedModel]) -> list[AskedModel]:
    """Return models with distinct names: of those that have the same name the later ones are numbered."""
    found: dict[str, AskedModel] = {}
    for model in models:
        names = [model.name, *(f"{model.name} ({number})" for number in range(2, len(models) + 1))]
        name = next(name for name in names if name not in found)
        found[name] = replace(model, name=name)
    return list(found.values())


_NOTED = ("shapes", "values", "tolerance", "finite")
"""Options of a request that say what a model is divided into."""


def source_of(models: Sequence[AskedModel], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return, as JSON values, what reads models again: their files or names, none of objects, and options."""
    files = [
        None
        if not isinstance(each.source, str | Path)
        else os.path.abspath(each.source)
        if os.path.exists(each.source)
        else str(each.source)
        for each in models
    ]
    noted = {name: options[name] for name in _NOTED if options.get(name) is not None}
    return {"models": files, **json.loads(json.dumps(noted, default=_as_json))}


def _as_json(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


def asked_key(models: Sequence[AskedModel], search: Sequence[object]) -> str:
    """Return what is equal for calls that ask for the same job: SHA-256 (hex) of the models as they were read, with
    what is decided of them, and of the options of a ``search``. It takes no look into their dispatches."""
    asked = sorted(json.dumps(_identity(each)) for each in models)
    return hashlib.sha256(json.dumps([asked, *search]).encode()).hexdigest()


def _identity(asked: AskedModel) -> list[object]:
    request = asked.request
    decisions, preference = sorted((request.decisions or {}).items()), repr(request.preference)
    return [model_row(asked.graph).key, request.one_target().key, decisions, preference]


def common_target(models: Sequence[AskedModel]) -> Target:
    """Return the target of all models; raises UsageError where other threads were decided for some."""
    targets = {model.request.one_target(): model.name for model in models}
    if len(targets) > 1:
        decided = "; ".join(f"{name}: {target.threads}" for target, name in targets.items())
        raise UsageError(
            f"models of one job run with the same threads, and others were decided for some ({decided})\n"
            "  give the threads, or tune the models one by one"
        )
    return next(iter(targets))


__all__ = ["AskedModel", "asked_key", "common_target", "named", "read_models", "source_of", "sources_of"]
