"""Models on several devices: whether answers are right wherever parts run, and whether placements leave a slowed
device and take as long as expected."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

import autotune
from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, Record, Say, TableView
from autotune.bench.tables import duration, scientific
from autotune.cli.options import parse_devices
from autotune.compiler.dividing import imported
from autotune.errors import MeasureError
from autotune.graph import evaluate
from autotune.graph.ir import Graph
from autotune.runtime.random_inputs import random_inputs
from autotune.settings import environment_name
from autotune.tuning.placement.answer import checked_devices
from autotune.tuning.placement.placing import known_devices

_TIMEOUT_S = 600.0
NONE = "none"


MODELS = "squeezenet,mlp,encoder,mobilenetv2"
SLOWED = "squeezenet,mlp,encoder,inception_v1"
_ANSWER, _SLOWED = "answer", "slowed"
"""The kind of a record: the answer of a placement, or a placement that was searched with a device made slower."""


def measure(
    say: Say, devices: str, models: Sequence[str], slowed: Sequence[str], factor: float, seed: int
) -> Iterator[Sequence[Record]]:
    """Compare answers of models on devices, then place models with each device slowed."""
    names = checked_devices(parse_devices(devices), known_devices())
    for model in models:
        yield right_answers(f"zoo:{model}", names, seed, say)
    for model in slowed:
        yield slowed_devices(f"zoo:{model}", names, factor, say)


def _used(report: Mapping[str, Any], device: str, factor: float) -> Record:
    """Return the placement that is used, of a report of `autotune place --json`."""
    used = report["measured"][report["accepted"]]
    expected, measured = used["expected_seconds"], used["measured_seconds"]
    return {
        "slowed": device,
        "factor": f"{factor:g}",
        "alone_s": report["alone_seconds"],
        "used": tuple(used["devices"]),
        "there": sum(each == device for each in used["placement"].values()) if device != NONE else "",
        "expected_ns": 1e9 * expected,
        "measured_ns": 1e9 * measured,
        "off": 1.0 - expected / measured,
    }


def forced(graph: Graph, devices: Sequence[str]) -> dict[str, dict[str, str]]:
    """Placements of a model by rule: all of it on each device, and pairs of nodes on all devices in turn."""
    order = [node.name for node in graph.nodes]
    found = {f"all on {device}": {"*": device} for device in devices}
    cpus = [device for device in devices if device.startswith("cpu")]
    for some in (cpus, devices):
        if len(some) > 1:
            turns = {name: some[number // 2 % len(some)] for number, name in enumerate(order)}
            found[f"in turn on {', '.join(some)}"] = turns
    return found


def right_answers(model: str, devices: Sequence[str], seed: int, say: Say) -> list[Record]:
    """A model by every forced placement, and by the one that a search finds."""
    graph, short = imported(model, None), model.removeprefix("zoo:")
    arrays = random_inputs([_spec(graph, name) for name in graph.inputs], seed)
    say(f"{model}: NumPy")
    expected = evaluate.run(graph, arrays)
    found = list[Record]()

    def add(name: str, module: Any) -> None:
        with module:
            made = module.run(arrays)
            parts, used = len(module.compiled.images), module.devices
            error = max(_error(made[output], expected[output]) for output in graph.outputs)
            found.append(
                {
                    "of": _ANSWER,
                    "model": short,
                    "placement": name,
                    "used": used,
                    "parts": parts,
                    "error": error,
                }
            )

    for name, rules in forced(graph, devices).items():
        say(f"{model}: {name}")
        add(name, autotune.compile(graph, placement=rules))
    with tempfile.TemporaryDirectory() as folder:
        say(f"{model}: searched on {', '.join(devices)}")
        database = str(Path(folder) / "placement.db")
        searched(model, devices, database, {})
        add(f"searched on {', '.join(devices)}", autotune.compile(graph, devices=devices, database=database))
    return found


def slowed_devices(model: str, devices: Sequence[str], factor: float, say: Say) -> list[Record]:
    """Searches with no device and with each made slower; that one is named first, so that it has to be left."""
    found = list[Record]()
    for device in (NONE, *devices):
        first = [] if device == NONE else [device]
        order = [*first, *(each for each in devices if each != device)]
        say(f"{model}: {device} slowed")
        setting = {} if device == NONE else {environment_name("slowdown"): f"{device}={factor:g}"}
        with tempfile.TemporaryDirectory() as folder:
            report = searched(model, order, str(Path(folder) / "p.db"), setting)
        found.append({"of": _SLOWED, "model": model.removeprefix("zoo:"), **_used(report, device, factor)})
    return found


def searched(model: str, devices: Sequence[str], database: str, setting: Mapping[str, str]) -> dict[str, Any]:
    """Run `autotune place` in a process of its own and return its result; raises MeasureError with what it says."""
    command = [sys.executable, "-m", "autotune.cli.main", "place", model, "--devices", ",".join(devices)]
    done = subprocess.run(
        [*command, "--db", database, "--json"],
        env=os.environ | setting,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise MeasureError(f"`autotune place {model}` failed on {', '.join(devices)}: {done.stderr.strip()}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _spec(graph: Graph, name: str) -> Any:
    from autotune.runtime.image import TensorSpec

    found = graph.type_of(name)
    return TensorSpec(name, found.shape, found.dtype)


def _error(found: Any, expected: Any) -> float:
    largest = float(np.abs(expected).max()) or 1.0
    return float(np.abs(np.asarray(found, np.float64) - expected).max()) / largest


ABOUT = (
    "Models on several devices. Their answers are compared with NumPy's for all of a model on each device, for nodes "
    "on the devices in turn, and for a placement that was searched. Then each device is made slower, and a placement "
    "is searched: does it leave that device, and does it take as long as was expected?"
)


def _alone(found: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {duration(1e9 * seconds)}" for name, seconds in found.items())


EXPERIMENT = Experiment(
    title="Placement",
    about=ABOUT,
    summary="Compare answers of models on several devices, and placements that leave a device which is made slower.",
    example="--devices cpu:0,cpu:1,opencl:0 -o results/placement.md",
    options=(
        click.Option(["--devices"], required=True, metavar="A,B,...", help="Devices of `autotune devices`."),
        options.listed("--models", MODELS, "Zoo models whose answers are compared."),
        options.listed("--slowed", SLOWED, "Zoo models that are placed again."),
        click.Option(
            ["--factor"],
            type=click.FloatRange(1, 1000),
            default=8.0,
            show_default=True,
            help="How much slower.",
        ),
        options.seed(),
    ),
    measure=measure,
    views=(
        TableView(
            "Right answers",
            ("model", "placement"),
            (
                Column("model", "model"),
                Column("placement", "placement"),
                Column("runs on", "used", ", ".join),
                Column("parts", "parts"),
                Column("error", "error", scientific),
            ),
            of=_ANSWER,
            notes=("error: the largest difference from NumPy's results over the largest of these",),
        ),
        TableView(
            "Placements with a device {factor} times slower",
            ("model", "slowed"),
            (
                Column("model", "model"),
                Column("slowed", "slowed"),
                Column("all on one device, expected", "alone_s", _alone),
                Column("placed on", "used", ", ".join),
                Column("parts there", "there"),
                Column("expected", "expected_ns", duration),
                Column("measured", "measured_ns", duration),
                Column("off", "off", "{:+.0%}".format),
            ),
            of=_SLOWED,
            notes=(
                "the slowed device is named first: all of the model on it is what a placement has to beat",
                "off: how much longer it took than expected, as a part of what it took",
            ),
        ),
    ),
)

__all__ = ["EXPERIMENT", "forced"]
