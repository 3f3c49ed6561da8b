"""The worker of whole models: versions of one are in one process and take turns.

Run as ``python -m autotune.tuning.measure.models``; JSON lines in and out, see :mod:`autotune.workers.serve`. Requests:
``warm_up``, ``load`` (a version), ``profile`` (a turn, dispatch by dispatch) and ``time`` (a turn, the whole model).
The first run of a turn is never counted: it finds the caches as another model left them. In the runs after it every
dispatch finds them as it does in use.

Each measuring process is a fresh one, so that it loads the runtime and nothing else.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import MeasureError
from autotune.runtime import native
from autotune.runtime.device import Memory
from autotune.runtime.folder import FolderReader
from autotune.runtime.image import ModuleImage
from autotune.runtime.module import Module
from autotune.tuning.random_inputs import random_inputs
from autotune.workers.serve import Handler, serve

if TYPE_CHECKING:
    from autotune.runtime.placed_module import PlacedModule

_VERSIONS: dict[int, tuple[Module | PlacedModule, dict[str, NDArray[Any]]]] = {}


class Shared(Memory):
    """Memory of versions that take turns: all have their intermediate values in the same place, so that where that
    happens to lie makes no difference between them."""

    def __init__(self) -> None:
        self._pieces: dict[str, NDArray[np.uint8]] = {}

    def allocate(self, nbytes: int, use: str) -> NDArray[np.uint8]:
        """The beginning of the piece for a use; a larger one takes its place for later versions."""
        if use not in self._pieces or self._pieces[use].nbytes < nbytes:
            self._pieces[use] = super().allocate(nbytes, use)
        return self._pieces[use][:nbytes]


_MEMORY = Shared()
_READER = FolderReader()


def warm_up(request: dict[str, Any]) -> dict[str, Any]:
    """Load the executor that the job has compiled; raises MeasureError where the file is not what the job wrote."""
    code = Path(request["executor"]).read_bytes()
    if hashlib.sha256(code).hexdigest() != request["sha256"]:
        raise MeasureError(f"{request['executor']} was changed: its SHA-256 is not {request['sha256']}")
    native.give(code)
    native.executor()
    return {}


def load(request: dict[str, Any]) -> dict[str, Any]:
    """Load ``path``, an image or a program, as a version of the model, with random inputs; nanoseconds of a run."""
    path = Path(request["path"])
    module = _placed(path) if path.suffix == ".atm" else _module(path)
    inputs = random_inputs(module.inputs, request["seed"])
    _VERSIONS[request["version"]] = module, inputs
    return {"ns": int(module.time(inputs, warmup=1, repeat=1).min())}


def _module(path: Path) -> Module:
    image = _READER.image(path)
    return Module(image, image.target.threads, memory=_MEMORY)


def _placed(path: Path) -> PlacedModule:
    from autotune.runtime.placed_module import PlacedModule
    from autotune.runtime.program_artifact import load_either

    program = load_either(path)
    assert not isinstance(program, ModuleImage)
    return PlacedModule(program)


def profile(request: dict[str, Any]) -> dict[str, Any]:
    """Nanoseconds of each dispatch, the least of ``runs`` runs of one version."""
    module, inputs = _VERSIONS[request["version"]]
    if not isinstance(module, Module):
        raise MeasureError("a program of several devices has no profile by dispatch")
    return {"ns": module.profiles(inputs, request["runs"]).min(axis=0).tolist()}


def time(request: dict[str, Any]) -> dict[str, Any]:
    """Nanoseconds of each of ``runs`` runs of one version."""
    module, inputs = _VERSIONS[request["version"]]
    return {"ns": module.time(inputs, warmup=1, repeat=request["runs"]).tolist()}


HANDLERS: dict[str, Handler] = {"warm_up": warm_up, "load": load, "profile": profile, "time": time}


def main() -> None:
    """Serve requests until standard input ends."""
    serve(HANDLERS)


if __name__ == "__main__":
    main()

__all__ = ["HANDLERS", "Shared", "load", "main", "profile", "time", "warm_up"]
