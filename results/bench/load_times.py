"""Time and memory to load a compiled model, compared with ONNX Runtime's session of the same model."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import autotune
from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView, over
from autotune.bench.interleaved import interleaved
from autotune.bench.problem import Problem, write_inputs, write_onnx
from autotune.bench.suites import models
from autotune.bench.systems import System, find_peers
from autotune.bench.tables import duration, geometric_mean, number, ratio
from autotune.compiler import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.errors import MeasureError
from autotune.runtime.artifacts import artifact

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


MODELS = ("squeezenet", "mobilenetv2", "densenet121", "resnet50", "encoder", "encoder_base", "vgg19")


def measure(
    say: Say, names: Sequence[str], threads: int, rounds: int, peers: str, peer_pythons: Sequence[str]
) -> Iterator[Sequence[Record]]:
    """Yield a record for each life of a process, interleaved; the first of each, which reads from disk, does not count.

    Raises MeasureError for a process that fails, and what compiling the model raises.
    """
    systems = find_peers([] if peers == "none" else [peers], peer_pythons)
    for case in models.models(names or MODELS):
        say(f"{case.name}: compiled, then loaded {rounds} times")
        with tempfile.TemporaryDirectory() as folder:
            commands = _commands(case.build(), systems, threads, Path(folder))
            lives = {name: partial(_live, name, command) for name, command in commands.items()}
            about = {"model": case.name, "threads": threads}
            found = [
                {**about, "system": name, "round": count, **life}
                for count, name, life in interleaved(lives, rounds + 1)
                if count
            ]
        order = list(commands)
        yield sorted(found, key=lambda record: order.index(record["system"]))


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


def _live(name: str, command: Sequence[str]) -> dict[str, Any]:
    """Return what a process took that imported a system, loaded a model and ran it once: nanoseconds and bytes."""
    facts: dict[str, Any] = json.loads(_run(command, name))
    if not facts.pop("finite"):
        raise MeasureError(f"{name} computed numbers that are not finite")
    return {**facts, "total_ns": facts["import_ns"] + facts["load_ns"] + facts["run_ns"]}


def _run(command: Sequence[str], what: str) -> str:
    """Return the output of a process; raises MeasureError."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        last = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
        raise MeasureError(f"{what} failed: {''.join(last)}") from error
    return done.stdout


ABOUT = (
    "What a compiled model costs before its first answer, beside ONNX Runtime's session of the same model: import, "
    "load, first run, processor time of the whole process and memory, each in fresh processes. ONNX Runtime optimizes "
    "a model when a session is made; in its second row that was done before, and the session is told to do nothing. "
    "Ours is loaded as by default, where all of it is read and checked; with constants mapped from the file; and "
    "compiled with --objective size --max-slowdown 1.2."
)


def typical(column: str, **values: Any) -> Callable[[FrameRows], float | None]:
    """Return what takes the median of a column over lives."""

    def read(rows: FrameRows) -> float | None:
        found = rows.where(**values).all(column)
        return float(median(found)) if found else None

    return read


_TIMES = {"import": "import_ns", "load": "load_ns", "first run": "run_ns", "together": "total_ns"}
_TIMES["processor"] = "processor_ns"
_MEMORY = {"PSS": "pss_bytes", "USS": "uss_bytes", "peak": "peak_bytes"}
_RATIOS = {name: column for name, column in (_TIMES | _MEMORY).items() if name not in ("import", "first run")}


def _ratios(own: str, peer: str) -> TableView:
    return TableView(
        f"{own} ÷ {peer}, {{threads}}",
        ("model",),
        (
            Column("model", "model"),
            *(
                Column(
                    name,
                    over(typical(column, system=own), typical(column, system=peer)),
                    ratio,
                    geometric_mean,
                )
                for name, column in _RATIOS.items()
            ),
        ),
        where=lambda rows: rows.where(system=peer),
        last="geometric mean",
    )


EXPERIMENT = Experiment(
    title="Load time and memory",
    about=ABOUT,
    summary="Measure load time and memory of artifacts and of ONNX Runtime; NAMES are zoo models or ONNX files.",
    example="squeezenet resnet50 --rounds 9 -o results/load.md",
    options=(
        options.words(),
        options.workers(),
        options.number("--rounds", 7, "Fresh processes of each."),
        *options.onnxruntime(),
    ),
    measure=measure,
    views=(
        TableView(
            "Loading, {threads}",
            ("model", "system"),
            (
                Column("model, system", lambda rows: f"{rows.get('model')}, {rows.get('system')}"),
                *(Column(name, typical(column), duration) for name, column in _TIMES.items()),
                *(Column(name, typical(column), number(1, " MB", 1e6)) for name, column in _MEMORY.items()),
            ),
            notes=(
                "medians of interleaved fresh processes; files in the page cache; memory after the first run",
            ),
        ),
        *(_ratios(own, peer) for own in (OURS, MAPPED, SMALL) for peer in (PEER, PREPARED)),
    ),
)

__all__ = ["EXPERIMENT", "typical"]
