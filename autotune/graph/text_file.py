"""Models as text files: a graph with the values of its constants, and the graphs inside as functions.

::

    constants "small.npz"
    graph small {
      input x: float32[batch, 4]
      const w: float32[4, 512] = data 2cf24dba5fb0a30e26e83b2ac5b9e29e
      const b: float32[3] = [0.5, -1.0, 2.0]
      y = MatMul(x, w) : float32[batch, 512]
      s, t = Loop(s0, y) {body=@step, carried=1, from_end=[0, 0], scanned=1, trips=batch} : ...
      output t
    }
    function step {
      ...
    }

A few elements stand in the text. More lie in a ZIP archive of ``.npy`` files (what ``numpy.savez`` writes), in the
folder of the text: as bytes, under the first half of the SHA-256 of type, shape and bytes, which reading checks.
Several texts of a folder may share one.
"""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from autotune.errors import GraphError, UsageError
from autotune.graph.build import complete_node
from autotune.graph.ir import Array, Graph, Node, TensorType
from autotune.graph.ops.loop import GRAPHS
from autotune.graph.text import graph_of, name_text, print_graph
from autotune.graph.text_parser import FunctionName, Parsed, ParsedFile, Parser
from autotune.te.dtypes import is_float

FEW = 16
"""So many elements stand in the text."""
_BEGINNING = re.compile(rb"\s*(?:#[^\n]*\n\s*)*(?:graph|constants)\s")
_HEADER = 4096
"""More bytes than the header of a ``.npy`` file has."""
_PLAIN = (
    "bool",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float32",
    "float64",
)
"""Types whose elements are in the text as NumPy prints and reads them."""


def is_text(data: bytes) -> bool:
    """Return whether a file's first bytes are those of a model's text."""
    return _BEGINNING.match(data) is not None


def key_of(array: Array) -> str:
    """Return the name of a constant's data: 32 digits of a hash of its type, shape and bytes."""
    found = hashlib.sha256(f"{array.dtype}{list(array.shape)}".encode())
    found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:32]


def write_file(graph: Graph, path: Path, constants: str = "") -> None:
    """Write a graph as text, and its larger constants beside it: into the file ``constants``, else ``STEM.npz``.

    What that file has already stays. Raises OSError, and UsageError where the two would be one file.
    """
    write_text(graph, file_text(graph, constants or f"{path.stem}.npz"), path, constants)


def write_text(graph: Graph, text: str, path: Path, constants: str = "") -> None:
    """Write a text of a graph, and the graph's larger constants as :func:`write_file` does."""
    name = constants or f"{path.stem}.npz"
    if name == path.name:
        raise UsageError(
            f"{path}: the constants would be written over the text: give it another suffix than .npz"
        )
    keys = _keys(graph)
    _store(path.parent / name, {key: graph.constants[value] for value, key in keys.items()})
    path.write_text(text + "\n", encoding="utf-8")


def _keys(graph: Graph) -> dict[str, str]:
    """Return the names of the data of constants that do not stand in the text."""
    return {value: key_of(array) for value, array in graph.constants.items() if not _in_text(array)}


def file_text(graph: Graph, constants: str) -> str:
    """Return the text of a model, whose larger constants lie in the file ``constants``."""
    keys, functions = _keys(graph), dict[str, str]()
    names: dict[str, str] = {}

    def value_text(value: str) -> str:
        if value in keys:
            return f" = data {keys[value]}"
        return f" = [{', '.join(map(str, graph.constants[value].reshape(-1).tolist()))}]"

    def function_of(node: Node, attribute: str) -> str | None:
        text = str(node.attrs[attribute]) if attribute in GRAPHS.get(node.op, ()) else ""
        if not text:
            return None
        if text not in names:
            body = graph_of(Parser(text).program("graph"), lambda name: np.empty(0))
            names[text] = name = _fresh(body.name, names.values())
            functions[name] = ""  # keeps its place before those inside
            functions[name] = print_graph(
                body.replace(name=name), keyword="function", function_of=function_of
            )
        return names[text]

    text = print_graph(graph, value_text=value_text, function_of=function_of)
    head = [f"constants {name_text(constants)}"] if keys else []
    return "\n".join([*head, text, *functions.values()])


def _fresh(name: str, taken: object) -> str:
    count, found = 1, name
    while found in taken:  # type: ignore[operator]
        count, found = count + 1, f"{name}_{count + 1}"
    return found


def _in_text(array: Array) -> bool:
    few = array.size <= FEW and str(array.dtype) in _PLAIN
    return few and not (array.dtype.kind == "f" and np.isnan(array).any())  # whose bits text would lose


def _store(path: Path, arrays: Mapping[str, Array]) -> None:
    if not arrays:
        return
    with zipfile.ZipFile(path, "a", zipfile.ZIP_STORED) as archive:
        known = set(archive.namelist())
        for key, array in arrays.items():
            if f"{key}.npy" not in known:
                data = io.BytesIO()
                np.save(data, np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8))
                archive.writestr(f"{key}.npy", data.getvalue())
                known.add(f"{key}.npy")


def parse_file(text: str, folder: Path | None, sizes: Mapping[str, int] | None = None) -> Graph:
    """Return the graph of a model's text. Types and attributes that operators infer may be left out.

    ``folder`` is where its constants may lie, ``sizes`` the values of named sizes.

    Raises:
        GraphError: what is wrong, with line and column where it is one of the text; the result is not verified.
    """
    parsed = Parser(text, sizes or {}, inferred=True).file()
    values = _Values(parsed, folder)
    return _resolved(parsed.graph, parsed, values, ())


def _resolved(found: Parsed, file: ParsedFile, values: _Values, inside: tuple[str, ...]) -> Graph:
    """Return a graph or function with functions in their places, and complete."""
    graph = graph_of(found, lambda name: values.of(found, name))
    types, nodes = dict(graph.types), list[Node]()
    for node in graph.nodes:
        attrs = dict(node.attrs)
        for key, value in attrs.items():
            if isinstance(value, FunctionName):
                attrs[key] = str(_function(value, file, values, inside))
        complete, inferred = complete_node(node.replace(attrs=attrs), types)
        for value, tensor_type in inferred.items():
            types.setdefault(value, tensor_type)
        nodes.append(complete)
    return graph.replace(nodes=tuple(nodes), types=types)


def _function(name: str, file: ParsedFile, values: _Values, inside: tuple[str, ...]) -> Graph:
    if name not in file.functions:
        known = ", ".join(file.functions) or "none"
        raise GraphError(f"there is no function {name!r} in the file; there are: {known}")
    if name in inside:
        raise GraphError(f"function {name!r} is its own body")
    found = _resolved(file.functions[name], file, values, (*inside, name))
    if found.constants:
        raise GraphError(f"function {name!r} has constants: they must be inputs")
    return found


class _Values:
    """The values of a file's constants."""

    def __init__(self, file: ParsedFile, folder: Path | None) -> None:
        self._name, self._folder = file.constants, folder

    def of(self, graph: Parsed, name: str) -> Array:
        """Return the constant of a name; raises GraphError."""
        given, declared = graph.values.get(name), graph.types[name]
        where = f"constant {name!r} ({declared.dense})"
        if given is None:
            raise GraphError(
                f"{where} has no value\n  write it as {name_text(name)}: {declared.dense} = [...]"
            )
        return (
            self._data(given, declared, where)
            if isinstance(given, str)
            else _elements(given, declared, where)
        )

    def _data(self, key: str, declared: TensorType, where: str) -> Array:
        if not self._name:
            raise GraphError(
                f'{where} has data beside the text, which does not begin with constants "FILE.npz"'
            )
        if Path(self._name).name != self._name or self._name in (".", ".."):
            raise GraphError(
                f"{where} has its data in {self._name!r}: constants lie in the folder of the text itself"
            )
        if self._folder is None:
            raise GraphError(f"{where} has its data in {self._name!r}, but the text was not read from a file")
        path, dtype = self._folder / self._name, np.dtype(declared.dtype)
        needed = declared.size * dtype.itemsize
        data = None
        try:
            with zipfile.ZipFile(path) as archive:
                stored = archive.getinfo(f"{key}.npy")
                size = stored.file_size
                if size <= needed + _HEADER:
                    data = np.load(io.BytesIO(archive.read(stored)), allow_pickle=False)
        except FileNotFoundError as error:
            raise GraphError(
                f"{where} has its data in {path}, which is not there\n  copy it there"
            ) from error
        except KeyError as error:
            raise GraphError(f"{where} has its data under {key} in {path}, which does not have it") from error
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise GraphError(f"{where}: {path} is damaged: {error}") from error
        if data is None or data.dtype != np.uint8 or data.nbytes != needed:
            raise GraphError(
                f"{where} needs {needed} bytes; {path} has others under {key} ({size} with their header)"
            )
        array = np.frombuffer(data.tobytes(), dtype).reshape(declared.shape)
        if key_of(array) != key:
            raise GraphError(
                f"{where}: its data in {path} are not those that the text was written with (hash {key})"
            )
        return array


def _elements(words: tuple[str, ...], declared: TensorType, where: str) -> Array:
    if len(words) != declared.size:
        raise GraphError(f"{where} has {len(words)} elements, its type has {declared.size}")
    try:
        if declared.dtype == "bool":
            found = [{"True": True, "False": False, "true": True, "false": False}[word] for word in words]
            return np.array(found, np.bool_).reshape(declared.shape)
        if is_float(declared.dtype):
            return np.array([float(w) for w in words]).astype(declared.dtype).reshape(declared.shape)
        return np.array([int(w) for w in words], declared.dtype).reshape(declared.shape)
    except (KeyError, ValueError, OverflowError) as error:
        raise GraphError(f"{where}: {error} is no element of it") from error


__all__ = ["FEW", "file_text", "is_text", "key_of", "parse_file", "write_file"]
