"""Machine code of a dispatch as JSON, for the pipe to the process that runs it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from autotune.codegen.code import BufferSpec, DispatchCode, Kernel, Launch


def to_json(code: DispatchCode) -> dict[str, Any]:
    """Return the code without its LLVM IR text, which nobody needs to run it."""
    return {
        "object": base64.b64encode(code.object_code).decode(),
        "kernels": [asdict(kernel) for kernel in code.kernels],
        "buffers": [asdict(buffer) for buffer in code.buffers],
        "overwriting": [list(pair) for pair in code.overwriting],
        "key": code.key,
    }


def from_json(data: Mapping[str, Any]) -> DispatchCode:
    """Read what :func:`to_json` gave."""
    kernels = (
        Kernel(**{**k, "buffers": tuple(k["buffers"]), "launch": _launch(k["launch"])})
        for k in data["kernels"]
    )
    buffers = (BufferSpec(**{**b, "shape": tuple(b["shape"])}) for b in data["buffers"])
    pairs = tuple((output, source) for output, source in data["overwriting"])
    return DispatchCode(
        base64.b64decode(data["object"]), tuple(kernels), tuple(buffers), "", pairs, data["key"]
    )


def _launch(data: Mapping[str, Any] | None) -> Launch | None:
    if data is None:
        return None
    grid = data["grid"]
    return Launch(None if grid is None else tuple(grid), tuple(data["block"]))


__all__ = ["from_json", "to_json"]
