"""The manifest of an artifact: typed values to JSON and back, everything checked on the way in."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from autotune.errors import ArtifactError
from autotune.foreign import parse_json
from autotune.runtime.image import (
    BoundInPlace,
    Command,
    DispatchInfo,
    IndexCheck,
    RepeatedCommands,
    TensorSpec,
)
from autotune.target import Target

FORMAT = "autotune-module"
VERSION = 8

_T = TypeVar("_T")


@dataclass(frozen=True)
class Blob:
    """A member of the archive: size in bytes and hash of its contents (:mod:`autotune.runtime.artifacts.hashes`)."""

    path: str
    nbytes: int
    hash: str


@dataclass(frozen=True)
class ConstantBlob:
    """A constant tensor: dense row-major little-endian data in a member of the archive."""

    shape: tuple[int, ...]
    dtype: str
    blob: Blob


@dataclass(frozen=True)
class ExecutorBlob:
    """The runtime's machine code, for runtimes whose :func:`autotune.runtime.cpu.native.fingerprint` is this one."""

    fingerprint: str
    blob: Blob


@dataclass(frozen=True)
class StoredDispatch:
    """A dispatch of an image; its ``trace`` is a number in the manifest's table: steps of a loop have the same."""

    name: str
    workload_key: str
    kind: str
    schedule_source: str
    trace: int
    nodes: tuple[str, ...]
    flops: int
    dtype: str
    runs: int

    def info(self, traces: Sequence[str]) -> DispatchInfo:
        """Return what an image has; raises ArtifactError for a number beyond the table."""
        if not 0 <= self.trace < len(traces):
            raise ArtifactError(f"dispatch {self.name[:80]!r} has trace {self.trace} of {len(traces)}")
        return DispatchInfo(
            self.name,
            self.workload_key,
            self.kind,
            self.schedule_source,
            traces[self.trace],
            self.nodes,
            self.flops,
            self.dtype,
            self.runs,
        )


def stored_dispatches(
    dispatches: Sequence[DispatchInfo],
) -> tuple[tuple[StoredDispatch, ...], tuple[str, ...]]:
    """Return dispatches as a manifest has them, and the table of their traces."""
    traces = {text: number for number, text in enumerate(dict.fromkeys(d.trace_json for d in dispatches))}
    stored = tuple(
        StoredDispatch(
            each.name,
            each.workload_key,
            each.kind,
            each.schedule_source,
            traces[each.trace_json],
            each.nodes,
            each.flops,
            each.dtype,
            each.runs,
        )
        for each in dispatches
    )
    return stored, tuple(traces)


@dataclass(frozen=True)
class Manifest:
    """Everything of an image but the bytes of its object code and constants.

    ``libraries`` are the symbols of the library kernels that the object code calls. With one of the ``executors``
    a runtime needs no compiler.
    """

    format: str
    version: int
    name: str
    target: Target
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    commands: tuple[Command, ...]
    dispatches: tuple[StoredDispatch, ...]
    traces: tuple[str, ...]
    arena_bytes: int
    metadata: Mapping[str, str]
    checks: tuple[IndexCheck, ...]
    repeats: tuple[RepeatedCommands, ...]
    in_place: tuple[BoundInPlace, ...]
    libraries: tuple[str, ...]
    objects: tuple[Blob, ...]
    constants: tuple[ConstantBlob, ...]
    executors: tuple[ExecutorBlob, ...]

    @property
    def blobs(self) -> list[Blob]:
        """All members that it names."""
        code = [*(each.blob for each in self.executors), *self.objects]
        return [*code, *(constant.blob for constant in self.constants)]

    def to_json(self) -> str:
        """Return the canonical JSON, parsed back by :meth:`from_json`."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @staticmethod
    def from_json(data: bytes) -> Manifest:
        """Read and check a manifest; raises ArtifactError that says where it is wrong."""
        try:
            raw = parse_json(data)
        except ValueError as error:
            raise ArtifactError(f"the manifest is not JSON: {error}") from error
        if not isinstance(raw, dict) or raw.get("format") != FORMAT:
            raise ArtifactError(f"not an artifact: its format is not {FORMAT!r}")
        if raw.get("version") != VERSION:
            raise ArtifactError(
                f"format version {raw.get('version')!r}; this release reads version {VERSION}: "
                "compile the model again"
            )
        return decode(Manifest, raw, "manifest")


def decode(kind: Callable[..., _T], value: Any, where: str) -> _T:
    """Return a dataclass from parsed JSON, checked against its field types; raises ArtifactError."""
    hints = _hints(kind)
    if not isinstance(value, dict) or value.keys() != hints.keys():
        raise ArtifactError(f"{where}: expected an object with {', '.join(hints)}")
    return kind(**{name: _value(hint, value[name], f"{where}.{name}") for name, hint in hints.items()})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _value(hint: Any, value: Any, where: str) -> Any:
    """Return one field's value; the types are those that the values of an image have."""
    if is_dataclass(hint):
        return decode(hint, value, where)  # type: ignore[arg-type]
    origin = get_origin(hint)
    if origin is tuple and isinstance(value, list):
        item = get_args(hint)[0]
        return tuple(_value(item, v, f"{where}[{i}]") for i, v in enumerate(value))
    if origin is Literal and isinstance(value, str) and value in get_args(hint):
        return value
    if origin is Mapping and isinstance(value, dict):
        return {key: _value(str, v, f"{where}.{key}") for key, v in value.items()}
    if hint is type(value) and hint in (int, float, str):
        return value
    raise ArtifactError(f"{where}: expected {hint}, got {str(value)[:60]!r}")


__all__ = [
    "FORMAT",
    "VERSION",
    "Blob",
    "ConstantBlob",
    "ExecutorBlob",
    "Manifest",
    "StoredDispatch",
    "decode",
    "stored_dispatches",
]
