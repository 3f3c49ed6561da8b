"""How long a compiled model takes to load, and how much memory, beside ONNX Runtime's session of the same model."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import autotune
from autotune.bench.problem import Case, Problem, write_inputs, write_onnx
from autotune.bench.systems import System
from autotune.bench.tables import Table, duration, geometric_mean, ratio
from autotune.compiler import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.errors import MeasureError
from autotune.runtime import artifact

OURS = "autotune"
MAPPED = "autotune, mapped"
SMALL = "autotune, for size"
MAX_SLOWDOWN = 1.2
"""Of the artifact for size."""
PEER = "ONNX Runtime"
PREPARED = "ONNX Runtime, optimized before"
_SCRIPT = Path(__file__).with_name("worker_load.py")
_TIMEOUT_S = 300.0
_OPTIMIZE = """
import sys, onnxruntime as o
options = o.SessionOptions()
options.log_severity_level = 3
options.optimized_model_filepath = sys.argv[2]
o.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
"""


@dataclass(frozen=True)
class Life:
    """One process that imported a system, loaded a model and ran it once: nanoseconds and bytes."""

    import_ns: int
    load_ns: int
    run_ns: int
    processor_ns: int
    pss_bytes: int
    uss_bytes: int
    peak_bytes: int

    @property
    def total_ns(self) -> int:
        """From the first import to the first answer."""
        return self.import_ns + self.load_ns + self.run_ns


@dataclass(frozen=True)
class Loading:
    """What one system took for one model, a :class:`Life` a round."""

    model: str
    system: str
    lives: tuple[Life, ...]

    def typical(self, what: str) -> float:
        """The median of a field of the lives."""
        return float(median(getattr(life, what) for life in self.lives))


def measure(
    cases: Iterable[Case], peers: Sequence[System], threads: int, rounds: int, say: Callable[[str], None]
) -> list[Loading]:
    """Fresh processes of us and the peers in turns; the first of each, which reads from disk, does not count.

    Raises MeasureError for a process that fails, and what compiling the model raises.
    """
    found = []
    for case in cases:
        say(f"{case.name}: compiled, then loaded {rounds} times")
        with tempfile.TemporaryDirectory() as folder:
            commands = _commands(case.build(), peers, threads, Path(folder))
            lives: dict[str, list[Life]] = {name: [] for name in commands}
            for turn in range(rounds + 1):
                for name, command in commands.items():
                    life = _live(name, command)
                    if turn:
                        lives[name].append(life)
        found += [Loading(case.name, name, tuple(each)) for name, each in lives.items()]
    return found


def _commands(
    problem: Problem, peers: Sequence[System], threads: int, folder: Path
) -> dict[str, tuple[str, ...]]:
    """By system, the command of one life; everything that it reads is in the folder afterwards."""
    fast = compile_in_detail(CompileRequest(problem.graph, threads=threads)).image
    small = compile_in_detail(
        CompileRequest(problem.graph, threads=threads, objective="size", max_slowdown=MAX_SLOWDOWN)
    ).image
    artifact.save(fast, folder / "model.atm")
    artifact.save(small, folder / "small.atm")
    mine = write_inputs(problem, folder / "mine", peer=False)
    root = str(Path(autotune.__file__).parents[1])
    commands = {
        name: _command(sys.executable, "autotune", root, folder / file, threads, mapped, mine.values())
        for name, file, mapped in (
            (OURS, "model.atm", False),
            (MAPPED, "model.atm", True),
            (SMALL, "small.atm", False),
        )
    }
    for peer in peers:
        theirs = write_inputs(problem, folder / "theirs", peer=True)
        model, prepared = folder / "model.onnx", folder / "prepared.onnx"
        if problem.model is None:
            raise MeasureError("a model without an ONNX form cannot be given to ONNX Runtime")
        write_onnx(problem.model, model)
        python = peer.command[0]
        _run((python, "-I", "-c", _OPTIMIZE, str(model), str(prepared)), f"{peer.label} optimizing")
        for name, path, optimize in ((PEER, model, True), (PREPARED, prepared, False)):
            commands[name] = _command(python, "onnxruntime", "-", path, threads, optimize, theirs.values())
    return commands


def _command(
    python: str, system: str, root: str, model: Path, threads: int, way: bool, inputs: Iterable[str]
) -> tuple[str, ...]:
    rest = (str(model), str(threads), "yes" if way else "no", *inputs)
    return (python, "-I", str(_SCRIPT), system, root, *rest)


def _live(name: str, command: Sequence[str]) -> Life:
    facts: dict[str, Any] = json.loads(_run(command, name))
    if not facts.pop("finite"):
        raise MeasureError(f"{name} computed numbers that are not finite")
    return Life(**facts)


def _run(command: Sequence[str], what: str) -> str:
    """What a process printed; raises MeasureError."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        last = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
        raise MeasureError(f"{what} failed: {''.join(last)}") from error
    return done.stdout


_COLUMNS = ("import", "load", "first run", "together", "processor", "PSS", "USS", "peak")


def tables(found: Sequence[Loading], threads: str) -> list[Table]:
    """Each system at each model; and ours over the peer's."""
    rows = [(f"{each.model}, {each.system}", *_cells(each)) for each in found]
    note = "medians of fresh processes that took turns; files in the page cache; memory after the first run"
    made = [Table(f"Loading, {threads}", ("model, system", *_COLUMNS), tuple(rows), (note,))]
    if any(each.system == PEER for each in found):
        made += [
            _ratios(found, own, peer, threads) for own in (OURS, MAPPED, SMALL) for peer in (PEER, PREPARED)
        ]
    return made


def _cells(each: Loading) -> tuple[str, ...]:
    times = ("import_ns", "load_ns", "run_ns", "total_ns", "processor_ns")
    memory = ("pss_bytes", "uss_bytes", "peak_bytes")
    return (
        *(duration(each.typical(what)) for what in times),
        *(f"{each.typical(what) / 1e6:.1f} MB" for what in memory),
    )


def _ratios(found: Sequence[Loading], own: str, peer: str, threads: str) -> Table:
    by = {(each.model, each.system): each for each in found}
    fields = ("load_ns", "total_ns", "processor_ns", "pss_bytes", "uss_bytes", "peak_bytes")
    models = list(dict.fromkeys(each.model for each in found))
    ratios = {
        model: [by[model, own].typical(what) / by[model, peer].typical(what) for what in fields]
        for model in models
    }
    rows = [(model, *(ratio(value) for value in values)) for model, values in ratios.items()]
    means = [geometric_mean(column) for column in zip(*ratios.values(), strict=True)]
    rows.append(("geometric mean", *(ratio(value) for value in means)))
    columns = ("model", "load", "together", "processor", "PSS", "USS", "peak")
    return Table(f"{own} ÷ {peer}, {threads}", columns, tuple(rows))


__all__ = ["Life", "Loading", "measure", "tables"]
