"""The worker's side of the pipe: JSON lines in, JSON lines out, and it never outlives its parent."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

Handler = Callable[[dict[str, Any]], dict[str, Any]]


def serve(handlers: Mapping[str, Handler], memory_bytes: int | None = None) -> None:
    """Answer requests until standard input ends; ``request["do"]`` names the handler.

    Standard output belongs to the answers: whatever a candidate prints goes to standard error.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    _limit_memory(memory_bytes)
    _die_with_parent()
    answers.write(json.dumps({"ready": True}).encode() + b"\n")
    for line in sys.stdin.buffer:
        request = json.loads(line)
        answer = handlers[request["do"]](request)
        _write_all(answers.fileno(), json.dumps(answer).encode() + b"\n")


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _limit_memory(limit: int | None) -> None:
    """Cap the address space, so that a greedy candidate gets MemoryError and not the whole machine."""
    if limit is None:
        return
    try:
        import resource
    except ImportError:  # not a POSIX system: the cap is a guard, not a promise
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _die_with_parent() -> None:
    """End when the parent ends, also by kill -9 and also while a candidate hangs.

    Linux sends the signal itself; the watching thread does it elsewhere, and for a parent that ended
    before the request to be told was made.
    """
    parent = os.getppid()
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


__all__ = ["Handler", "serve"]
