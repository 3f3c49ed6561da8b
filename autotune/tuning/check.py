"""Is a locked model still as fast? Today's code of its schedules is interleaved with the code of then
when it was locked.

The yardstick is machine code of that time, from an artifact whose code the lock has hashes of. Latencies in the lock
itself would be none: the same code reads 10 to 20 % apart on another day, let alone on another machine. Nor is the
default schedule of today: what makes both slower would not show. Old and new code, interleaved, meet the same
moments of the same machine, which cancel, and code that is the same byte for byte needs no reading.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.compiler.lock import Lock, LockedSchedule
from autotune.compiler.locked import changed_code, code_digest
from autotune.database.records import Ratio
from autotune.errors import LockError, MeasureError
from autotune.suggest import counted
from autotune.tuning.compare.paired import ERROR_RATE, least_processes, ratio, slower
from autotune.tuning.measure.turns import Rounds, Turns
from autotune.tuning.measure.whole_model import Profile

if TYPE_CHECKING:
    from autotune.compiler.dividing import Model
    from autotune.runtime.image import ModuleImage

SLOWER_THAN = 0.05
"""The allowed slowdown of code since it was locked, unless a user says otherwise."""
_ROUNDS = 5
"""In each process: their median passes over what disturbs single ones."""
_LOSSES = 1
"""The number of processes in which slower code may seem not to be."""

Read = Callable[[Sequence["ModuleImage"], Rounds], list[Profile]]
"""A function that measures versions of a model, interleaved."""


@dataclass(frozen=True)
class Finding:
    """The latency now over that of the code when it was locked: of a workload's dispatches, or of all together."""

    names: tuple[str, ...]
    ratio: Ratio
    slower: bool

    def __str__(self) -> str:
        """Return a line such as ``003_conv_relu: 1.12 (1.10 to 1.15) of the latency, slower``."""
        names = ", ".join(self.names[:3]) + (
            f" and {len(self.names) - 3} more" if len(self.names) > 3 else ""
        )
        low, high = self.ratio.interval or (self.ratio.median, self.ratio.median)
        verdict = ", slower" if self.slower else ""
        return f"{names}: {self.ratio.median:.2f} ({low:.2f} to {high:.2f}) of the latency{verdict}"


@dataclass(frozen=True)
class CheckReport:
    """The findings about a lock of so many ``workloads``.

    ``findings`` are those with other machine code than when they were locked, and the last is all dispatches together.
    """

    workloads: int
    slower_than: float
    findings: tuple[Finding, ...] = ()
    processes: int = 0

    @property
    def regressed(self) -> tuple[Finding, ...]:
        """Return the findings that are slower by more than is allowed."""
        return tuple(finding for finding in self.findings if finding.slower)

    def __str__(self) -> str:
        if not self.findings:
            return f"the machine code is what was locked, of {counted(self.workloads, 'workload')}: nothing is slower"
        changed = len(self.findings) - 1
        lines = [
            f"{changed} of {counted(self.workloads, 'workload')} with other machine code than when locked, "
            f"compared with that in {counted(self.processes, 'fresh process')}:",
            *(f"  {finding}" for finding in self.findings),
            f"slower by more than {100 * self.slower_than:g} %: {len(self.regressed)} of {len(self.findings)} "
            f"(where none is, a check says so in at most {100 * ERROR_RATE:g} % of all cases)",
        ]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return all of it; ratios are latencies now over those of the locked code."""
        return {
            "workloads": self.workloads,
            "slower_than": self.slower_than,
            "error_rate": ERROR_RATE,
            "processes": self.processes,
            "regressed": len(self.regressed),
            "findings": [
                {
                    "names": finding.names,
                    "ratio": finding.ratio.median,
                    "interval": finding.ratio.interval,
                    "slower": finding.slower,
                }
                for finding in self.findings
            ],
        }


def check(
    model: Model,
    lock: Lock,
    reference: Path | None = None,
    slower_than: float = SLOWER_THAN,
    read: Read | None = None,
) -> CheckReport:
    """Compile a model by a lock, and read what has other machine code than when it was locked beside ``reference``.

    That is an artifact of then (`autotune compile --lock`); it is not needed where the machine code is the same.
    Raises LockError for a lock or a reference that does not fit, ArtifactError, and MeasureError.
    """
    from autotune.compiler import CompileRequest, compile_in_detail

    done = compile_in_detail(CompileRequest(model, lock=lock, same_code=False))
    changed = changed_code(lock, done)
    if not changed:
        return CheckReport(lock.workloads, slower_than)
    if lock.placement:
        raise LockError(
            f"the machine code of {counted(len(changed), 'workload')} of {lock.model!r} has changed, and models on\n"
            "several devices are not measured against code of then: lock it again by `autotune lock`"
        )
    before = _reference(lock, reference, changed)
    asked = len(changed) + 1
    rounds = _rounds(asked)
    first, now = (read or _in_turns)([before, done.image], rounds)
    each = -(-rounds.most // rounds.processes)

    def finding(names: tuple[str, ...], workload: str | None) -> Finding:
        after, locked = (p.whole if workload is None else p.series(workload) for p in (now, first))
        found = slower(after, locked, each, slower_than, asked)
        return Finding(names, ratio(after, locked, each), found)

    findings = [finding(schedule.names, schedule.workload) for schedule in changed]
    whole = finding(("all dispatches together",), None)
    return CheckReport(len(lock.schedules), slower_than, (*findings, whole), rounds.processes)


def _rounds(asked: int) -> Rounds:
    processes = least_processes(asked, _LOSSES)
    return Rounds(most=_ROUNDS * processes, least=_ROUNDS * processes, processes=processes)


def _reference(lock: Lock, path: Path | None, changed: Sequence[LockedSchedule]) -> ModuleImage:
    """Return the artifact with the code that was locked."""
    from autotune.runtime.artifacts import artifact

    many = f"{len(changed)} of {counted(len(lock.schedules), 'workload')}"
    if path is None:
        versions = ", ".join(f"{name} {version}" for name, version in lock.versions.items())
        raise LockError(
            f"the locked schedules make other machine code now for {many}\n"
            f"  whether it is slower shows beside that of {versions}, which it was locked by: give the artifact that\n"
            "  `autotune compile MODEL --lock` made then as --reference"
        )
    image = artifact.load_image(path)
    digests = [code_digest(code) for code in image.objects]
    used = {image.dispatches[c.dispatch].workload_key: digests[c.object_index] for c in image.commands}
    other = [s for s in lock.schedules if used.get(s.workload, s.code if not s.names else "") != s.code]
    if other:
        raise LockError(
            f"the reference {path} is not of this lock: the code of {len(other)} of "
            f"{counted(len(lock.schedules), 'workload')} differs, the first is that of {', '.join(other[0].names[:2])}"
        )
    return image


def _in_turns(images: Sequence[ModuleImage], rounds: Rounds) -> list[Profile]:
    with Turns(seed=0) as turns:
        turns.start(rounds.processes)
        for image in images:
            turns.add(image)
        found = turns.profiles(rounds, lambda: False)
        profiles = [profile for profile in found if profile is not None]
        if len(profiles) < len(images):
            reasons = "; ".join(turns.failures.values())
            raise MeasureError(f"the locked model cannot be measured: {reasons}")
        return profiles


__all__ = ["SLOWER_THAN", "CheckReport", "Finding", "check"]
