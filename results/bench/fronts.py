"""The front of latency and error beside what peers can be set to: each point of a job, and each setting of a peer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView
from autotune.bench.side_by_side import Competitor, Pace, SideBySide
from autotune.bench.systems import OURS, System, find_peers
from autotune.bench.tables import duration, plain, ratio, scientific
from autotune.compiler.request import CompileRequest
from autotune.files import scratch_folder
from autotune.graph.ir import Array
from autotune.quantization.front import PrecisionPoint, front, stored_points
from autotune.quantization.latencies import MixedModel
from autotune.quantization.precision import PRECISIONS, products_in
from autotune.quantization.quantize import calibrate_model, quantize
from autotune.runtime.artifacts import artifact
from autotune.suggest import counted
from autotune.tuning.compiling import compile_request
from autotune.tuning.measure.error_budget import relative
from autotune.tuning.measure.samples import Samples, input_shapes
from results.bench.budgets import material

if TYPE_CHECKING:
    import onnx

_SETS = 24
"""Input sets that a job is given, of which it calibrates by half."""
_FLOAT32 = "autotune, float32"


@dataclass(frozen=True)
class _Setting:
    """A system that runs a file, by a name; ``is_point`` for a point of our front."""

    name: str
    system: System
    file: str
    is_point: bool = False


def measure(
    say: Say,
    names: Sequence[str],
    threads: int,
    database: str,
    fresh: int,
    points: int,
    rounds: int,
    turn: float,
    peer_pythons: Sequence[str],
) -> Iterator[Sequence[Record]]:
    """Compile the points that a database has of each model, and time them interleaved with every setting of peers."""
    import onnx

    onnxruntime, openvino, default = find_peers(["onnxruntime", "openvino", "openvino-default"], peer_pythons)
    for name in names:
        model, given = material(name, _SETS)
        _, more = material(name, _SETS + fresh)
        per_set = {key: len(array) // _SETS for key, array in given.items()}
        unseen = {key: array[_SETS * per_set[key] :] for key, array in more.items()}
        with scratch_folder("autotune-fronts-") as folder:
            say(f"{name}: compiling")
            settings = _ours(model, given, threads, database, points, folder)
            plain_file, quantised = folder / "float32.onnx", folder / "int8.onnx"
            onnx.save(model, str(plain_file))
            onnx.save(quantize(model, given, threads=threads).model, str(quantised))
            for system in (onnxruntime, openvino):
                settings += [_Setting(f"{system.label}, float32", system, str(plain_file))]
                settings += [_Setting(f"{system.label}, int8 (QDQ)", system, str(quantised))]
            settings.append(_Setting(default.label, default, str(plain_file)))
            sets = Samples.of(unseen, input_shapes(model, unseen)).sets
            pace = Pace(rounds=rounds, turn_s=turn, rest_s=0.02)
            with SideBySide(threads, folder, pace) as running:
                yield [
                    {"model": name, "threads": threads, **row}
                    for row in _compared(settings, sets, running, folder)
                ]


def _ours(
    model: onnx.ModelProto, given: Mapping[str, Array], threads: int, database: str, most: int, folder: Path
) -> list[_Setting]:
    """Return our float32 and at most so many points of the front, spread over it."""
    request = CompileRequest(model, threads=threads, database=database)
    seen, _ = Samples.of(given, input_shapes(model, given)).split()
    mixed = MixedModel(calibrate_model(model, seen.arrays, threads=threads), request, seen.arrays)
    found = front(stored_points(request))
    chosen = [
        found[i] for i in sorted({int(i) for i in np.linspace(0, len(found) - 1, min(most, len(found)))})
    ]
    plans = {_FLOAT32: mixed.in_float32} | {
        f"point {i + 1}: {_counts(point)}": point.precisions for i, point in enumerate(chosen)
    }
    made = []
    for i, (name, precisions) in enumerate(plans.items()):
        file = str(folder / f"{i}.atm")
        artifact.save(compile_request(mixed.request(precisions)).model, file)
        made.append(_Setting(name, OURS, file, name != _FLOAT32))
    return made


def _counts(point: PrecisionPoint) -> str:
    counts = {one: len(products_in(point.precisions, one)) for one in PRECISIONS}
    return ", ".join(f"{count} {one}" for one, count in counts.items() if count)


def _compared(
    settings: Sequence[_Setting], sets: Sequence[Mapping[str, Array]], running: SideBySide, folder: Path
) -> Iterator[Record]:
    """Yield a row a setting: its latency, and the error of the worst of the input sets by our float32."""
    outputs = {setting.name: list[Mapping[str, Array]]() for setting in settings}
    paths = dict[str, str]()
    for i, feed in enumerate(sets):
        paths = {key: str(folder / f"{i}.{at}.npy") for at, key in enumerate(feed)}
        for key, array in feed.items():
            np.save(paths[key], array)
        for at, setting in enumerate(settings):
            found = running.prepare(Competitor(f"{at}", setting.system, setting.file, paths))
            outputs[setting.name].append(dict(zip("0123456789", found.outputs, strict=False)))
    timed = running.run(
        [Competitor(f"{at}", setting.system, setting.file, paths) for at, setting in enumerate(settings)]
    )
    rows = []
    for at, setting in enumerate(settings):
        latency, failure = timed[f"{at}"].latency, timed[f"{at}"].failure
        pairs = zip(outputs[_FLOAT32], outputs[setting.name], strict=True)
        error = None if failure else max(relative(*pair) for pair in pairs)
        rows.append(
            {
                "setting": setting.name,
                "is_point": setting.is_point,
                "ours": setting.system is OURS,
                "median_ns": None if latency is None else latency.median_ns,
                "error": error,
                "failure": failure,
            }
        )
    times: list[Any] = [row["median_ns"] for row in rows]
    for row, ns in zip(rows, times, strict=True):
        over = ns and times[0] and ns / times[0]
        yield row | {"over": over, "dominated": _dominated(row, rows) if row["is_point"] else None}


def _dominated(point: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the settings of peers that are as fast and as exact as a point."""
    peers = [row for row in rows if not row["ours"] and row["median_ns"] is not None]
    found = [
        row["setting"]
        for row in peers
        if row["median_ns"] <= point["median_ns"] and row["error"] <= point["error"]
    ]
    return "; ".join(found) or "none"


def _notes(rows: FrameRows) -> Iterator[str]:
    for (model,), own in rows.by("model").items():
        of_front = own.where(is_point=True)
        free = of_front.where(dominated="none")
        yield f"{model}: no setting of a peer dominates {len(free)} of {counted(len(of_front), 'point')}"
    yield "error: of the worst unseen input set, the norm of the difference to our float32 over the norm of that"
    yield "int8 (QDQ): one file, by `autotune quantize` from the same samples"
    yield "OpenVINO's own precision is bfloat16 where the processor multiplies it"


_VIEW = TableView(
    "Fronts, {threads}",
    ("model", "setting"),
    (
        Column("model", "model"),
        Column("setting", "setting", plain),
        Column("median", "median_ns", duration),
        Column("÷ our float32", "over", ratio),
        Column("error", "error", scientific),
        Column("dominated by", "dominated", plain),
    ),
    notes=_notes,
)

EXPERIMENT = Experiment(
    title="Fronts of latency and error",
    about="Points that `autotune tune --objective latency,error` has stored, compiled again and timed interleaved with "
    "the settings that ONNX Runtime and OpenVINO have for a whole model.",
    summary="Points of stored fronts beside settings of peers; NAMES are models of `budgets`.",
    example="mlp encoder --db fronts.db -o results/fronts.md",
    options=(
        options.words(),
        options.number("--threads", 1, "Workers."),
        click.Option(["--db", "database"], required=True, metavar="FILE|URL", help="Where the points are."),
        options.number("--fresh", 4, "Input sets that errors are of, which the job was not given."),
        options.number("--points", 10, "Points of a model, at most."),
        options.number("--rounds", 9, "Rounds of each."),
        options.seconds("--turn", 0.05, "Seconds of a round of each."),
        options.peer_python(),
    ),
    measure=measure,
    views=(_VIEW,),
)

__all__ = ["EXPERIMENT"]
