"""Profiles: what each dispatch of a model takes, how far that is from the roofline, and how its workers were used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune.foreign import preformatted
from autotune.profiling.roofline import Roofs, roofs_of
from autotune.profiling.traffic import MemoryTraffic, traffic
from autotune.profiling.workers import StepCounters, counters
from autotune.runtime.recording import Recording, StepRecording

if TYPE_CHECKING:
    from autotune.runtime.loaded import Inputs
    from autotune.runtime.module import Module


@dataclass(frozen=True)
class DispatchProfile:
    """One dispatch; of a device that tells no more, all dispatches of a step, or a transfer.

    ``time_ns`` is the median over the runs, from the end of the dispatch before to its own last tile; ``share`` is of
    the median run. ``flops`` and ``nbytes`` are of one run: its arithmetic, and the memory that its kernels may touch,
    each byte once. ``least_ns`` is what the machine needs at least, because of ``bound``: arithmetic, L2, L3 or
    memory; None where no roof is known, and so are ``busy`` (the share of all workers' time, 0 to 1), ``tiles`` and
    ``stolen`` (of a run, in the mean) where the workers are not known.
    """

    name: str
    kind: str
    device: str
    nodes: tuple[str, ...]
    time_ns: float
    share: float
    flops: int
    nbytes: int
    least_ns: float | None
    bound: str | None
    busy: float | None
    tiles: float | None
    stolen: float | None

    @property
    def gflops(self) -> float:
        """Billions of operations a second."""
        return self.flops / self.time_ns if self.time_ns else 0.0

    @property
    def gbytes(self) -> float:
        """Billions of bytes a second."""
        return self.nbytes / self.time_ns if self.time_ns else 0.0

    @property
    def of_roof(self) -> float | None:
        """The share of the roofline's rate that it reaches."""
        return self.least_ns / self.time_ns if self.least_ns is not None and self.time_ns else None

    def to_json(self) -> dict[str, Any]:
        """Return all of it, as plain values."""
        idle = None if self.busy is None else 1.0 - self.busy
        rates = {"gflops": self.gflops, "gbytes": self.gbytes, "of_roof": self.of_roof, "idle": idle}
        return asdict(self) | {"nodes": [*self.nodes]} | rates


@dataclass(frozen=True)
class WorkerProfile:
    """One worker over all dispatches: the share of a run that it was busy (0 to 1), mean tiles of a run, and the
    ``share`` of a dispatch's tiles that it began with in the last run, None where nothing says."""

    device: str
    worker: int
    busy: float
    tiles: float
    stolen: float
    share: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return all of it, as plain values."""
        return asdict(self) | {"idle": 1.0 - self.busy}


@dataclass(frozen=True)
class DeviceProfile:
    """One device: workers (None where nothing says), what its dispatches take together, the rest of the median run,
    and its roofs, None where nobody knows them."""

    name: str
    threads: int | None
    time_ns: float
    rest_ns: float
    roofs: Roofs | None

    def to_json(self) -> dict[str, Any]:
        """Return all of it, as plain values."""
        roofs = None if self.roofs is None else self.roofs.to_json()
        return {
            "name": self.name,
            "threads": self.threads,
            "time_ns": self.time_ns,
            "rest_ns": self.rest_ns,
            "roofs": roofs,
        }


@dataclass(frozen=True)
class ModelProfile:
    """The time of a model by dispatch, the longest first. ``latency_ns`` is the median of the recorded runs."""

    model: str
    runs: int
    latency_ns: float
    devices: tuple[DeviceProfile, ...]
    dispatches: tuple[DispatchProfile, ...]
    workers: tuple[WorkerProfile, ...]

    def to_json(self) -> dict[str, Any]:
        """Return all of it, as plain values."""
        return {
            "model": self.model,
            "runs": self.runs,
            "latency_ns": self.latency_ns,
            **{
                name: [each.to_json() for each in getattr(self, name)]
                for name in ("devices", "dispatches", "workers")
            },
        }

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    def __str__(self) -> str:
        from autotune.profiling.lines import lines_of

        return "\n".join(lines_of(self))


def profile(module: Module, inputs: Inputs, *, runs: int = 20) -> ModelProfile:
    """Run a compiled model ``runs`` times and say where the time goes.

    ``inputs`` are arrays in order or by name. The roofline is that of this machine with as many workers as the module
    has. Raises UsageError for less than one run, InputError for arrays that do not fit.
    """
    return profile_of(module.recording(inputs, runs))


def profile_of(recording: Recording, roofs: Mapping[str, Roofs | None] | None = None) -> ModelProfile:
    """Return the profile of recorded runs; ``roofs`` by device are by default those of the machine that it names."""
    names = tuple(dict.fromkeys(step.device for step in recording.steps))
    wall = float(np.median(recording.walls_ns))
    devices, dispatches, workers = list[DeviceProfile](), list[DispatchProfile](), list[WorkerProfile]()
    for name in names:
        steps = [step for step in recording.steps if step.device == name]
        target = steps[0].target
        own = roofs_of(target) if roofs is None else roofs[name]
        counted = [counters(step) for step in steps]
        found = _dispatches(steps, counted, own, wall)
        pairs = zip(steps, counted, strict=True)
        known = [each for step, each in pairs if each is not None and step.known_workers]
        taken = sum(each.time_ns for each in found)
        threads = known[0].workers if known else None
        devices.append(DeviceProfile(name, threads, taken, wall - taken, own))
        dispatches += found
        workers += _workers(name, known, float(recording.walls_ns.mean()))
    ordered = sorted(dispatches, key=lambda each: -each.time_ns)
    return ModelProfile(recording.name, recording.runs, wall, tuple(devices), tuple(ordered), tuple(workers))


def _dispatches(
    steps: Sequence[StepRecording], counted: Sequence[StepCounters | None], roofs: Roofs | None, wall: float
) -> list[DispatchProfile]:
    images = [step.image for step in steps if step.image is not None]
    capacities = (np.inf, np.inf) if roofs is None else roofs.capacities
    moved = iter(traffic(images, *capacities))
    found: list[DispatchProfile] = []
    for step, counts in zip(steps, counted, strict=True):
        bytes_of = [] if step.image is None else next(moved)
        if counts is None:
            found.append(_whole(step, bytes_of, wall))
        else:
            found += [_one(step, counts, n, each, roofs, wall) for n, each in enumerate(bytes_of)]
    return found


def _one(
    step: StepRecording,
    counts: StepCounters,
    number: int,
    moved: MemoryTraffic,
    roofs: Roofs | None,
    wall: float,
) -> DispatchProfile:
    assert step.image is not None
    info = step.image.dispatches[number]
    time, mean = float(np.median(counts.taken_ns[:, number])), float(counts.taken_ns[:, number].mean())
    busy = float(counts.busy_ns[number].sum()) / (mean * counts.workers) if mean else 0.0
    roof = None if roofs is None else roofs.of(info.flops, info.dtype, moved)
    return DispatchProfile(
        name=info.name,
        kind=info.kind,
        device=step.device,
        nodes=info.nodes,
        time_ns=time,
        share=time / wall if wall else 0.0,
        flops=info.flops,
        nbytes=moved.nbytes,
        least_ns=None if roof is None else roof.least_ns,
        bound=None if roof is None else roof.bound,
        busy=min(busy, 1.0) if step.known_workers else None,
        tiles=float(counts.tiles[number].sum()),
        stolen=float(counts.stolen[number].sum()) if step.known_workers else None,
    )


def _whole(step: StepRecording, moved: Sequence[MemoryTraffic], wall: float) -> DispatchProfile:
    """Return a step that is known as a whole alone."""
    infos = () if step.image is None else step.image.dispatches
    time = float(np.median(step.end_ns - step.begin_ns))
    return DispatchProfile(
        name=step.label,
        kind=", ".join(dict.fromkeys(info.kind for info in infos)) or "transfer",
        device=step.device,
        nodes=tuple(dict.fromkeys(node for info in infos for node in info.nodes)),
        time_ns=time,
        share=time / wall if wall else 0.0,
        flops=sum(info.flops for info in infos),
        nbytes=sum(each.nbytes for each in moved) if infos else step.moved_bytes,
        least_ns=None,
        bound=None,
        busy=None,
        tiles=None,
        stolen=None,
    )


def _workers(device: str, known: Sequence[StepCounters], wall: float) -> list[WorkerProfile]:
    if not known:
        return []
    busy, tiles, stolen = (
        sum(getattr(each, name).sum(axis=0) for each in known) for name in ("busy_ns", "tiles", "stolen")
    )
    return [
        WorkerProfile(
            device,
            worker,
            min(1.0, float(busy[worker]) / (wall or 1.0)),
            float(tiles[worker]),
            float(stolen[worker]),
            known[-1].shares[worker] if known[-1].shares else None,
        )
        for worker in range(known[0].workers)
    ]


__all__ = ["DeviceProfile", "DispatchProfile", "ModelProfile", "WorkerProfile", "profile", "profile_of"]
