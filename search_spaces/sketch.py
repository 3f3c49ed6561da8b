"""A sketch: a schedule function with knobs, as the family of traces that it stands for.

The function takes a schedule and calls primitives with knob values. A run with one configuration gives a trace whose
arguments are expressions of knobs, and the guards that Python asked for on the way. All configurations that answer
the guards alike share that trace: a *path*. Paths are found when somebody first needs them and kept in a tree of
guards, so that a population of thousands runs the function once a path.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autotune import te
from autotune.errors import AutotuneError, KnobError
from autotune.schedule.knob import Columns, Config, Knob, Value
from autotune.schedule.knob_expression import Expression, evaluate, knobs_in
from autotune.schedule.knob_value import KnobRecord
from autotune.schedule.trace import Trace
from autotune.suggest import did_you_mean
from search_spaces.constraint import Constraint
from search_spaces.programs.discover import Discovery

if TYPE_CHECKING:
    from autotune.schedule import Schedule
    from autotune.te import Tensor

ScheduleFunction = Callable[["Schedule"], object]
Choices: TypeAlias = Mapping[str, Any]
"""Knobs by name, as a schedule function reads them: values of one configuration, or knob values."""
_FICKLE = "the schedule function does not do the same each time; it may depend on nothing but its knobs"
_ATTEMPTS = 4
"""Configurations that are tried before a path is given up as illegal."""


@dataclass(frozen=True)
class Path:
    """The steps that some configurations share: a trace with knobs, and the knobs that matter on it.

    ``schedule`` is that of the configuration that the path was found with. ``error`` says why there is no trace: the
    function refused what was tried.
    """

    trace: Trace = field(default_factory=Trace)
    active: tuple[str, ...] = ()
    schedule: Schedule | None = field(default=None, compare=False)
    error: AutotuneError | None = field(default=None, compare=False)


class _Node:
    """A place in the tree of guards: unknown yet, a question with a node an answer, or a path."""

    def __init__(self) -> None:
        self.question: Expression = None
        self.answers: dict[Value, _Node] = {}
        self.path: Path | None = None

    def answer(self, outcome: Value) -> _Node:
        return self.answers.setdefault(outcome, _Node())


class Sketch:
    """A schedule function over a program, with the knobs and constraints that it declares.

    These are discovered by running the function: with the defaults, and with each guard answered otherwise. Give
    ``knobs`` and ``constraints`` where they are known. A knob that a path does not ask for is inactive there, and
    configurations that differ in inactive knobs only are one candidate: see :meth:`canonical`. Raises what the function
    raises with the defaults, and KnobError for knobs that are declared differently on different paths.

    >>> from autotune.lower.examples import chain
    >>> _, A, B, C = chain(64)
    >>> def schedule(s):
    ...     width = s.knob("width", (4, 8, 16), default=8)
    ...     outer, inner = s[C].split(s[C].op.axis[0], factor=width)
    ...     s[C].vectorize(inner)
    ...     if s.knob("inline", (False, True)):
    ...         s[B].compute_inline()
    >>> sketch = Sketch(schedule, [C])
    >>> [knob.name for knob in sketch.knobs]
    ['width', 'inline']
    >>> print(sketch.bind({"width": 16, "inline": False}))
    i_outer, i_inner = s["C"].split(parent=s["C"].loop_named("i"), factor=16)
    s["C"].vectorize(var=s["C"].loop_named("i.inner"))
    """

    def __init__(
        self,
        function: ScheduleFunction,
        outputs: Sequence[Tensor],
        knobs: Sequence[Knob] | None = None,
        constraints: Sequence[Constraint] = (),
    ) -> None:
        self.function = function
        self.outputs = tuple(outputs)
        self._declared = {knob.name: knob for knob in knobs or ()}
        self._root = _Node()
        self._met: list[str] = []
        if knobs is None:
            found = Discovery.of(self._try)
            self._met = [f"{path.active} {path.trace.to_json()}" for path in self._known(self._root)]
            self.knobs, self.constraints = found.knobs, found.constraints
        else:
            self.knobs, self.constraints = tuple(knobs), tuple(constraints)

    @cached_property
    def default(self) -> dict[str, Value]:
        """The declared defaults."""
        return {knob.name: knob.default for knob in self.knobs}

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the steps that discovery met: another function has another one."""
        return hashlib.sha256("\n".join(self._met).encode()).hexdigest()

    def schedule(self, config: Config) -> Schedule:
        """Return a fresh schedule with the steps of ``config``; raises what the function raises."""
        schedule, record = self._fresh(config)
        self._call(schedule, record)
        schedule.steps = list(schedule.trace.bind(self._complete(config)).steps)
        return schedule

    def bind(self, config: Config) -> Trace:
        """Return the steps of ``config``, without knobs; raises KnobError for an illegal one, and what
        the function raises."""
        complete = self._complete(config)
        for constraint in self.constraints:
            constraint.check(complete)
        path = self.path(complete)
        if path.error is not None:
            raise path.error
        return path.trace.bind(complete)

    def path(self, config: Config) -> Path:
        """Return the path of one configuration."""
        complete = self._complete(config)
        node = self._root
        while node.question is not None:
            node = node.answer(evaluate(node.question, complete))
        if node.path is None or node.path.error is not None:
            error = self._explore([complete])
            return Path(error=error) if error is not None else self.path(complete)
        return node.path

    def paths(self, columns: Columns) -> list[tuple[NDArray[np.intp], Path]]:
        """Return the rows of a population by path, each row once."""
        found: list[tuple[NDArray[np.intp], Path]] = []
        pending = [(self._root, np.arange(len(next(iter(columns.values()), [0]))))]
        while pending:
            node, rows = pending.pop()
            if node.path is None and node.question is None:
                configs = ({name: columns[name][row].item() for name in columns} for row in rows[:_ATTEMPTS])
                error = self._explore(configs)
                node.path = Path(error=error) if error is not None else node.path
            if node.path is not None:
                found.append((rows, node.path))
                continue
            asked = {name: columns[name][rows] for name in knobs_in(node.question)}
            outcomes = np.broadcast_to(evaluate(node.question, asked), (len(rows),))
            pending += [(node.answer(o.item()), rows[outcomes == o]) for o in np.unique(outcomes)]
        return found

    def canonical(self, config: Config) -> dict[str, Value]:
        """Return the configuration with the defaults for inactive knobs: equal for equal candidates."""
        active = self.path(config).active
        return {k.name: config[k.name] if k.name in active else k.default for k in self.knobs}

    def _known(self, node: _Node) -> Iterator[Path]:
        """Yield the paths so far, in a fixed order."""
        if node.path is not None:
            yield node.path
        for _, below in sorted(node.answers.items(), key=lambda item: str(item[0])):
            yield from self._known(below)

    def _complete(self, config: Config) -> dict[str, Value]:
        """Return the configuration with defaults for what it does not name; raises KnobError for what is not legal."""
        names = [knob.name for knob in self.knobs]
        for name in config.keys() - set(names):
            raise KnobError(f"the sketch has no knob {name!r}" + did_you_mean(name, names))
        return {
            k.name: k.values[k.index(config[k.name])] if k.name in config else k.default for k in self.knobs
        }

    def _fresh(self, config: Config) -> tuple[Schedule, KnobRecord]:
        schedule = te.create_schedule([tensor.op for tensor in self.outputs])
        record = KnobRecord(config, recording=True, knobs=dict(self._declared))
        schedule.record = record
        return schedule, record

    def _call(self, schedule: Schedule, record: KnobRecord) -> None:
        try:
            self.function(schedule)
        finally:
            record.recording = False

    def _try(self, config: Config) -> tuple[KnobRecord, AutotuneError | None]:
        """Run it for what it declares; return its refusal second."""
        schedule, record = self._fresh(config)
        try:
            self._call(schedule, record)
        except AutotuneError as error:
            return record, error
        self._insert(record, schedule)
        return record, None

    def _explore(self, configs: Iterable[Config]) -> AutotuneError | None:
        """Run the function with the first of ``configs`` that it takes; the last refusal where it takes none."""
        error: AutotuneError | None = None
        for config in configs:
            record, error = self._try(config)
            unknown = record.used.keys() - self.default.keys()
            if unknown:
                raise KnobError(
                    f"the knob {min(unknown)!r} is declared for few configurations only, such as {dict(config)}; "
                    "declare it at the beginning of the schedule function"
                )
            if error is None:
                return None
        return error

    def _insert(self, record: KnobRecord, schedule: Schedule) -> None:
        node = self._root
        for question, outcome in record.guards.items():
            if node.question is None:
                node.question, node.path = question, None
            if node.question != question:
                raise KnobError(_FICKLE)
            node = node.answer(outcome)
        if node.question is not None:
            raise KnobError(_FICKLE)
        node.path = Path(schedule.trace, tuple(record.used), schedule)


__all__ = ["Choices", "Path", "ScheduleFunction", "Sketch"]
