"""Models within the error that OpenVINO makes by default: how fast they are beside it and beside float32."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView, over
from autotune.bench.problem import Problem, write_inputs, write_onnx
from autotune.bench.side_by_side import Competitor, CompetitorResult, Pace, SideBySide
from autotune.bench.suites import models
from autotune.bench.systems import OURS, find_peers
from autotune.bench.tables import duration, number, ratio, scientific
from autotune.compiler.request import CompileRequest
from autotune.files import scratch_folder
from autotune.quantization.calibrate import CalibrationStatistics
from autotune.quantization.compiling import compile_within
from autotune.quantization.fold_norms import fold_norms
from autotune.quantization.latencies import MixedModel
from autotune.quantization.network import Network
from autotune.quantization.precision import BFLOAT16, FLOAT32, products_outside
from autotune.quantization.quantize import CalibratedModel
from autotune.runtime.artifacts import artifact
from autotune.tuning.compiling import compile_request
from autotune.tuning.measure.error_budget import Accuracy, relative
from autotune.tuning.measure.samples import random_samples

if TYPE_CHECKING:
    import onnx

_PLAIN, _WITHIN = "float32", "within"
_LEAST = 1e-3
"""Budgets are no smaller: an output may be all but the same for every input."""


def measure(
    say: Say,
    names: Sequence[str],
    threads: int,
    sets: int,
    rounds: int,
    turn: float,
    bfloat16: bool,
    peer_pythons: Sequence[str],
) -> Iterator[Sequence[Record]]:
    """Compile each model within the error of OpenVINO's default on the same input, or with all products in bfloat16,
    and time all interleaved."""
    peers = find_peers(["openvino-default", "openvino", "onnxruntime"], peer_pythons)
    for name in names or models.DEFAULT:
        problem = models.model(name).build()
        assert problem.model is not None, "zoo models and files have one"
        with (
            scratch_folder("autotune-precisions-") as folder,
            SideBySide(threads, folder, Pace(rounds, turn_s=turn, rest_s=0.02)) as running,
        ):
            file = write_onnx(problem.model, folder / "model.onnx")
            inputs = write_inputs(problem, folder / "inputs", peer=True)
            entries = [Competitor(peer.name, peer, file, inputs) for peer in peers]
            entries.insert(
                0, _ours(problem, folder, _PLAIN, compile_request(_request(problem, threads)).model)
            )
            found = {entry.name: running.prepare(entry) for entry in entries[:2]}
            allowed = max(_error(found, "openvino-default"), _LEAST)
            say(f"{name} within {allowed:.1e}")
            request = _request(problem, threads)
            make = _in_bfloat16 if bfloat16 else partial(_within, allowed=allowed, sets=sets)
            model, chosen = make(request, problem.model)
            entries.append(_ours(problem, folder, _WITHIN, model))
            yield [
                {"model": name, "threads": threads, "budget": allowed} | chosen | _row(running.run(entries))
            ]


def _request(problem: Problem, threads: int) -> CompileRequest:
    return CompileRequest(problem.model, threads=threads)


def _ours(problem: Problem, folder: Path, name: str, model: Any) -> Competitor:
    path = folder / f"{name}.atm"
    artifact.save(model, path)
    return Competitor(name, OURS, str(path), write_inputs(problem, folder / f"{name}.inputs", peer=False))


def _within(
    request: CompileRequest, model: onnx.ModelProto, allowed: float, sets: int
) -> tuple[Any, dict[str, Any]]:
    """Return the model within a relative error on random inputs, and the precisions that were chosen."""
    done = compile_within(request, Accuracy.of(allowed), random_samples(model, sets))
    assert done.within is not None, "each has products"
    short = len(products_outside(done.precisions, FLOAT32))
    predicted = done.within.predicted_ns / done.within.float32_ns
    return done.compiled.model, {"products": len(done.precisions), "short": short, "predicted": predicted}


def _in_bfloat16(request: CompileRequest, model: onnx.ModelProto) -> tuple[Any, dict[str, Any]]:
    """Return the model with all products in bfloat16, for which nothing is calibrated, whatever its error."""
    network = Network.read(model)
    fold_norms(network)
    calibrated = CalibratedModel(network, (), correct_biases=False, statistics=CalibrationStatistics())
    mixed = MixedModel(calibrated, request, random_samples(model, 1))
    done = compile_request(mixed.request(dict.fromkeys(mixed.products, BFLOAT16)))
    return done.model, {"products": len(mixed.products), "short": len(mixed.products), "predicted": None}


def _row(found: Mapping[str, CompetitorResult]) -> dict[str, Any]:
    """Return latencies of all, and the errors of ours and of OpenVINO's default."""
    row: dict[str, Any] = {
        name: None if each.latency is None else each.latency.median_ns for name, each in found.items()
    }
    return row | {f"{name} error": _error(found, name) for name in (_WITHIN, "openvino-default")}


def _error(found: Mapping[str, CompetitorResult], name: str) -> float:
    """Return the relative error of a contender's outputs, by our float32."""
    named = [dict(enumerate(map(np.asarray, found[each].outputs))) for each in (_PLAIN, name)]
    return relative(*({str(i): array for i, array in each.items()} for each in named))


def _notes(rows: FrameRows) -> Iterator[str]:
    for peer in ("openvino-default", "openvino", "onnxruntime", _PLAIN):
        both = [row[_WITHIN] / row[peer] for row in rows if row[_WITHIN] and row[peer]]
        if both:
            mean = float(np.exp(np.mean(np.log(both))))
            yield f"within the budget ÷ {peer}: {mean:.2f} in the geometric mean, {max(both):.2f} at most"
    kept = sum(row[f"{_WITHIN} error"] <= row["budget"] for row in rows)
    yield f"error on the timed input at most OpenVINO's, or {_LEAST:g}: {kept} of {len(rows)} models"


_VIEW = TableView(
    "Precisions, {threads}",
    ("model",),
    (
        Column("model", "model"),
        Column("within", _WITHIN, duration),
        Column("error", f"{_WITHIN} error", scientific),
        Column("products", "products", number()),
        Column("not in float32", "short", number()),
        Column("÷ our float32", over(_WITHIN, _PLAIN), ratio),
        Column("predicted", "predicted", ratio),
        Column("OpenVINO, default", "openvino-default", duration),
        Column("its error", "openvino-default error", scientific),
        Column("÷ it", over(_WITHIN, "openvino-default"), ratio),
        Column("÷ OpenVINO float32", over(_WITHIN, "openvino"), ratio),
        Column("÷ ONNX Runtime", over(_WITHIN, "onnxruntime"), ratio),
    ),
    notes=_notes,
)

EXPERIMENT = Experiment(
    title="Precisions",
    about="Models compiled untuned by `autotune compile --accuracy` within the error that OpenVINO makes by default on "
    "the same input, timed interleaved with OpenVINO in its default precision and in float32, and with ONNX Runtime.",
    summary="Models within OpenVINO's own error beside it; NAMES are zoo models.",
    example="mlp encoder --threads 2 -o results/precisions.md",
    options=(
        options.words(),
        options.number("--threads", 2, "Workers."),
        options.number("--sets", 8, "Random input sets that precisions are chosen by."),
        options.number("--rounds", 9, "Rounds of each."),
        options.seconds("--turn", 0.05, "Seconds of a round of each."),
        click.Option(
            ["--bfloat16"],
            is_flag=True,
            help="All products in bfloat16, whatever the error: nothing is chosen.",
        ),
        options.peer_python(),
    ),
    measure=measure,
    views=(_VIEW,),
)

__all__ = ["EXPERIMENT"]
