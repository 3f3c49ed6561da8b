"""A worker whose candidates say themselves how they behave; the pool is tested with it."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import sys
import time
from typing import Any

import numpy as np

from autotune.workers.serve import serve
from tests.hangs import hang

PREPARED: list[str] = []
_KEPT: list[mmap.mmap] = []


def build(request: dict[str, Any]) -> dict[str, Any]:
    config = request["config"]
    behave(config.get("build", "ok"))
    trace = json.dumps(config, sort_keys=True)
    if config.get("build") == "illegal":
        return {"failed": {"outcome": "illegal", "message": "no such loop"}}
    return {
        "trace_key": trace,
        "trace_json": trace,
        "footprint": {"memory_bytes": 0, "artifact_bytes": 1},
        "fenced": None,
        "payload": {"config": config},
    }


def prepare(request: dict[str, Any]) -> dict[str, Any]:
    behave(request["workload"])
    PREPARED.append(request["workload"])
    return {"nbytes": 0}


def measure(request: dict[str, Any]) -> dict[str, Any]:
    config = request["payloads"][0]["config"]
    assert PREPARED, "measure without prepare"
    behave(config.get("run", "ok"))
    if config.get("run") == "wrong":
        return {"outcome": "wrong_result", "error": 0.5, "message": "relative error 0.5"}
    return {"outcome": "ok", "error": 0.0, "latency": latency(float(config.get("ns", 100)))}


def warm_up(request: dict[str, Any]) -> dict[str, Any]:
    """Getting ready may take longer than a candidate may, and may fail."""
    hang(int(os.environ.get("FAKE_START_LOOKS", "0")))
    if "FAKE_START_FAILS" in os.environ:
        raise RuntimeError("no such instruction")
    return {}


def latency(ns: float) -> dict[str, float]:
    return {"n": 3, "min_ns": ns, "median_ns": ns, "spread_ns": 0.0}


def behave(how: str) -> None:
    if how == "segfault":
        print("about to fail", file=sys.stderr, flush=True)
        os.kill(os.getpid(), 11)
    elif how == "hang":
        hang()
    elif how.startswith("reserves"):  # address space, as stacks and heaps of many threads do, and no memory
        _KEPT.append(mmap.mmap(-1, 900 << 20))
        time.sleep(0.3)
        behave(how.removeprefix("reserves, "))
    elif how == "exit":
        os._exit(3)
    elif how == "noise":
        os.write(1, b"printed by a candidate\n")
    elif how == "abort":
        os.abort()
    elif how == "greedy":
        np.ones(1 << 40)
    elif how == "takes more until it hangs":
        kept = []
        with contextlib.suppress(MemoryError):
            while True:
                kept.append(np.ones(1 << 22))
        hang()
    elif how == "dies of want":
        kept = []
        try:
            while True:
                kept.append(np.ones(1 << 22))
        except MemoryError:
            hang(looks=3)
            os.abort()
    elif how == "slow":
        time.sleep(0.05)


def guarded(handler: Any) -> Any:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        try:
            return dict(handler(request))
        except MemoryError:
            return {"outcome": "out_of_memory", "message": "out of memory"}

    return answer


if __name__ == "__main__":
    memory = os.environ.get("AUTOTUNE_WORKER_MEMORY")
    handlers = {
        "warm_up": warm_up,
        "build": build,
        "prepare": prepare,
        "measure": measure,
    }
    serve({k: guarded(v) for k, v in handlers.items()}, int(memory) if memory else None)
