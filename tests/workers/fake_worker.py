"""A worker that does as it is told, for tests of those who give it work."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from autotune.workers.serve import serve


def work(request: dict[str, Any]) -> dict[str, Any]:
    time.sleep(request.get("seconds", 0))
    while not os.path.exists(request.get("until", "/")):
        time.sleep(0.01)
    if request.get("dies"):
        os.kill(os.getpid(), signal.SIGKILL)
    return {"by": os.getpid()}


if __name__ == "__main__":
    serve({"work": work})
