"""The worker's side of whole models: versions of one are in one process and take turns.

Requests: ``load`` (an artifact), ``profile`` (a turn, dispatch by dispatch) and ``time`` (a turn,
the whole model). The first run of a turn is never counted: it finds the caches as another model left
them. In the runs after it every dispatch finds them as it does in use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autotune.runtime.device import Memory

if TYPE_CHECKING:
    from autotune.runtime.module import Module

_VERSIONS: dict[int, tuple[Module, dict[str, NDArray[Any]]]] = {}


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


def load(request: dict[str, Any]) -> dict[str, Any]:
    """Load the artifact ``path`` as a version of the model, with random inputs; nanoseconds of a run."""
    from autotune.runtime import artifact
    from autotune.runtime.module import Module
    from autotune.tuning.random_inputs import random_inputs

    image = artifact.load(request["path"])
    module = Module(image, image.target.threads, memory=_MEMORY)
    inputs = random_inputs(module.inputs, request["seed"])
    _VERSIONS[request["version"]] = module, inputs
    return {"ns": int(module.time(inputs, warmup=1, repeat=1).min())}


def profile(request: dict[str, Any]) -> dict[str, Any]:
    """Nanoseconds of each dispatch, the least of ``runs`` runs of one version."""
    module, inputs = _VERSIONS[request["version"]]
    module.profile(inputs, repeat=1)
    taken = [module.profile(inputs, repeat=1) for _ in range(request["runs"])]
    return {"ns": np.min(taken, axis=0).tolist()}


def time(request: dict[str, Any]) -> dict[str, Any]:
    """Nanoseconds of each of ``runs`` runs of one version."""
    module, inputs = _VERSIONS[request["version"]]
    return {"ns": module.time(inputs, warmup=1, repeat=request["runs"]).tolist()}


__all__ = ["Shared", "load", "profile", "time"]
