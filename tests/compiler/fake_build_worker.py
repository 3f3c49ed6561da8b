"""A build worker whose tasks say themselves how they behave, for tests of those who give them."""

from __future__ import annotations

import os
import signal
from typing import Any

from autotune.compiler.build.workers import error_answer
from autotune.errors import BuildError
from autotune.workers.serve import serve


def work(request: dict[str, Any]) -> dict[str, Any]:
    if request["how"] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if request["how"] == "refused":
        return error_answer(BuildError("no code for this\n  try another"))
    if request["how"] == "bug":
        return error_answer(ZeroDivisionError("division by zero"))
    return {"by": os.getpid()}


if __name__ == "__main__":
    serve({"know": lambda _: {"all": True}, "work": work})
