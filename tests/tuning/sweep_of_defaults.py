"""A sweep: the default of ``tune_schedule(None, ...)`` beside what the model compiler makes of the same operator.

``python -m tests.tuning.sweep_of_defaults 200 --first 0 --record sweep.jsonl`` goes through 200 random operators, on
one thread; what the record has is not measured again. ``--report`` prints the table of a record. Each row has the
compiler's time in parts of the default's: 0.5 and more is what the default promises.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import autotune
from autotune import te
from autotune.errors import AutotuneError
from autotune.graph.program import ProgramWorkload
from autotune.runtime.module import Module
from autotune.target import Target
from cost_models.program_default import program_default
from search_spaces.programs.automatic import Automatic
from search_spaces.programs.program import space
from search_spaces.sketch import Sketch
from tests.tuning.sweep_cases import KINDS, Case, case

PROMISED = 0.5
_ROUNDS, _TURN_NS = 9, 4_000_000
_AGAIN = 3
"""A ratio below what is promised is measured so often: other work disturbs one of both for seconds."""


def default_of(args: Sequence[te.Tensor], target: Target) -> Module:
    """The program with the default schedule of ``tune_schedule(None, ...)``."""
    outputs = tuple(tensor for tensor in args if isinstance(tensor.op, te.ComputeOp))
    function = Automatic(outputs, target)
    sketch = Sketch(function, outputs)
    config = program_default(space(ProgramWorkload.of(args), target, sketch), function)
    return autotune.build(sketch.schedule(config), args, target).module


def measured(one: Case, seed: int) -> dict[str, Any]:
    """Both modules on the same inputs: the worst difference of their results, and interleaved minima in ns."""
    target = Target.parse("host", 1)
    rng = np.random.default_rng(seed)
    arrays = [rng.uniform(0.25, 1.0, t.shape).astype(t.dtype) for t in one.args[:-1]]
    ours, models = default_of(one.args, target), autotune.compile(one.model, threads=1)
    (mine,), (theirs,) = ours(*arrays), models(*arrays)
    scale = max(1e-6, float(np.abs(theirs).max(initial=0.0)))
    best = [np.inf, np.inf]
    for _ in range(_AGAIN):
        best = [min(pair) for pair in zip(best, interleaved((ours, models), arrays), strict=True)]
        if best[1] >= PROMISED * best[0]:
            break
    return {
        "default_ns": best[0],
        "compiler_ns": best[1],
        "ratio": best[1] / best[0],
        "error": float(np.abs(mine - theirs).max(initial=0.0)) / scale,
    }


def interleaved(modules: Sequence[Module], arrays: Sequence[NDArray[Any]]) -> list[float]:
    """The least ns of a run of each module, over rounds in which they take turns."""
    rounds = [
        [float(module.time(arrays, repeat=3, min_ns=_TURN_NS).min()) for module in modules]
        for _ in range(_ROUNDS)
    ]
    return [min(taken) for taken in zip(*rounds, strict=True)]


def swept(seeds: Sequence[int], record: Path) -> list[dict[str, Any]]:
    """The rows of ``seeds``; what is new is measured and recorded at once."""
    rows = {row["seed"]: row for row in _recorded(record)}
    for seed in seeds:
        if seed in rows:
            continue
        kind, one = case(seed)
        row = {"seed": seed, "kind": kind, "name": one.name}
        try:
            row |= measured(one, seed)
        except AutotuneError as error:
            row |= {"ratio": 0.0, "failed": f"{type(error).__name__}: {error}"}
        rows[seed] = row
        with record.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{seed:5} {row['ratio']:6.2f} {one.name} {row.get('failed', '')}", flush=True)
    return [rows[seed] for seed in seeds]


def _recorded(record: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []


def table(rows: Sequence[dict[str, Any]], worst: int = 12) -> str:
    """A row a kind, and the worst cases."""
    lines = [
        "| kind | cases | ratio >= 0.5 | least | median | failed or wrong |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for kind in (*KINDS, "all"):
        mine = [row for row in rows if kind in ("all", row["kind"])]
        if not mine:
            continue
        ratios = [row["ratio"] for row in mine]
        reached, wrong = sum(r >= PROMISED for r in ratios), sum(row.get("error", 1.0) > 1e-3 for row in mine)
        lines.append(
            f"| {kind} | {len(mine)} | {reached} ({reached / len(mine):.0%}) | {min(ratios):.2f} | "
            f"{statistics.median(ratios):.2f} | {wrong} |"
        )
    lines += ["", "| seed | ratio | operator |", "| ---: | ---: | --- |"]
    for row in sorted(rows, key=lambda row: float(row["ratio"]))[:worst]:
        lines.append(f"| {row['seed']} | {row['ratio']:.2f} | {row['name']} {row.get('failed', '')} |")
    return "\n".join(lines)


def main() -> None:
    """Run the sweep as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=0, help="how many operators")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--record", type=Path, required=True, help="a file of rows, which is continued")
    parser.add_argument("--report", action="store_true", help="print the table of the whole record")
    given = parser.parse_args()
    rows = swept(range(given.first, given.first + given.count), given.record)
    print(table(_recorded(given.record) if given.report else rows))


if __name__ == "__main__":
    main()
