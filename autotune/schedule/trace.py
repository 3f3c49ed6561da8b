"""The trace of a schedule: a tuple of frozen steps that replays on a fresh schedule of the same program.

Steps name stages by operation and loops by iteration variable, so a trace is plain data: it hashes, prints, and
goes through JSON. Modelled on MetaSchedule's traces; here it is also what the user's own calls produce.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from autotune.errors import AutotuneError, ScheduleError
from autotune.foreign import parse_json
from autotune.schedule import legality
from autotune.schedule.arguments import accepted
from autotune.schedule.encoding import (
    bound,
    decode,
    encode,
    frozen,
    identifier,
    python_text,
    stage_text,
)
from autotune.schedule.knob import Config
from autotune.schedule.knob_expression import is_expression, knobs_in
from autotune.schedule.knob_value import holds_knobs
from autotune.schedule.relations import Relation
from autotune.te.expr import IterVar
from autotune.te.tensor import Tensor

if TYPE_CHECKING:
    from autotune.schedule.schedule import Schedule

F = TypeVar("F", bound=Callable[..., Any])

PRIMITIVES: dict[str, Callable[..., Any]] = {}
"""Every primitive by name; the registry that documentation and replay use."""

VERSION = 1
"""Version of the JSON form."""

WHEN = "when"
"""The argument that switches an annotation on or off."""

RESERVED = frozenset({"s", "te"})
"""Names that the Python text of a trace uses: the schedule and the package of tensor expressions."""


@dataclass(frozen=True)
class Step:
    """One primitive call. ``stage`` is empty for primitives of the schedule; ``args`` hold encoded values.

    ``results`` names what the call returned, for printing: it follows from the rest, so it makes no
    difference to equality.
    """

    primitive: str
    stage: str
    args: tuple[tuple[str, Any], ...]
    results: tuple[str, ...] = field(default=(), compare=False)
    made: tuple[tuple[str, Relation], ...] = field(default=(), compare=False, repr=False)
    """The loops that it made of others, by stage; not known of a trace that was read."""

    def text(self, taken: Collection[str] = RESERVED) -> str:
        """Return the call as a line of Python; variables for its results are none of ``taken``."""
        owner = stage_text(self.stage) if self.stage else "s"
        values = []
        for name, value in self.args:
            many = isinstance(value, tuple) and value and value[0] == "list"
            text = python_text(value)
            values += [f"*{text}" if many and name == "order" else f"{name}={text}"]
        left = ", ".join(identifier(name, taken) for name in self.results)
        return (left + " = " if left else "") + f"{owner}.{self.primitive}({', '.join(values)})"

    def bind(self, config: Config) -> Step | None:
        """Return the step with plain arguments; None where its ``when`` is false."""
        args = tuple((name, bound(value, config)) for name, value in self.args)
        if dict(args).get(WHEN) is False:
            return None
        return replace(self, args=tuple(pair for pair in args if pair[0] != WHEN))


@dataclass(frozen=True)
class Trace:
    """All steps of a schedule, in order."""

    steps: tuple[Step, ...] = ()

    @functools.cached_property
    def key(self) -> str:
        """SHA-256 of the steps without the names of results: equal traces have equal keys on every machine."""
        return hashlib.sha256(_json([_row(step) for step in self.steps]).encode()).hexdigest()

    def to_json(self) -> str:
        """Return the canonical JSON, read back by :meth:`from_json`; what each step returned comes last in it."""
        return _json([[*_row(step), *([step.results] if step.results else [])] for step in self.steps])

    @staticmethod
    def from_json(text: str) -> Trace:
        """Read what :meth:`to_json` wrote; raises ScheduleError on anything else."""
        try:
            data = parse_json(text)
            if data["version"] != VERSION:
                raise ScheduleError(f"trace of version {data['version']}; this program reads {VERSION}")
            steps = [
                Step(
                    str(name),
                    str(stage),
                    tuple((str(k), frozen(v)) for k, v in args),
                    tuple(map(str, results[0])) if results else (),
                )
                for name, stage, args, *results in data["steps"]
            ]
        except (ValueError, TypeError, KeyError) as error:
            raise ScheduleError(f"not a trace: {text[:80]!r} ({error})") from error
        for step in steps:
            if step.primitive.startswith("sample_"):
                raise ScheduleError(
                    f"the trace has the step {step.primitive}, which knobs have replaced (s.knob); its schedule has to "
                    f"be found again"
                )
            if step.primitive not in PRIMITIVES:
                raise ScheduleError(
                    f"trace names the unknown primitive {step.primitive!r}; known: {', '.join(sorted(PRIMITIVES))}"
                )
        return Trace(tuple(steps))

    def apply(self, schedule: Schedule) -> Schedule:
        """Replay on a fresh schedule and return it; raises ScheduleError naming the step that does not apply.

        How stages depend on one another is judged once, after the last step.
        """
        schedule.replaying = True
        try:
            for number, step in enumerate(self.steps):
                try:
                    _replay(schedule, step)
                except AutotuneError as error:
                    raise ScheduleError(f"step {number} of the trace, {step.text()}: {error}") from error
            legality.check(schedule, "the trace")
        finally:
            schedule.replaying = False
        return schedule

    def to_python(self) -> str:
        """Return lines of Python that make the same calls on a schedule ``s``; ``print`` of a trace shows them."""
        taken = RESERVED | self.knobs
        return "\n".join(step.text(taken) for step in self.steps)

    __str__ = to_python

    @functools.cached_property
    def knobs(self) -> frozenset[str]:
        """Names of the knobs in the arguments; none in a trace that can be applied."""
        return frozenset(name for step in self.steps for _, value in step.args for name in knobs_in(value))

    def bind(self, config: Config) -> Trace:
        """Return the steps with the values of ``config`` for the knobs; steps that it switches off are left out.

        Raises KnobError for a knob that ``config`` does not name.
        """
        return Trace(
            tuple(bound_step for step in self.steps if (bound_step := step.bind(config)) is not None)
        )

    def __len__(self) -> int:
        return len(self.steps)


def primitive(function: F) -> F:
    """Register a method of Schedule or Stage as a primitive and append a Step when it is called.

    A primitive that calls others (``tile``) is one step; a call that raises leaves no step and no change. One of a
    stage changes that stage alone.
    """
    return _registered(function, alone=True)


def primitive_of_several(function: F) -> F:
    """Return the same for a method of a stage that changes other stages too."""
    return _registered(function, alone=False)


def _registered(function: F, *, alone: bool) -> F:
    signature = inspect.signature(function)
    PRIMITIVES[function.__name__] = function

    @functools.wraps(function)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        schedule: Schedule = self if not hasattr(self, "schedule") else self.schedule
        if schedule.step:
            return function(self, *args, **kwargs)
        stage = "" if self is schedule else self.op.name
        call, encoded = _call(signature, function.__name__, self, args, kwargs)
        args = tuple((name, encoded[name]) for name in signature.parameters if name in encoded)
        if not call.arguments.pop(WHEN, True):
            if is_expression(encoded.get(WHEN)):  # another configuration may switch it on
                schedule.steps.append(Step(function.__name__, stage, args))
            return None
        changed = schedule.stages if self is schedule or not alone else [self]
        before = None if schedule.replaying else schedule.snapshot(changed)
        schedule.step, schedule.made = function.__name__, []
        try:
            result = function(*call.args, **call.kwargs)
            if not schedule.replaying:
                legality.check(schedule, function.__name__)
        except BaseException as error:
            if before is not None:
                schedule.restore(before)
            if isinstance(error, ScheduleError) and not str(error).startswith(f"{function.__name__}: "):
                raise ScheduleError(f"{function.__name__}: {error}") from error
            raise
        finally:
            schedule.step = ""
        made = tuple(schedule.made)
        schedule.steps.append(Step(function.__name__, stage, args, _result_names(result), made))
        return result

    return wrapper  # type: ignore[return-value]


def _row(step: Step) -> list[Any]:
    """Return a step as JSON values."""
    return [step.primitive, step.stage, [list(pair) for pair in step.args]]


def _json(steps: list[list[Any]]) -> str:
    return json.dumps({"version": VERSION, "steps": steps}, separators=(",", ":"))


def _call(
    signature: inspect.Signature, name: str, owner: Any, args: Any, kwargs: Any
) -> tuple[inspect.BoundArguments, dict[str, Any]]:
    """Return the arguments of a call as the primitive takes them, and as plain data; raises ScheduleError."""
    schedule: Schedule = owner if not hasattr(owner, "schedule") else owner.schedule
    try:
        call = signature.bind(owner, *args, **kwargs)
    except TypeError as error:
        names = ", ".join(list(signature.parameters)[1:])
        raise ScheduleError(f"{name}: {error}; its arguments are: {names}") from error
    encoded = {}
    try:
        for parameter in list(call.arguments)[1:]:
            declared, value = signature.parameters[parameter], call.arguments[parameter]
            if declared.kind is inspect.Parameter.VAR_POSITIONAL:
                taken = tuple(accepted(parameter, declared.annotation, item) for item in value)
            else:
                taken = accepted(parameter, declared.annotation, value)
            call.arguments[parameter] = taken
            encoded[parameter] = encode(schedule, value if holds_knobs(value) else taken)
    except ScheduleError as error:
        nest = "" if owner is schedule else f"\n{owner.nest_text()}"
        raise ScheduleError(f"{name}: {error}{nest}") from error
    if encoded.get(WHEN) is True:
        del encoded[WHEN]
    return call, encoded


def _replay(schedule: Schedule, step: Step) -> None:
    function = PRIMITIVES.get(step.primitive)
    if function is None:
        raise ScheduleError(f"unknown primitive {step.primitive!r}")
    owner: Any = schedule.stage_named(step.stage) if step.stage else schedule
    method = getattr(owner, step.primitive, None)
    if method is None:
        raise ScheduleError(f"{step.primitive} is not a primitive of a {type(owner).__name__}")
    kinds = _parameter_kinds(function)
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for name, value in step.args:
        if name not in kinds:
            raise ScheduleError(f"{step.primitive} has no argument {name!r}")
        decoded = decode(schedule, value)
        if kinds[name] is inspect.Parameter.VAR_POSITIONAL:
            positional += decoded
        else:
            named[name] = decoded
    method(*positional, **named)


@functools.cache
def _parameter_kinds(function: Callable[..., Any]) -> Mapping[str, Any]:
    return {p.name: p.kind for p in inspect.signature(function).parameters.values()}


def _result_names(result: Any) -> tuple[str, ...]:
    items = result if isinstance(result, list | tuple) else (result,)
    return tuple(dict.fromkeys(i.name for i in items if isinstance(i, IterVar | Tensor)))


__all__ = ["PRIMITIVES", "RESERVED", "VERSION", "Step", "Trace", "primitive", "primitive_of_several"]
