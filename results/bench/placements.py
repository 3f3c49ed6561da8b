"""Models on several devices: whether answers are right wherever parts run, and whether placements leave a slowed
device and take as long as expected."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import autotune
from autotune.bench.tables import Table, duration, scientific
from autotune.compiler.dividing import imported
from autotune.errors import MeasureError
from autotune.graph import evaluate
from autotune.graph.ir import Graph
from autotune.runtime.placed_module import PlacedModule
from autotune.settings import environment_name
from autotune.tuning.random_inputs import random_inputs

Say = Callable[[str], None]
_TIMEOUT_S = 600.0
NONE = "none"


@dataclass(frozen=True)
class RightAnswer:
    """How far a model on some devices is from NumPy's results, over the largest of them."""

    model: str
    placement: str
    devices: tuple[str, ...]
    parts: int
    error: float


@dataclass(frozen=True)
class Slowed:
    """A placement that was searched with one device made slower, which is the one that the model is on otherwise.

    ``report`` is that of `autotune place --json`.
    """

    model: str
    device: str
    report: Mapping[str, Any]

    @property
    def used(self) -> Mapping[str, Any]:
        """The placement that is used."""
        found: Mapping[str, Any] = self.report["measured"][self.report["accepted"]]
        return found

    @property
    def off(self) -> float:
        """How much longer than expected it took, as a part of what it took."""
        return float(1.0 - self.used["expected_seconds"] / self.used["measured_seconds"])


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


def right_answers(model: str, devices: Sequence[str], seed: int, say: Say) -> list[RightAnswer]:
    """A model by every forced placement, and by the one that a search finds."""
    graph = imported(model, None)
    arrays = random_inputs([_spec(graph, name) for name in graph.inputs], seed)
    say(f"{model}: NumPy")
    expected = evaluate.run(graph, arrays)
    found = []

    def add(name: str, module: Any) -> None:
        with module:
            made = module.run(arrays)
            parts = len(module.program.images) if isinstance(module, PlacedModule) else 1
            used = module.devices if isinstance(module, PlacedModule) else ("cpu",)
            error = max(_error(made[output], expected[output]) for output in graph.outputs)
            found.append(RightAnswer(model, name, used, parts, error))

    for name, rules in forced(graph, devices).items():
        say(f"{model}: {name}")
        add(name, autotune.compile(graph, placement=rules))
    with tempfile.TemporaryDirectory() as folder:
        say(f"{model}: searched on {', '.join(devices)}")
        database = str(Path(folder) / "placement.db")
        searched(model, devices, database, {})
        add(f"searched on {', '.join(devices)}", autotune.compile(graph, devices=devices, database=database))
    return found


def slowed_devices(model: str, devices: Sequence[str], factor: float, say: Say) -> list[Slowed]:
    """Searches with no device and with each made slower; that one is named first, so that it has to be left."""
    found = []
    for device in (NONE, *devices):
        first = [] if device == NONE else [device]
        order = [*first, *(each for each in devices if each != device)]
        say(f"{model}: {device} slowed")
        setting = {} if device == NONE else {environment_name("slowdown"): f"{device}={factor:g}"}
        with tempfile.TemporaryDirectory() as folder:
            found.append(Slowed(model, device, searched(model, order, str(Path(folder) / "p.db"), setting)))
    return found


def searched(model: str, devices: Sequence[str], database: str, setting: Mapping[str, str]) -> dict[str, Any]:
    """What `autotune place` finds in a process of its own. Raises MeasureError with what it says if it fails."""
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


def tables(answers: Sequence[RightAnswer], slowed: Sequence[Slowed], factor: float) -> list[Table]:
    """Both as tables, those that have rows."""
    right = Table(
        "Right answers",
        ("model", "placement", "runs on", "parts", "error"),
        tuple(
            (
                a.model.removeprefix("zoo:"),
                a.placement,
                ", ".join(a.devices),
                str(a.parts),
                scientific(a.error),
            )
            for a in answers
        ),
        ("error: the largest difference from NumPy's results over the largest of these",),
    )
    moved = Table(
        f"Placements with a device {factor:g} times slower",
        (
            "model",
            "slowed",
            "all on one device, expected",
            "placed on",
            "parts there",
            "expected",
            "measured",
            "off",
        ),
        tuple(map(_row, slowed)),
        (
            "the slowed device is named first: all of the model on it is what a placement has to beat",
            "off: how much longer it took than expected, as a part of what it took",
        ),
    )
    return [table for table in (right, moved) if table.rows]


def _row(found: Slowed) -> tuple[str, ...]:
    alone = ", ".join(f"{name} {duration(1e9 * s)}" for name, s in found.report["alone_seconds"].items())
    used = found.used
    there = sum(device == found.device for device in used["placement"].values())
    return (
        found.model.removeprefix("zoo:"),
        found.device,
        alone,
        ", ".join(used["devices"]),
        str(there) if found.device != NONE else "",
        duration(1e9 * used["expected_seconds"]),
        duration(1e9 * used["measured_seconds"]),
        f"{found.off:+.0%}",
    )


def _spec(graph: Graph, name: str) -> Any:
    from autotune.runtime.image import TensorSpec

    found = graph.type_of(name)
    return TensorSpec(name, found.shape, found.dtype)


def _error(found: Any, expected: Any) -> float:
    largest = float(np.abs(expected).max()) or 1.0
    return float(np.abs(np.asarray(found, np.float64) - expected).max()) / largest


__all__ = ["NONE", "RightAnswer", "Slowed", "forced", "right_answers", "searched", "slowed_devices", "tables"]
