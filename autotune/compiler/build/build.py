"""Machine code of workloads with chosen schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune import settings
from autotune.codegen import wire
from autotune.codegen.backend import compile_schedule, manifest_of
from autotune.codegen.code import DispatchCode
from autotune.compiler.assemble import BuiltWorkload
from autotune.compiler.build.workers import BuildWorkers
from autotune.compiler.planned import GIVEN, Planned, Scheduled, apply
from autotune.graph.region import Workload
from autotune.schedule.trace import Trace
from autotune.target import Target


class Building:
    """Choices that are compiled: ``workers`` begin at once, this process by :meth:`finish`."""

    def __init__(
        self, schedules: Sequence[Planned], target: Target, workers: BuildWorkers | None = None
    ) -> None:
        self._schedules = schedules
        self._workers = workers or BuildWorkers()
        self._round = self._workers.begin([BuildTask(planned, target) for planned in schedules])

    def finish(self) -> dict[str, BuiltWorkload]:
        """Return the code by workload key, in the order of the schedules."""
        codes = self._workers.finish(self._round)
        pairs = zip(self._schedules, codes, strict=True)
        return {planned.workload.key: BuiltWorkload(planned, code) for planned, code in pairs}


@dataclass(frozen=True)
class BuildTask:
    """The code of one schedule, made here or by a build worker."""

    planned: Planned
    target: Target

    @property
    def what(self) -> str:
        """For messages."""
        return f"the code of a {self.planned.workload.kind}"

    def run(self) -> DispatchCode:
        """Make the code here."""
        applied = applied_of(self.planned)
        return compile_schedule(
            applied.schedule,
            applied.program.args,
            self.target,
            name=self.planned.workload.symbol,
            constants=applied.program.constants,
            strides=applied.program.strides,
        )

    def request(self) -> dict[str, Any] | None:
        """Return the request to a build worker.

        None for a schedule that a caller gave, which may name instructions of the caller's own, and while IR is
        dumped: the text of a build worker's code stays there.
        """
        if self.planned.evidence == GIVEN or settings.current().dump:
            return None
        return {
            "do": "build",
            "workload": self.planned.workload.text,
            "trace": self.planned.trace.to_json(),
            "target": self.target.to_json(),
        }

    def result(self, answer: Mapping[str, Any]) -> DispatchCode:
        """Return the code that a build worker made, without its LLVM IR text."""
        return wire.from_json(answer)


def applied_of(planned: Planned) -> Scheduled:
    """Return the program and the schedule of a choice."""
    return planned.scheduled or apply(planned.workload, planned.trace)


def generated_key(planned: Planned, target: Target) -> str:
    """Return the key of the code of one schedule, which is generated and not compiled."""
    applied = applied_of(planned)
    constants, strides = applied.program.constants, applied.program.strides
    return manifest_of(
        applied.schedule, applied.program.args, target, constants=constants, strides=strides
    ).key


def answer_build(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the build worker's side of :class:`BuildTask`."""
    workload, trace = Workload.parse(request["workload"]), Trace.from_json(request["trace"])
    task = BuildTask(Planned(workload, trace, GIVEN), Target.from_json(request["target"]))
    return wire.to_json(task.run())


__all__ = ["BuildTask", "Building", "answer_build", "generated_key"]
