"""Mutants of our own source: what a wrong operator or number in the runtime, the planner or the statistics would break.

::

    python -m tests.source_mutants 300 -n 1 --record source-mutants.jsonl

Cosmic Ray's operators change one place of a file of :data:`TARGETS`, in a copy of the tree, and the tests next to that
file run. They must fail, or take far longer than they do: the mutant is *caught*. One that *survives* is a test that is
missing, or code that means the same; :data:`EQUIVALENT` says why for those. Mutants that only change an annotation or a
docstring are not drawn. Each finished mutant appends a line to the record; called again, the command goes on.
"""

from __future__ import annotations

import ast
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

from tests.campaign import ROOT, Line, Work, arguments, record_of, run
from tests.equivalent_mutants import EQUIVALENT

TARGETS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("autotune/runtime/cpu/executor.py", "autotune/runtime/cpu/tiles.py", "autotune/runtime/cpu/walk.py"),
        ("tests/runtime/test_executor_steps.py", "tests/runtime/test_executor.py"),
    ),
    "autotune/runtime/hal/allocator.py": ("tests/runtime/hal/test_allocator.py",),
    "autotune/passes/memory/plan_memory.py": ("tests/passes/test_plan_memory.py",),
    "autotune/lower/partition.py": ("tests/lower/test_partition.py",),
    "autotune/lower/remainders.py": ("tests/lower/test_remainders.py",),
    "autotune/tuning/compare/paired.py": ("tests/tuning/test_paired.py",),
    "autotune/compiler/devices/makespan.py": ("tests/compiler/test_makespan.py",),
    "autotune/passes/placement/affinity.py": ("tests/passes/test_affinity.py",),
    "autotune/runtime/artifacts/archive.py": ("tests/runtime/test_archive.py",),
    "autotune/runtime/artifacts/contents.py": ("tests/runtime/test_contents.py",),
}
"""Files that are mutated, and the tests next to them."""

COPIED = ("autotune", "search_spaces", "cost_models", "tests", "pyproject.toml", "README.md", "docs")
SLOWER, SECONDS = 3.0, 10.0
"""A mutant whose tests take so many times as long as without it, and so many seconds more, is caught."""


@dataclass(frozen=True)
class Mutant:
    """One changed place: the operator of Cosmic Ray, which of the places it applies to, and the code that results."""

    file: str
    operator: str
    line: int
    before: str
    after: str
    code: str


def draw(seed: int) -> Mutant:
    """Draw a file by its length, a place in it, and one of the operators that apply there."""
    chosen = random.Random(seed)
    file = chosen.choices(list(TARGETS), [len(_places(each)) for each in TARGETS])[0]
    original = _source(file)
    while True:
        place = chosen.choice(sorted(_places(file)))
        name, occurrence = chosen.choice(_places(file)[place])
        code = None
        with suppress(AttributeError):  # it cannot replace exceptions with dotted names
            code = mutate_code(original, get_operator(name)(), occurrence)
        if code is not None and _meaning(code) != _meaning(original):
            before, after = _changed(original, code)
            return Mutant(file, name, place[0], before, after, code)


@cache
def _source(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


@cache
def _places(file: str) -> dict[tuple[int, int], list[tuple[str, int]]]:
    """The places of a file by line and column, each with the operators that apply, and which of their places it is."""
    import parso

    tree = parso.parse(_source(file))
    found: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for name in sorted(operator_names()):
        operator, count = get_operator(name), 0
        if "Variable" in name:
            continue  # they need arguments
        for node in _nodes(tree):
            for start, _ in operator().mutation_positions(node):
                found.setdefault(start, []).append((name, count))
                count += 1
    return found


def _nodes(node: Any) -> Any:
    yield node
    for child in getattr(node, "children", ()):
        yield from _nodes(child)


def _meaning(code: str) -> str:
    """The code without annotations and docstrings; "" where it is no Python."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return ""
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if hasattr(node, name):
                setattr(node, name, None)
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not _is_text(each)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _changed(before: str, after: str) -> tuple[str, str]:
    """The first line that differs, as it was and is."""
    for old, new in zip(before.splitlines(), after.splitlines(), strict=False):
        if old != new:
            return old.strip(), new.strip()
    return "", ""


@cache
def _copy() -> Path:
    """A copy of the tree, of this process."""
    folder = Path(tempfile.mkdtemp(prefix="source-mutants-"))
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    return folder


def _tests(file: str, seconds: float, **variables: str) -> tuple[int | None, float]:
    """Run the tests next to a file; returns pytest's exit code, None where they took longer, and the seconds."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(_copy()),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        **variables,
    }
    begin = time.monotonic()
    process = subprocess.Popen(
        [*command, *TARGETS[file]],
        cwd=_copy(),
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        with suppress(ProcessLookupError):  # its children too
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return code, time.monotonic() - begin


@cache
def _usual(file: str) -> float:
    """The seconds that the tests next to a file take; they must pass, and leave bytecode of all that is no mutant."""
    code, seconds = _tests(file, 600)
    if code != 0:
        raise RuntimeError(
            f"the tests next to {file} do not pass without a mutant: {' '.join(TARGETS[file])}"
        )
    return seconds


def check(seed: int) -> Line:
    """Draw a mutant and judge it."""
    return judge(draw(seed))


def judge(mutant: Mutant) -> Line:
    """Run the tests next to a mutant: "caught", "survived", or "equivalent" with the reason."""
    said = {"file": mutant.file, "line": mutant.line, "before": mutant.before, "after": mutant.after}
    reason = EQUIVALENT.get((mutant.file, mutant.before, mutant.after))
    if reason is not None:
        return {**said, "verdict": "equivalent", "reason": reason}
    usual = _usual(mutant.file)
    path = _copy() / mutant.file
    path.write_text(mutant.code, encoding="utf-8")
    try:
        code, seconds = _tests(mutant.file, SLOWER * usual + SECONDS, PYTHONDONTWRITEBYTECODE="1")
    finally:
        path.write_text(_source(mutant.file), encoding="utf-8")
    return {
        **said,
        "verdict": "survived" if code == 0 else "caught",
        "exit": code,
        "seconds": round(seconds, 1),
    }


WORK = Work(check, {}, lambda step, death: {"verdict": "died", "reason": str(death)}, seconds=3600)


def summary(lines: Sequence[Line]) -> str:
    """Counts by file, then the survivors."""
    rows = []
    for file in TARGETS:
        found = Counter(line["verdict"] for line in lines if line.get("file") == file)
        rows.append(f"{file}: " + ", ".join(f"{count} {name}" for name, count in sorted(found.items())))
    survivors = [line for line in lines if line["verdict"] not in ("caught", "equivalent")]
    rows += [json.dumps(line) for line in survivors]
    counts = Counter(line["verdict"] for line in lines)
    judged = counts["caught"] + counts["survived"]
    return "\n".join([*rows, f"{counts['caught']} of {judged} caught, {counts['equivalent']} equivalent"])


def main() -> None:
    options = arguments("mutants", __doc__).parse_args()
    with record_of(options) as record:
        seeds = range(options.first, options.first + options.mutants)
        print(summary(list(run("tests.source_mutants", seeds, options.workers, record).values())))


if __name__ == "__main__":
    main()
