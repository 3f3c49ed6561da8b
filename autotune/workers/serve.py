"""The worker's side of the pipe: JSON lines in, JSON lines out, and it never outlives its parent."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

from autotune.workers.lifetime import die_with_parent
from autotune.workers.memory import allowance

Handler = Callable[[dict[str, Any]], dict[str, Any]]


def serve(handlers: Mapping[str, Handler], memory_bytes: int | None = None) -> None:
    """Answer requests until standard input ends; ``request["do"]`` names the handler.

    ``request["may_take"]``, if given, is how many bytes the handler may take in addition to what is taken.
    Standard output belongs to the answers: whatever a candidate prints goes to standard error.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    _limit_memory(memory_bytes)
    die_with_parent()
    answers.write(json.dumps({"ready": True}).encode() + b"\n")
    for line in sys.stdin.buffer:
        request = json.loads(line)
        with allowance(request.pop("may_take", None)):
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
    resource.setrlimit(
        resource.RLIMIT_CORE, (0, 0)
    )  # writing gigabytes of a crashed candidate takes its time
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


__all__ = ["Handler", "serve"]
