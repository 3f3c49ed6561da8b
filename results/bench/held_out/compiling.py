"""Compiles one model in a process of its own: what that takes, and what comes out.

Run as a module with the model, the number of threads, the tolerance and the artifact to write; prints a line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autotune.errors import AutotuneError, MeasureError
from autotune.passes.preference import TOLERANCE
from autotune.workers.process import python_module

_LOOK_S = 0.02


@dataclass(frozen=True)
class Compiled:
    """The cost of compiling: seconds of reading the model to its image, and bytes at most that its processes held.

    ``failure`` is why there is no image; sizes are those of the image, in bytes.
    """

    seconds: float = 0.0
    peak_bytes: int = 0
    arena_bytes: int = 0
    constant_bytes: int = 0
    dispatches: int = 0
    failure: str = ""


def compiled(
    model: Path, threads: int, artifact: Path, timeout_s: float, tolerance: float = TOLERANCE
) -> Compiled:
    """Compile in a fresh process; a model that is refused, or takes longer, is an answer with its failure.

    Raises MeasureError for a process that says nothing.
    """
    command = (*python_module(__name__), str(model), str(threads), str(tolerance), str(artifact))
    end = time.monotonic() + timeout_s
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            peak = max(peak, sum(_shares(process.pid)))
            if time.monotonic() > end:
                process.kill()
                process.communicate()
                return Compiled(peak_bytes=peak, failure=f"not compiled after {timeout_s:.0f} s")
            time.sleep(_LOOK_S)
        out, err = process.communicate()
    if process.returncode or not out.strip():
        last = err.strip().splitlines()[-1:]
        raise MeasureError(f"compiling {model.parent.name} ended with {process.returncode}: {''.join(last)}")
    facts: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return Compiled(**{**facts, "peak_bytes": peak})


def _shares(pid: int) -> Iterator[int]:
    """Resident bytes of a process and those it started, pages that they share divided between them."""
    import psutil

    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.Error:
        return
    for each in family:
        try:
            yield _share(each.pid)
        except (OSError, ValueError):  # it has ended meanwhile
            continue


def _share(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    return 0


def _compile(model: str, threads: int, tolerance: float, path: str) -> Compiled:
    from autotune.compiler import compile_in_detail
    from autotune.compiler.request import CompileRequest
    from autotune.runtime.artifacts import artifact

    begin = time.perf_counter()
    try:
        image = compile_in_detail(CompileRequest(model, threads=threads, tolerance=tolerance)).image
    except AutotuneError as error:
        return Compiled(failure=f"{type(error).__name__}: {error}")
    except Exception as error:  # noqa: BLE001 - a fault of ours: it is what the table is to show
        return Compiled(failure=f"{type(error).__name__} (a fault): {error}")
    seconds = time.perf_counter() - begin
    artifact.save(image, path)
    constants = sum(constant.nbytes for constant in image.constants)
    return Compiled(seconds, 0, image.arena_bytes, constants, len(image.dispatches))


def main() -> None:
    """Compile what the arguments name."""
    model, threads, tolerance, path = sys.argv[1:]
    print(json.dumps(asdict(_compile(model, int(threads), float(tolerance), path))))


if __name__ == "__main__":
    main()

__all__ = ["Compiled", "compiled"]
