"""Mutants of what generates code: whatever changes code makes the timings of the old code stale.

::

    python -m tests.database.stale_mutants 40 --seed 1

A database gets a run of each of :data:`CASES` (schedules for x86-64, OpenCL and PTX). Then one place of a file of
``autotune/lower`` or ``autotune/codegen`` is changed, in a process of its own, which asks the database again. Where the
generated text, compared by itself and not by its key, differs from that of before, the answer must not be exact.
Mutants that change no text, or with which nothing can be generated, are drawn again.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib.abc
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "autotune/lower",
    "autotune/codegen/llvm",
    "autotune/codegen/opencl",
    "autotune/codegen/gpu",
    "autotune/codegen/nvptx",
)
LEFT_OUT = ("verify_isl.py", "printer.py", "examples.py", "loader.py", "objects.py", "assembler.py")
"""Files that see the code or the loops, and make none of them."""
_SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.In: ast.NotIn,
    ast.Is: ast.IsNot,
}
_WORDS = {
    "fadd": "fsub",
    "fmul": "fadd",
    "add": "sub",
    "mul": "add",
    "slt": "sle",
    "sgt": "sge",
    "oeq": "une",
    "zext": "sext",
    "fma": "fmuladd",
    "maxnum": "minnum",
    "inbounds": "",
    "nsw": "",
    "contract": "",
    "+": "-",
    "*": "+",
    "<": "<=",
    "max": "min",
}
"""Words of the languages that are generated, and others that are as good there."""


@dataclass(frozen=True)
class Mutant:
    """A changed place of a file: its line, what stood there, and the code that results."""

    file: str
    line: int
    what: str
    code: str

    @property
    def module(self) -> str:
        """Return the name of the module."""
        return self.file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.what}"


@dataclass(frozen=True)
class Result:
    """The end of a mutant: of how many cases the text changed, and those that were exact all the same."""

    mutant: Mutant
    changed: int
    missed: tuple[str, ...]
    failed: str = ""


def files() -> list[str]:
    """Return the files that are mutated."""
    found = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))
    return [str(path.relative_to(ROOT)) for path in found if path.name not in LEFT_OUT]


def mutant(file: str, number: int) -> Mutant:
    """Return one of a file's mutants."""
    tree = _parsed(file)
    line, what, change = next(islice(_places(tree), number, None))
    change()
    return Mutant(file, line, what, ast.unparse(tree))


def _parsed(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


def _places(tree: ast.Module) -> Iterator[tuple[int, str, Callable[[], None]]]:
    """Yield the places that can be changed: line, what stands there, and what changes it."""
    for node in _executed(tree):
        if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in _SWAPPED:
            yield node.lineno, ast.unparse(node)[:60], _setter(node, "op", _SWAPPED[type(node.op)]())
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPPED:
            swapped = [_SWAPPED[type(node.ops[0])](), *node.ops[1:]]
            yield node.lineno, ast.unparse(node)[:60], _setter(node, "ops", swapped)
        elif isinstance(node, ast.Constant):
            for value in _other_values(node.value):
                yield node.lineno, f"{node.value!r} → {value!r}"[:60], _setter(node, "value", value)


def _executed(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield what a file executes: no annotations and no docstrings."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        yield node
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list"):
                continue
            children = value if isinstance(value, list) else [value]
            stack += [
                child
                for child in children
                if isinstance(child, ast.AST)
                and not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant))
                and not isinstance(child, ast.Import | ast.ImportFrom)
            ]


def _setter(node: ast.AST, name: str, value: object) -> Callable[[], None]:
    return lambda: setattr(node, name, value)


def _other_values(value: object) -> list[object]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1]
    if isinstance(value, str):
        words = value.split(" ")
        return [
            " ".join([*words[:n], _WORDS[word], *words[n + 1 :]])
            for n, word in enumerate(words)
            if word in _WORDS
        ]
    return []


def drawn(count: int, seed: int) -> Iterator[Mutant]:
    """Yield mutants in random order, from each file about as many; only those that are asked for are made."""
    chosen = random.Random(seed)
    every = {file: list(range(sum(1 for _ in _places(_parsed(file))))) for file in files()}
    for one in every.values():
        chosen.shuffle(one)
    while any(every.values()):
        for file in chosen.sample(sorted(every), len(every)):
            if every[file]:
                yield mutant(file, every[file].pop())


def judged(mutant: Mutant | None, database: Path, before: Sequence[dict[str, Any]]) -> Result:
    """Ask the database again in a process in which a file is changed."""
    made = "" if mutant is None else json.dumps({"module": mutant.module, "code": mutant.code})
    command = [sys.executable, "-m", "tests.database.stale_mutants", "--ask", str(database)]
    environment = {**os.environ, "PYTHONHASHSEED": "random", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, input=made, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300
    )
    mutant = mutant or Mutant("", 0, "nothing", "")
    if done.returncode:
        return Result(mutant, 0, (), (done.stderr.strip().splitlines() or ["?"])[-1])
    after = json.loads(done.stdout.splitlines()[-1])
    changed = [
        (now["case"], now["tier"])
        for then, now in zip(before, after, strict=True)
        if "text" in now and now["text"] != then["text"]
    ]
    return Result(mutant, len(changed), tuple(case for case, tier in changed if tier == "exact"))


def stored(where: Path) -> list[dict[str, Any]]:
    """Store a run of each case in a new database; returns what there is to say of the code of today."""
    from autotune.database import Database, Origin
    from tests.database.examples import record

    with Database(where) as database:
        for workload, target, trace in cases():
            record(database, workload, target, trace.to_json(), origin=Origin.DEFAULT)
    return asked(where)


def asked(where: Path) -> list[dict[str, Any]]:
    """Return the text of the code of each run in a database, and the tier of the answer for its workload."""
    from autotune.compiler.plan import plan_of
    from autotune.compiler.stale import CodeCheck
    from autotune.database import Database
    from autotune.graph.region import Workload
    from autotune.passes.preference import Preference
    from autotune.schedule.trace import Trace

    found = []
    with Database(where, read_only=True) as database:
        targets = database.targets()
        workloads = {row.key: Workload.parse(row.text) for row in database.workload_rows()}
        for run in database.records():
            workload, target = workloads[run.key.workload], targets[run.key.target]
            case = {"case": f"{target.name} {workload.kind}"}
            found.append(case)

            def planned(stale: frozenset[int], workload: Any = workload, target: Any = target) -> Any:
                return plan_of([workload], target, database, Preference(), stale=stale)

            with suppress(Exception):  # a mutant may break whatever it likes
                text = text_of(workload, target, Trace.from_json(run.trace_json))
                (one,) = CodeCheck(target).plan(planned).schedules.values()
                case |= {"text": text, "tier": one.tier.value}
    return found


def text_of(workload: Any, target: Any, trace: Any) -> str:
    """Return the SHA-256 of the text that is generated for a schedule, as a backend emits it."""
    from autotune.compiler.planned import apply
    from autotune.lower.program import lower_schedule

    applied = apply(workload, trace)
    own = applied.program
    program = lower_schedule(applied.schedule, own.args, constants=own.constants, strides=own.strides)
    return hashlib.sha256(_emitted(program, target).encode()).hexdigest()


def _emitted(program: Any, target: Any) -> str:
    if target.arch == "opencl":
        from autotune.codegen.opencl.backend import emit_program as opencl

        return opencl(program, target, "kernel")[0]
    if target.arch == "nvptx64":
        from autotune.codegen.nvptx.backend import emit_program as nvptx

        return nvptx(program, target, "kernel")[0]
    from autotune.codegen.llvm.backend import emit_program as llvm
    from autotune.lower.overwriting import overwriting

    return llvm(program, target, "kernel", overwriting(program))[0]


TARGETS = ("x86-64-v3", "x86-64-v4", "opencl-generic", "cuda:sm_90")


def cases() -> Iterator[tuple[Any, Any, Any]]:
    """Yield schedules of several families for all targets: workload, target, trace."""
    import numpy as np

    from autotune.target import Target
    from cost_models import analytic
    from search_spaces.spaces import space_for
    from tests.search_spaces import workloads as make

    rng = np.random.default_rng(0)
    for name in TARGETS:
        target = Target.parse(name)
        for number, workload in enumerate(
            (
                make.matmul(30, 40, 50),
                make.matmul(64, 48, 96),
                make.conv((1, 9, 11, 8), 24, 3, stride=2, pad=1),
                make.unary("Softmax", (20, 50), axis=1),
                make.layer_norm(20, 50),
                make.unary("Gelu", (30, 50)),
                make.pool((1, 12, 12, 16), kernel_shape=(3, 3), strides=(2, 2)),
                make.gather(40, 30, 9),
            )
        ):
            space = space_for(workload, target)
            config = analytic.default_config(space) if number % 2 else space.random(rng, 1)[0]
            yield workload, target, space.schedule(config).trace


class _Mutated(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds one module with other code."""

    def __init__(self, module: str, code: str) -> None:
        self._module = module
        self._code = code

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> Any:
        if fullname != self._module:
            return None
        return importlib.util.spec_from_loader(fullname, self, origin="mutated")

    def get_source(self, fullname: str) -> str:
        return self._code


def main() -> None:
    """Draw mutants until so many have changed code, and say what became of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ask", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.ask is not None:
        if made := sys.stdin.read():
            sys.meta_path.insert(0, _Mutated(**json.loads(made)))
        print(json.dumps(asked(given.ask)))
        return
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(bool(campaign(Path(folder) / "tuning.db", given.count, given.seed)))


def campaign(database: Path, count: int, seed: int) -> list[Result]:
    """Judge mutants until so many have changed code; returns those that were exact all the same."""
    before = stored(database)
    control = judged(None, database, before)
    assert not control.changed, control
    assert not control.failed, control
    results, left_out = list[Result](), 0
    for mutant in drawn(count, seed):
        result = judged(mutant, database, before)
        if not result.changed:
            left_out += 1
            continue
        results.append(result)
        said = f"exact all the same: {', '.join(result.missed)}" if result.missed else "stale"
        print(
            f"{len(results)} {mutant}: other code in {result.changed} of {len(before)} cases, {said}",
            flush=True,
        )
        if len(results) == count:
            break
    missed = [result for result in results if result.missed]
    print(
        f"{len(results) - len(missed)} of {len(results)} stale; {left_out} mutants changed no code or broke it"
    )
    return missed


if __name__ == "__main__":
    main()
