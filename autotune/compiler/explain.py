"""A compilation as text: for ``autotune explain`` and, with ``AUTOTUNE_DUMP``, for reading later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autotune import settings
from autotune.compiler.assemble import BuiltWorkload
from autotune.compiler.coverage import CoverageReport
from autotune.compiler.memory.proof import MemoryProof
from autotune.compiler.plan import Plan
from autotune.compiler.proof import ProofReport
from autotune.compiler.sites.decision import ShownDecision
from autotune.frontends.sizes import Given
from autotune.passes.memory.plan_memory import MemoryPlan
from autotune.passes.partition import Partition
from autotune.passes.pipeline import dump_folder
from autotune.passes.placement.affinity import Affinities
from autotune.runtime.conflicts import done_before
from autotune.runtime.image import ModuleImage, largest_input
from autotune.runtime.programs.device_program import DeviceProgram


@dataclass(frozen=True, eq=False)
class CompiledSegment:
    """A segment of a compiled model and how it came about; ``device`` is empty where none is named."""

    device: str
    image: ModuleImage
    coverage: CoverageReport
    partition: Partition
    memory_plan: MemoryPlan
    plan: Plan
    keys: tuple[str, ...]
    """The workloads of the image's objects."""
    proofs: ProofReport | None = None
    """With ``verify``: what isl proved of each schedule."""
    memory_proof: MemoryProof | None = None
    """With ``verify``: every value is whole when it is read."""

    @property
    def growth(self) -> float:
        """The factor by which the algorithms used enlarge what they compute."""
        return float(self.image.metadata["growth"])


@dataclass(frozen=True, eq=False)
class Compilation:
    """A model compiled for one target and size, or for the devices that are named, and how it came about."""

    program: DeviceProgram
    segments: tuple[CompiledSegment, ...]
    tolerance: float
    """The error that algorithms might declare."""
    shapes: Given | None = None
    """Sizes that the model leaves open, as they were given."""
    affinities: Affinities | None = None
    """The devices of parts and the reasons, if devices are named."""
    decisions: tuple[ShownDecision, ...] = ()
    """Those at sites of the whole model: options that are used, and a placement that was looked up."""
    error: float | None = None
    """From end to end, where it was asked for: see :mod:`autotune.tuning.measure.accuracy`."""

    @property
    def only(self) -> CompiledSegment:
        """Return the segment of a model that is one."""
        (segment,) = self.segments
        return segment

    @property
    def image(self) -> ModuleImage:
        """The image of the only segment."""
        return self.only.image

    @property
    def partition(self) -> Partition:
        """The dispatches of the only segment."""
        return self.only.partition

    @property
    def memory_plan(self) -> MemoryPlan:
        """The memory of the only segment."""
        return self.only.memory_plan

    @property
    def plan(self) -> Plan:
        """The plan of the only segment."""
        return self.only.plan

    @property
    def coverage(self) -> CoverageReport:
        """Return that of all segments, in their order."""
        plans = {id(segment.plan): segment.plan for segment in self.segments}
        return CoverageReport(
            tuple(dispatch for segment in self.segments for dispatch in segment.coverage.dispatches),
            tuple(ranking for plan in plans.values() for ranking in plan.rankings.values()),
            self.decisions,
        )

    @property
    def proofs(self) -> tuple[ProofReport, ...]:
        """With ``verify``: those of all segments."""
        return tuple(segment.proofs for segment in self.segments if segment.proofs is not None)

    @property
    def growth(self) -> float:
        """Return the largest of all segments."""
        return max((segment.growth for segment in self.segments), default=1.0)

    @property
    def range_line(self) -> str:
        """Return the line about the finite inputs that the algorithms used are for; empty where they are for all."""
        if self.growth <= 1:
            return ""
        return (
            f"good for magnitudes up to {largest_input(self.growth):.0e} of what convolutions and products read "
            "(Winograd's or Strassen's algorithm); NaN and infinities reach whole tiles: --finite leaves these out"
        )


def dump(segment: CompiledSegment, built: Mapping[str, BuiltWorkload]) -> None:
    """Write dispatches, memory plan, coverage and, a file a workload, schedule and LLVM IR.

    The folder is that of the graph passes' dumps; nothing happens without ``AUTOTUNE_DUMP``.
    """
    root = settings.current().dump
    if not root:
        return
    folder = dump_folder(root, segment.partition.name)
    _write(folder / "dispatches.txt", str(segment.partition))
    _write(folder / "memory_plan.txt", segment.memory_plan.render())
    _write(folder / "coverage.txt", segment.coverage.details())
    for key, workload in built.items():
        stem = folder / "workloads" / f"{workload.planned.workload.kind}_{key[:12]}"
        stem.parent.mkdir(exist_ok=True)
        _write(stem.with_suffix(".region.txt"), workload.planned.workload.text)
        _write(stem.with_suffix(".schedule.py"), workload.planned.trace.to_python())
        _write(stem.with_suffix(".ll"), workload.code.ir)


def beside(image: ModuleImage) -> dict[str, list[str]]:
    """Return by name each dispatch that may start before earlier ones are done, and those."""
    found = dict[str, list[str]]()
    for number, done in enumerate(done_before(image.commands)):
        mine = image.commands[number].dispatch
        others = dict.fromkeys(each.dispatch for each in image.commands[done:number] if each.dispatch != mine)
        if others:
            names = found.setdefault(image.dispatches[mine].name, [])
            names += [name for other in others if (name := image.dispatches[other].name) not in names]
    return found


def _write(path: Path, text: str) -> None:
    path.write_text(text.rstrip("\n") + "\n", encoding="utf-8")


__all__ = ["Compilation", "CompiledSegment", "beside", "dump"]
