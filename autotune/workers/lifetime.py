"""A worker ends with its parent, also one that was killed while the worker was still importing."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from functools import cache

PARENT = "AUTOTUNE_PARENT"
"""Environment variable by which a parent tells its worker who it is."""
_PR_SET_PDEATHSIG = 1


@cache
def die_with_parent() -> None:
    """End when the parent ends, also by kill -9 and also while a candidate hangs.

    Linux sends the signal itself; the watching thread does it elsewhere. A parent that ended before this was
    called is not the parent any more: that is seen from the number that it left in the environment.
    """
    parent = int(os.environ.pop(PARENT, os.getppid()))
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


__all__ = ["PARENT", "die_with_parent"]
