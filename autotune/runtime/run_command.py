"""``autotune-run``: load an artifact, run it and time it. The one command of a machine that only runs models: it needs
neither click nor any of what compiles."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotune.distribution import version
from autotune.errors import AutotuneError, UsageError
from autotune.runtime.executable import load
from autotune.runtime.random_inputs import checked_seed
from autotune.runtime.request_files import (
    array_facts,
    facts_line,
    read_arrays,
    request_inputs,
    request_specs,
    save_arrays,
    timed,
)
from autotune.suggest import counted

INTERRUPTED = 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="autotune-run",
        description="Run an artifact that `autotune compile` wrote, and print its outputs and latency.",
        epilog="Example: autotune-run model.atm --random --repeat 100. Exit codes: 0 done, 1 failed, 2 wrong usage.",
        allow_abbrev=False,
    )
    parser.add_argument("artifact", metavar="ARTIFACT")
    parser.add_argument(
        "--input", action="append", default=[], metavar="NAME=X.npy", help="an input; once for each"
    )
    parser.add_argument(
        "--random", action="store_true", help="random values for the inputs that are not given"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of what is random (0)")
    parser.add_argument(
        "--shape", action="append", default=[], metavar="NAME=N", help="a size of the request"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="folder that receives NAME.npy for each output"
    )
    parser.add_argument("--repeat", type=int, metavar="N", help="time N runs")
    parser.add_argument("--threads", type=int, metavar="N", help="workers (those that the artifact is for)")
    parser.add_argument(
        "--allow-oversubscription", action="store_true", help="more threads than usable cores"
    )
    parser.add_argument(
        "--target", metavar="NAME", help="one target of several (the best that this machine runs)"
    )
    parser.add_argument(
        "--mapped", action="store_true", help="map constants from the file: processes share them"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument("--version", action="version", version=f"autotune-run, version {version()}")
    return parser


def _sizes(texts: Sequence[str]) -> dict[str, int]:
    """Return the sizes of a request by their names; raises UsageError."""
    sizes = dict[str, int]()
    for text in texts:
        name, _, size = text.rpartition("=")
        if not name or not size.isdecimal():
            raise UsageError(f"--shape {text!r} is not NAME=N, the size of a dimension such as seq=128")
        if name in sizes:
            raise UsageError(f"--shape {name} is given twice")
        sizes[name] = int(size)
    return sizes


def _run(asked: argparse.Namespace) -> dict[str, Any]:
    """Run the artifact as it was asked for, and return the facts."""
    if asked.repeat is not None and asked.repeat < 1:
        raise UsageError(f"--repeat is 1 or more, got {asked.repeat}")
    sizes, given, seed = _sizes(asked.shape), read_arrays(asked.input), checked_seed(asked.seed)
    oversubscribed = asked.allow_oversubscription
    with load(
        asked.artifact,
        asked.threads,
        allow_oversubscription=oversubscribed,
        mapped=asked.mapped,
        target=asked.target,
    ) as module:
        if sizes and not module.sizes:
            raise UsageError(f"--shape is given, but all sizes of {asked.artifact} are fixed")
        arrays = request_inputs(request_specs(module, sizes), given, asked.random, seed)
        outputs = module.run(arrays)
        facts: dict[str, Any] = {
            "artifact": asked.artifact,
            "threads": module.threads,
            "outputs": {name: array_facts(array) for name, array in outputs.items()},
        }
        if asked.repeat is not None:
            facts["latency"] = timed(module, arrays, asked.repeat)
    if asked.output is not None:
        save_arrays(outputs, asked.output)
    return facts


def _lines(facts: dict[str, Any]) -> list[str]:
    """Return facts of a run as text."""
    lines = [facts_line(name, output) for name, output in facts["outputs"].items()]
    if (latency := facts.get("latency")) is not None:
        fastest, median = latency["min_ns"] / 1e6, latency["median_ns"] / 1e6
        lines.append(
            f"latency: minimum {fastest:.4g} ms, median {median:.4g} ms, "
            f"{counted(latency['repeat'], 'run')}, {counted(facts['threads'], 'thread')}"
        )
    return lines


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code. An error of the user's is one message, and no traceback."""
    asked = _parser().parse_args(arguments)
    try:
        facts = _run(asked)
    except AutotuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return INTERRUPTED
    print(json.dumps(facts, indent=2) if asked.json else "\n".join(_lines(facts)))
    return 0


def main() -> None:
    """Run the command and exit the process."""
    sys.exit(run())


__all__ = ["main", "run"]
