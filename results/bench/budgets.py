"""Does an error budget hold: models compiled within several, judged by inputs that the command has not seen."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click
import numpy as np

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView, over
from autotune.bench.tables import number, percent, plain, ratio, scientific
from autotune.compiler.request import CompileRequest
from autotune.frontends import zoo
from autotune.graph.ir import Array
from autotune.quantization.compiling import compile_within
from autotune.quantization.precision import DECLARED_ERRORS, INT8, products_in
from autotune.runtime.module import Module
from autotune.suggest import counted
from autotune.tuning.api import compile
from autotune.tuning.measure.error_budget import Accuracy
from autotune.tuning.measure.samples import Samples, input_shapes, outputs_of
from results.bench.quantised import digits
from results.bench.quantised.networks import NETWORKS
from results.bench.quantised.sources import images, without_softmax

if TYPE_CHECKING:
    import onnx

BUDGETS = ("1e-3", "1e-2", "5e-2")
OF_THE_ZOO = (
    "tiny_cnn", "mlp", "encoder", "squeezenet", "shufflenet", "mobilenetv2", "inception_v1", "inception_v2",
    "densenet121", "resnet50",
)  # fmt: skip
NAMES = (*NETWORKS, digits.NAME, *OF_THE_ZOO)


def measure(
    say: Say, names: Sequence[str], threads: int, sets: int, fresh: int, budget: Sequence[str]
) -> Iterator[Sequence[Record]]:
    """Compile each model within each budget, and judge it by fresh inputs."""
    options.check_known(names, NAMES, "model")
    for name in names or NAMES:
        model, inputs = material(name, sets + fresh)
        given = {key: array[: sets * len(array) // (sets + fresh)] for key, array in inputs.items()}
        others = {key: array[len(given[key]) :] for key, array in inputs.items()}
        unseen = Samples.of(others, input_shapes(model, others))
        with compile(model, threads=threads) as module:
            reference = outputs_of(module, unseen.sets)
        for each in budget or BUDGETS:
            say(f"{name} within {each}")
            yield [
                {"model": name, "threads": threads, **judged(model, given, each, threads, unseen, reference)}
            ]


def material(name: str, sets: int) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return a model up to its logits, and so many input sets: images like photographs, digits, or normal numbers.

    Raises MissingExtraError without the package that the digits come from.
    """
    if name == digits.NAME:
        source = digits.digits()
        return source.model, {source.input: source.held_back[:sets, 0]}
    model = NETWORKS[name]() if name in NETWORKS else without_softmax(zoo.load(name))
    ((given, shape),) = input_shapes(model, {}).items()
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    made = images(rng, sets, shape) if len(shape) == 4 else rng.standard_normal((sets, *shape), np.float32)
    return model, {given: made.reshape(-1, *shape[1:])}


def judged(
    model: onnx.ModelProto,
    given: dict[str, Array],
    budget: str,
    threads: int,
    unseen: Samples,
    reference: list[dict[str, Array]],
) -> Record:
    """Return what a budget makes of a model, and its errors on inputs that it was given and on others."""
    accuracy, begin = Accuracy.of(budget), time.perf_counter()
    done = compile_within(CompileRequest(model, threads=threads), accuracy, given)
    seconds = time.perf_counter() - begin
    assert done.within is not None, "each has products"
    with Module(done.compiled.model) as module:
        errors = accuracy.each(reference, outputs_of(module, unseen.sets))
    precisions = done.within.precisions
    return {
        "budget": budget,
        "limit": accuracy.limit,
        "held_back": done.within.held_back.error,
        "unseen": float(errors.max()),
        "unseen_within": float((errors <= accuracy.limit).mean()),
        "products": len(precisions),
        "int8": len(products_in(precisions, INT8)) / len(precisions),
        "stored": len(products_in(precisions, *DECLARED_ERRORS)) / len(precisions),
        "predicted_ns": done.within.predicted_ns,
        "float32_ns": done.within.float32_ns,
        "seconds": seconds,
    }


def _notes(rows: FrameRows) -> Iterator[str]:
    held = [row for row in rows if row["held_back"] <= row["limit"]]
    kept = [row for row in rows if row["unseen"] <= row["limit"]]
    faster = [row for row in rows if row["predicted_ns"] < row["float32_ns"]]
    yield (
        f"of {counted(len(rows), 'command')}: {len(held)} within the budget on held-back inputs, {len(kept)} on all "
        f"unseen ones; {len(faster)} predicted to be faster than float32, the others are float32 as it is"
    )
    yield "held back: the half of the given inputs that nothing was chosen by; unseen: inputs that were not given"
    yield "error: of the worst input set; within: share of the unseen input sets that is within the budget"
    yield "predicted: latency by the project's own estimate over that of float32; nothing is timed here"


_VIEW = TableView(
    "Budgets, {threads}",
    ("model", "budget"),
    (
        Column("model", "model"),
        Column("asked", "budget", plain),
        Column("held back", "held_back", scientific),
        Column("unseen", "unseen", scientific),
        Column("within", "unseen_within", percent()),
        Column("products", "products", number()),
        Column("in int8", "int8", percent()),
        Column("shorter weights", "stored", percent()),
        Column("predicted", over("predicted_ns", "float32_ns"), ratio),
        Column("seconds", "seconds", number(1)),
    ),
    notes=_notes,
)

EXPERIMENT = Experiment(
    title="Error budgets",
    about="Models compiled by `autotune compile --accuracy` from nothing, within several budgets of the relative error "
    "of their outputs: the error on held-back inputs, on inputs that the command was not given, and what was chosen.",
    summary="Models compiled within error budgets, judged by unseen inputs; NAMES choose models.",
    example="perceptron mlp --budget 1e-2 -o results/budgets.md",
    options=(
        options.words(),
        options.number("--threads", 1, "Workers."),
        options.number("--sets", 32, "Input sets that the command is given."),
        options.number("--fresh", 64, "Input sets that it is judged by."),
        click.Option(
            ["--budget"], multiple=True, metavar="BUDGET", help="Budgets. [default: 1e-3, 1e-2, 5e-2]"
        ),
    ),
    measure=measure,
    views=(_VIEW,),
)

__all__ = ["BUDGETS", "EXPERIMENT", "NAMES", "judged", "material"]
