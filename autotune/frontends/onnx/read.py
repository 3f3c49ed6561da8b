"""Reading ONNX models from files, bytes or the zoo, with errors a person can act on.

What comes out is a ``ModelProto`` with a graph, without local functions, and a :class:`TensorReader`
that turns its tensors into arrays. External data is read only from the model's own folder.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from autotune.errors import ModelImportError, UsageError
from autotune.files import file_pages
from autotune.frontends.onnx.affinity import NamedDevices, named_devices
from autotune.frontends.onnx.budget import MAX_EXPANDED
from autotune.frontends.onnx.scope import graphs_of
from autotune.frontends.torch_export import EXPORTED, is_exported_program, to_onnx
from autotune.graph.ir import Array
from autotune.suggest import did_you_mean
from autotune.te.dtypes import STORAGE_DTYPES

if TYPE_CHECKING:
    import onnx
    import torch

ModelSource: TypeAlias = "str | os.PathLike[str] | bytes | onnx.ModelProto | torch.export.ExportedProgram"

MIN_OPSET, MAX_OPSET = 1, 28
ZOO_PREFIX = "zoo:"
BYTES = "model in bytes"
_DEFAULT_DOMAINS = ("", "ai.onnx")
_AGAIN = "copy or export the file again"
_LFS_POINTER = b"version https://git-lfs"
_ARCHIVE = b"PK\x03\x04"
_PROGRAM = b"/archive_format"
"""The name of a file in each archive of ``torch.export.save``."""


@dataclass(frozen=True)
class LoadedModel:
    """A parsed model, where it came from, and the folder of its external data (if it is a file)."""

    proto: Any
    origin: str
    folder: Path | None
    opset: int
    node_names: Mapping[str, str]
    """The name of the node that defines each value, as the file has it: before functions are expanded."""
    devices: NamedDevices
    given: Any
    """The model as the file has it."""
    values: Mapping[str, Array] = field(default_factory=dict)
    """Inputs that are constant from here on."""

    def __str__(self) -> str:
        return self.origin


def read_model(source: ModelSource) -> LoadedModel:
    """Parse and check a model: a path, ``zoo:NAME``, the bytes of a file, a ``ModelProto`` or an ``ExportedProgram``.

    Raises:
        UsageError: the file does not exist or is no file; there is no such zoo model.
        ModelImportError: this is no ONNX model, or one of an opset outside 1 to 28.
    """
    proto, origin, folder = _parse(source)
    _check_is_model(proto, origin)
    opset = _opset(proto, origin)
    names = _node_names(proto.graph)
    devices = named_devices(proto, origin, names)
    return LoadedModel(_inline_functions(proto, origin), origin, folder, opset, names, devices, proto)


def origin_of(source: ModelSource) -> str:
    """Return what messages and reports call a model; raises as :func:`read_model` does."""
    return str(source) if isinstance(source, str | os.PathLike) else read_model(source).origin


def _node_names(graph: Any) -> dict[str, str]:
    """Return the node that defines each value: its name, or its first output if it has no name of its own."""
    times = Counter(node.name for node in graph.node)
    return {
        value: node.name if node.name and times[node.name] == 1 else next(filter(None, node.output))
        for node in graph.node
        for value in node.output
        if value
    }


def _parse(source: ModelSource) -> tuple[Any, str, Path | None]:
    if isinstance(source, bytes):
        return _decode(source, BYTES), BYTES, None
    if isinstance(source, str) and source.startswith(ZOO_PREFIX):
        from autotune.frontends import zoo

        return zoo.load(source.removeprefix(ZOO_PREFIX)), source, None
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        return _decode(read_file(path), str(path)), str(path), path.parent
    if is_exported_program(source):
        return to_onnx(source), EXPORTED, None
    import onnx

    if not isinstance(source, onnx.ModelProto):
        raise UsageError(
            "a model is a path, 'zoo:NAME', bytes, an onnx.ModelProto or a torch.export.ExportedProgram, "
            f"not {type(source).__name__}"
        )
    return source, f"model {source.graph.name!r}", None


def read_file(path: Path) -> bytes:
    """Return the bytes of a model; raises UsageError where there is no such file, or it cannot be read."""
    try:
        if not path.exists():
            raise UsageError(f"no such file: {path}{_near(path)}")
        if not path.is_file():
            raise UsageError(f"not a file: {path}\n  give the .onnx file itself")
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


def _near(path: Path) -> str:
    """Return a file beside it, or a zoo model, that a missing path was meant to be."""
    from autotune.frontends import zoo

    beside = did_you_mean(path.name, [file.name for file in path.parent.glob("*.onnx")])
    return beside or ("" if path.suffix else did_you_mean(path.name, zoo.names(), ZOO_PREFIX))


def _decode(data: bytes, origin: str) -> Any:
    import onnx
    from google.protobuf.message import DecodeError

    if not data:
        raise ModelImportError(f"{origin} is empty: no ONNX model in it")
    if data.startswith(_LFS_POINTER):
        raise ModelImportError(
            f"{origin} is a Git LFS pointer, not the model itself\n  fetch it with `git lfs pull`"
        )
    try:
        return onnx.ModelProto.FromString(data)
    except (DecodeError, UnicodeDecodeError, ValueError) as error:
        raise ModelImportError(_undecodable(data, origin)) from error


def _undecodable(data: bytes, origin: str) -> str:
    head = data[:256]
    if data.startswith(_ARCHIVE) and _PROGRAM in data:
        return (
            f"{origin} is a program of torch.export, not an ONNX model\n  PyTorch runs what is pickled in it when it "
            "reads it: where you trust it, pass torch.export.load(PATH) to autotune.compile"
        )
    if data.startswith(_ARCHIVE):
        return (
            f"{origin} is a ZIP archive, not an ONNX model\n  if `autotune compile` wrote it, it is compiled "
            "already: `autotune run` and autotune.load take it"
        )
    if all(byte in b"\t\n\r" or 32 <= byte < 127 for byte in head):
        start = head.decode("ascii").strip().splitlines()[0][:40] if head.strip() else ""
        return f"{origin} is a text file, not an ONNX model (it starts with {start!r})"
    return f"{origin} is not an ONNX model, or it is damaged or cut short ({len(data)} bytes)\n  {_AGAIN}"


def _check_is_model(proto: Any, origin: str) -> None:
    if not proto.HasField("graph"):
        raise ModelImportError(f"{origin} has no graph: it is not an ONNX model, or it is damaged")
    if not proto.graph.node and not proto.graph.output:
        raise ModelImportError(f"{origin} has an empty graph: no nodes and no outputs")
    if not proto.graph.output:
        raise ModelImportError(f"{origin} has no outputs: nothing to compute")
    if not all(isinstance(name, str) for name in _names(proto.graph)):
        raise ModelImportError(f"{origin} is damaged: a name in it is not text\n  {_AGAIN}")


def _names(graph: Any) -> Iterator[object]:
    """Yield all names in a graph; protobuf gives bytes for one that is not UTF-8."""
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
    yield from (value.name for value in (*graph.input, *graph.output, *graph.initializer))


def _opset(proto: Any, origin: str) -> int:
    versions = [int(o.version) for o in proto.opset_import if o.domain in _DEFAULT_DOMAINS]
    if not versions and not any(node.domain in _DEFAULT_DOMAINS for node in proto.graph.node):
        return MAX_OPSET  # of which it has no node
    if not versions:
        raise ModelImportError(
            f"{origin} imports no opset of the ONNX domain\n  export it again with an opset from "
            f"{MIN_OPSET} to {MAX_OPSET}"
        )
    if not MIN_OPSET <= versions[0] <= MAX_OPSET:
        raise ModelImportError(
            f"{origin} has opset {versions[0]}; supported are {MIN_OPSET} to {MAX_OPSET}\n"
            f"  convert it with onnx.version_converter.convert_version(model, 17)"
        )
    return versions[0]


def _inline_functions(proto: Any, origin: str) -> Any:
    if not proto.functions:
        return proto
    import onnx.checker
    import onnx.inliner

    _check_expansion(proto, origin)
    try:
        return onnx.inliner.inline_local_functions(proto)
    except (RuntimeError, ValueError, onnx.checker.ValidationError) as error:  # what onnx's C++ parts raise
        raise ModelImportError(f"{origin}: cannot expand its functions: {error}") from error


def _check_expansion(proto: Any, origin: str) -> None:
    """Count the nodes of all functions in the place of their calls; raises ModelImportError for too many or a cycle."""
    functions = {(f.domain, f.name, getattr(f, "overload", "")): f for f in proto.functions}
    found: dict[tuple[str, str, str], int] = {}
    under_way: list[tuple[str, str, str]] = []

    def count(nodes: Any) -> int:
        return sum(one(node) for node in nodes)

    def one(node: Any) -> int:
        inside = sum(count(graph.node) for graph in graphs_of(node))
        return inside + max(1, of_function((node.domain, node.op_type, getattr(node, "overload", ""))))

    def of_function(key: tuple[str, str, str]) -> int:
        if key not in functions:
            return 0
        if key in under_way:
            calls = " -> ".join(repr(name) for _, name, _ in (*under_way[under_way.index(key) :], key))
            raise ModelImportError(
                f"{origin}: its functions call one another without end: {calls}\n  export the model without recursion"
            )
        if key not in found:
            under_way.append(key)
            found[key] = count(functions[key].node)
            under_way.pop()
        return found[key]

    try:
        expanded = count(proto.graph.node)
    except RecursionError:
        raise ModelImportError(f"{origin}: its functions call one another too deeply") from None
    if expanded > MAX_EXPANDED + len(proto.graph.node):
        raise ModelImportError(
            f"{origin}: its functions expand to {expanded} nodes; at most {MAX_EXPANDED} more than its graph has"
        )


@dataclass(frozen=True)
class TensorReader:
    """Turns ``TensorProto`` into arrays; external data must lie in ``folder``."""

    origin: str
    folder: Path | None

    def read(self, tensor: Any, what: str) -> Array:
        """Return the array of a tensor; ``what`` names it in errors.

        Raises:
            ModelImportError: the dtype is unsupported, data are missing, short, or outside the folder.
        """
        import onnx
        from onnx import numpy_helper

        dtype = element_dtype(tensor.data_type, f"{self.origin}: {what}")
        shape = tuple(tensor.dims)
        if any(extent < 0 for extent in shape):
            raise ModelImportError(f"{self.origin}: {what} has a negative dimension in its shape {shape}")
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            return self._external(tensor, what, np.dtype(dtype), shape)
        try:
            return np.ascontiguousarray(numpy_helper.to_array(tensor)).reshape(shape)
        except (ValueError, TypeError) as error:
            raise ModelImportError(
                f"{self.origin}: {what} is damaged: {error} (shape {shape}, {dtype})"
            ) from error

    def _external(self, tensor: Any, what: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        path = self._external_path(entries.get("location", ""), what)
        needed = math.prod(shape) * dtype.itemsize
        try:
            offset = int(entries.get("offset", 0))
            length = int(entries.get("length", needed))
        except ValueError as error:
            raise ModelImportError(
                f"{self.origin}: {what} has a damaged external data entry: {error}"
            ) from error
        available = path.stat().st_size - offset
        if offset < 0 or length != needed or available < needed:
            raise ModelImportError(
                f"{self.origin}: {what} needs {needed} bytes of external data, "
                f"{path.name} has {max(available, 0)} from offset {offset} "
                f"and the model says {length}"
            )
        little = dtype.newbyteorder("<")
        count = needed // dtype.itemsize
        if not count:
            return np.zeros(shape, dtype)
        data = file_pages(path, offset, needed).view(little)
        aligned = np.require(data, requirements=["A"])
        return aligned.astype(dtype, copy=False).reshape(shape)

    def _external_path(self, location: str, what: str) -> Path:
        if self.folder is None:
            raise ModelImportError(
                f"{self.origin}: {what} has its data in the file {location!r}, but the model was "
                "not read from a file\n  pass the path of the model instead"
            )
        folder = self.folder.resolve()
        try:
            path = (folder / location).resolve()
            there = path.is_file()
        except (OSError, ValueError, RuntimeError) as error:  # too long, a zero byte, links in a circle
            reason = error.strerror if isinstance(error, OSError) else error
            raise ModelImportError(
                f"{self.origin}: {what} has its data in {location[:80]!r}, which is no name of a file: {reason}"
            ) from error
        if not location or not path.is_relative_to(folder):
            raise ModelImportError(
                f"{self.origin}: {what} has its data in {location!r}, outside the model's folder\n"
                "  external data must lie in the folder of the model or below it"
            )
        if not there:
            raise ModelImportError(
                f"{self.origin}: {what} has its data in {location!r}, which is not there\n"
                f"  copy that file into {self.folder}"
            )
        return path


def element_dtype(data_type: int, where: str) -> str:
    """Return NumPy's name of an ONNX element type.

    Raises:
        ModelImportError: the type has no counterpart in the graph IR.
    """
    import onnx
    from onnx import helper

    known = onnx.TensorProto.DataType.values()
    name = onnx.TensorProto.DataType.Name(data_type) if data_type in known else str(data_type)
    if data_type in known and data_type != onnx.TensorProto.UNDEFINED:
        dtype = str(helper.tensor_dtype_to_np_dtype(data_type))
        if dtype in STORAGE_DTYPES and dtype == _numpy_name(name):
            return dtype
    raise ModelImportError(
        f"{where} has unsupported element type {name}\n  supported: {', '.join(STORAGE_DTYPES)}"
    )


def _numpy_name(onnx_name: str) -> str:
    for kind in ("FLOAT8", "FLOAT6", "FLOAT4"):
        onnx_name = onnx_name.replace(f"{kind}E", f"{kind}_E")
    plain = {"FLOAT": "float32", "DOUBLE": "float64", "FLOAT4_E2M1": "float4_e2m1fn"}
    plain |= {"FLOAT6_E2M3": "float6_e2m3fn", "FLOAT6_E3M2": "float6_e3m2fn"}
    return plain.get(onnx_name, onnx_name.lower())


__all__ = [
    "MAX_OPSET",
    "MIN_OPSET",
    "LoadedModel",
    "ModelSource",
    "TensorReader",
    "element_dtype",
    "origin_of",
    "read_file",
    "read_model",
]
