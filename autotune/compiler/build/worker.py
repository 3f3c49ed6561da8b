"""A build worker: ``python -m autotune.compiler.build.worker``, see :mod:`autotune.compiler.build.workers`."""

from __future__ import annotations

import gc
from typing import Any

from autotune import library
from autotune.compiler.build.build import answer_build
from autotune.compiler.build.workers import error_answer
from autotune.compiler.estimate import answer_estimate
from autotune.graph import ops
from autotune.workers.serve import Handler, serve


def know(request: dict[str, Any]) -> dict[str, Any]:
    """Return whether this process has all operators and library kernels of the other one."""
    kernels = {tuple(kernel) for kernel in request["kernels"]} - {tuple(k) for k in library.registered()}
    return {"all": not kernels and all(map(ops.supported, request["ops"]))}


def _caught(handler: Handler) -> Handler:
    def handle(request: dict[str, Any]) -> dict[str, Any]:
        try:
            return handler(request)
        except Exception as error:  # noqa: BLE001 - raised again by the process that asked
            return error_answer(error)

    return handle


def main() -> None:
    """Answer until standard input ends."""
    gc.disable()  # as in the process that is helped, and this one ends with its work
    serve({"know": know, "estimate": _caught(answer_estimate), "build": _caught(answer_build)})


if __name__ == "__main__":
    main()

__all__ = ["know", "main"]
