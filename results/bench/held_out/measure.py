"""Exports, compiles and compares: one outcome a model."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autotune.bench.options import check_known
from autotune.bench.side_by_side import Competitor, CompetitorResult, Pace, SideBySide, difference
from autotune.bench.systems import OURS, System
from autotune.distribution import install
from autotune.errors import MeasureError, MissingExtraError
from autotune.graph.ir import Array
from autotune.passes.preference import TOLERANCE as DEFAULT
from results.bench.held_out.architectures import ARCHITECTURES, Architecture
from results.bench.held_out.compiling import Compiled, compiled

TOLERANCE = 1e-4
"""The largest difference to ONNX Runtime that counts as right, relative to the largest value of an output."""
_MODULES = ("torch", "torchvision", "timm", "transformers", "onnxscript")
_EXPORT = "results.bench.held_out.export"
_EXACT = "results.bench.held_out.exact"
_OURS = "ours"


@dataclass(frozen=True)
class Outcome:
    """One architecture by one exporter. ``failure`` says why nothing was compared: where it ended, and how.

    ``error`` is the largest difference to the peer, relative to the largest value; latencies are in nanoseconds. Where
    it is too large, ``off`` and ``peer_off`` are the differences of both to the model in float64. ``tolerance`` is what
    the model was compiled with, None for the default.
    """

    name: str
    family: str
    exporter: str
    compiled: Compiled | None = None
    error: float | None = None
    ours_ns: float | None = None
    peer_ns: float | None = None
    failure: str = ""
    tolerance: float | None = None
    off: float | None = None
    peer_off: float | None = None

    @property
    def right(self) -> bool:
        """Return whether the outputs are those of the peer, or of float64 where the peer's are not."""
        return any(each is not None and each <= TOLERANCE for each in (self.error, self.off))

    @property
    def ratio(self) -> float | None:
        """Our latency over the peer's, the minima of both."""
        return self.ours_ns / self.peer_ns if self.ours_ns and self.peer_ns else None


@dataclass(frozen=True)
class Limits:
    """Seconds that exporting and compiling may take."""

    export_s: float = 600.0
    compile_s: float = 300.0


def chosen(names: Sequence[str]) -> list[Architecture]:
    """The named architectures, all by default; raises MissingExtraError without the packages that they come from."""
    import importlib.util

    missing = [module for module in _MODULES if importlib.util.find_spec(module) is None]
    if missing:
        raise MissingExtraError(f"architectures are exported by {', '.join(missing)}: {install('held-out')}")
    return [each for each in ARCHITECTURES if not names or each.name in names]


def measure(
    architectures: Sequence[Architecture],
    exporters: Sequence[str],
    folder: Path,
    peer: System | None,
    threads: int,
    pace: Pace,
    say: Callable[[str], None],
    limits: Limits = Limits(),
) -> Iterator[Outcome]:
    """Each architecture by each exporter; what was exported to the folder before is used again.

    A model that cannot be exported or compiled is an outcome, too. Raises MeasureError where a process ends that says
    nothing.
    """
    for architecture in architectures:
        for exporter in architecture.exporters(exporters):
            place = folder / f"{architecture.name}-{exporter}"
            say(f"{architecture.name} by {exporter}")
            outcome = Outcome(
                architecture.name, architecture.family, exporter, tolerance=architecture.tolerance
            )
            yield _measured(outcome, architecture, place, peer, threads, pace, limits)


def _measured(
    outcome: Outcome,
    architecture: Architecture,
    place: Path,
    peer: System | None,
    threads: int,
    pace: Pace,
    limits: Limits,
) -> Outcome:
    model = place / "model.onnx"
    if not model.exists():
        failure = _exported(architecture, outcome.exporter, place, limits.export_s)
        if failure:
            return replace(outcome, failure=f"export: {failure}")
    with tempfile.TemporaryDirectory() as scratch:
        artifact = Path(scratch) / "model.atm"
        try:
            tolerance = DEFAULT if architecture.tolerance is None else architecture.tolerance
            done = compiled(model, threads, artifact, limits.compile_s, tolerance)
        except MeasureError as error:
            return replace(outcome, failure=f"compile: {error}")
        outcome = replace(outcome, compiled=done)
        if done.failure:
            return replace(outcome, failure=f"compile: {done.failure.replace(str(model), model.name)}")
        inputs = _inputs(model, place)
        entries = [Competitor(_OURS, OURS, str(artifact), inputs)]
        if peer is not None:
            entries.append(Competitor(peer.name, peer, str(model), inputs))
        with SideBySide(threads, Path(scratch), pace) as running:
            readings = running.run(entries)
    failed = {name: reading.failure for name, reading in readings.items() if reading.failure}
    if failed:
        return replace(outcome, failure="; ".join(f"{name}: {why}" for name, why in failed.items()))
    ours = readings[_OURS]
    outcome = replace(outcome, ours_ns=_min_ns(ours))
    if peer is None:
        return outcome
    theirs = readings[peer.name]
    distance = difference(ours.outputs, theirs.outputs, np.asarray)
    outcome = replace(outcome, error=distance, peer_ns=_min_ns(theirs))
    exact = None if outcome.right else _in_float64(architecture, limits.export_s)
    if exact is None:
        return outcome
    off, peer_off = (difference(each.outputs, exact, np.asarray) for each in (ours, theirs))
    return replace(outcome, off=off, peer_off=peer_off)


def _in_float64(architecture: Architecture, limit_s: float) -> list[Array] | None:
    """The outputs in float64; None where PyTorch cannot compute them."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "exact.npz"
        command = (sys.executable, "-m", _EXACT, architecture.name, str(path))
        try:
            subprocess.run(command, capture_output=True, check=True, timeout=limit_s)
        except subprocess.SubprocessError:
            return None
        with np.load(path) as file:
            return [file[name] for name in file.files]


def _min_ns(reading: CompetitorResult) -> float | None:
    return reading.latency.min_ns if reading.latency else None


def _exported(architecture: Architecture, exporter: str, place: Path, limit_s: float) -> str:
    """Export to the place; the last line of what the exporter said where it failed."""
    place.mkdir(parents=True, exist_ok=True)
    command = (sys.executable, "-m", _EXPORT, architecture.name, exporter, str(place))
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return f"not done after {limit_s:.0f} s"
    if done.returncode == 0:
        return ""
    return "".join(done.stderr.strip().splitlines()[-1:]) or f"ended with {done.returncode}"


def _inputs(model: Path, place: Path) -> dict[str, str]:
    """The files of a model's inputs by name: an exporter leaves out inputs that nothing reads."""
    import onnx

    graph = onnx.load(str(model), load_external_data=False).graph
    given = {tensor.name for tensor in graph.initializer}
    names = [value.name for value in graph.input if value.name not in given]
    return {name: str(place / f"{name.removeprefix('input_')}.npy") for name in names}


def check_names(names: Sequence[str]) -> None:
    """Raise UsageError for a name that is of no architecture."""
    check_known(names, (each.name for each in ARCHITECTURES), "architecture")


__all__ = ["TOLERANCE", "Limits", "Outcome", "check_names", "chosen", "measure"]
