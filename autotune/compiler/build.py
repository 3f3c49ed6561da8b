"""Machine code of workloads with chosen schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from autotune import settings
from autotune.codegen import wire
from autotune.codegen.backend import compile_schedule
from autotune.codegen.code import DispatchCode
from autotune.compiler.assemble import BuiltWorkload
from autotune.compiler.build_workers import BuildWorkers
from autotune.compiler.choice import GIVEN, Choice, apply
from autotune.graph.region import Workload
from autotune.schedule.trace import Trace
from autotune.target import Target

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called with the number of workloads built so far, the number of all, and the kind of the last."""


class Building:
    """Choices that are compiled: ``workers`` begin at once, this process by :meth:`finish`."""

    def __init__(
        self,
        choices: Sequence[Choice],
        target: Target,
        workers: BuildWorkers | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._choices = choices
        self._workers = workers or BuildWorkers()
        self._progress = progress
        self._finished = 0
        self._round = self._workers.begin([BuildTask(choice, target) for choice in choices], self._done)

    def _done(self, number: int) -> None:
        self._finished += 1
        if self._progress is not None:
            self._progress(self._finished, len(self._choices), self._choices[number].workload.kind)

    def finish(self) -> dict[str, BuiltWorkload]:
        """The code by workload key, in the order of the choices."""
        codes = self._workers.finish(self._round)
        pairs = zip(self._choices, codes, strict=True)
        return {choice.workload.key: BuiltWorkload(choice, code) for choice, code in pairs}


@dataclass(frozen=True)
class BuildTask:
    """The code of one choice, made here or by a build worker."""

    choice: Choice
    target: Target

    @property
    def what(self) -> str:
        """For messages."""
        return f"the code of a {self.choice.workload.kind}"

    def run(self) -> DispatchCode:
        """Make the code here."""
        applied = self.choice.scheduled or apply(self.choice.workload, self.choice.trace)
        return compile_schedule(
            applied.schedule,
            applied.program.args,
            self.target,
            name=f"w{self.choice.workload.key[:16]}",
            constants=applied.program.constants,
            strides=applied.program.strides,
        )

    def request(self) -> dict[str, Any] | None:
        """What a build worker needs.

        None for a schedule that a caller gave, which may name instructions of the caller's own, and while IR is
        dumped: the text of a build worker's code stays there.
        """
        if self.choice.source == GIVEN or settings.current().dump:
            return None
        return {
            "do": "build",
            "workload": self.choice.workload.text,
            "trace": self.choice.trace.to_json(),
            "source": self.choice.source,
            "target": self.target.to_json(),
        }

    def result(self, answer: Mapping[str, Any]) -> DispatchCode:
        """The code that a build worker made, without its LLVM IR text."""
        return wire.from_json(answer)


def answer_build(request: Mapping[str, Any]) -> dict[str, Any]:
    """The build worker's side of :class:`BuildTask`."""
    workload, trace = Workload.parse(request["workload"]), Trace.from_json(request["trace"])
    task = BuildTask(Choice(workload, trace, request["source"]), Target.from_json(request["target"]))
    return wire.to_json(task.run())


__all__ = ["BuildTask", "Building", "Progress", "answer_build"]
