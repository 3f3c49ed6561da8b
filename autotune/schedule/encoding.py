"""Arguments of schedule steps as plain data, and as Python text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune.errors import ScheduleError
from autotune.schedule.index_map import IndexMap
from autotune.te.expr import IterVar
from autotune.te.intrinsic import TensorIntrin, intrinsic_named
from autotune.te.tensor import Operation, Tensor

if TYPE_CHECKING:
    from autotune.schedule.schedule import Schedule


class Decision(int):
    """A number that a sampling step chose. A step that takes it follows when the decision is changed.

    Arithmetic on it gives a plain int, which a changed decision does not reach.
    """

    name: str
    number: int

    def __new__(cls, value: int, name: str, number: int) -> Decision:
        """Value ``number`` of the decision ``name``; -1 for a decision of one value."""
        made = super().__new__(cls, value)
        made.name, made.number = name, number
        return made


class Choice(str):
    """A text that a sampling step chose; see :class:`Decision`."""

    name: str
    number: int

    def __new__(cls, value: str, name: str, number: int) -> Choice:
        """Text ``number`` of the decision ``name``."""
        made = super().__new__(cls, value)
        made.name, made.number = name, number
        return made


def encode(schedule: Schedule, value: Any) -> Any:
    """An argument as numbers, texts and nested tuples of them; raises ScheduleError for anything else."""
    if isinstance(value, Decision | Choice):
        return ("decision", value.name, value.number)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, IterVar):
        if value.kind == "thread":
            return ("thread", value.tag, value.extent)
        return ("loop", schedule.owner_of(value).op.name, value.name)
    if isinstance(value, Tensor) and value.value_index:
        return ("output", schedule[value].op.name, value.value_index)
    if isinstance(value, Tensor | Operation):
        return ("stage", schedule[value].op.name)
    if isinstance(value, IndexMap):
        return ("map", *value.texts)
    if isinstance(value, TensorIntrin):
        return ("intrin", value.name)
    if isinstance(value, list | tuple):
        return ("list", *[encode(schedule, v) for v in value])
    if callable(value):
        return ("map", *IndexMap.from_callable(value).texts)
    if isinstance(getattr(value, "op", None), Operation):  # a stage
        return ("stage", value.op.name)
    if getattr(value, "ndim", None) == 0:  # a number of NumPy
        return value.item()
    raise ScheduleError(f"a schedule step cannot take a {type(value).__name__}: {value!r}")


def decode(schedule: Schedule, value: Any) -> Any:
    """The argument on another schedule of the same program; raises ScheduleError when it does not apply."""
    if not isinstance(value, tuple):
        return value
    kind, *rest = value
    if kind == "loop":
        return schedule.stage_named(rest[0]).loop_named(rest[1])
    if kind == "stage":
        return schedule.stage_named(rest[0]).tensor
    if kind == "output":
        return schedule.stage_named(rest[0]).op.output(rest[1])
    if kind == "thread":
        return IterVar(rest[0], rest[1], "thread", tag=rest[0])
    if kind == "map":
        return IndexMap(tuple(rest))
    if kind == "decision":
        return schedule.decision(rest[0], rest[1])
    if kind == "intrin":
        return intrinsic_named(rest[0])
    if kind == "list":
        return [decode(schedule, v) for v in rest]
    raise ScheduleError(f"unknown kind of value in a trace: {kind!r}")


def frozen(value: Any) -> Any:
    """A JSON value as nested tuples; raises ScheduleError for what no trace holds."""
    if isinstance(value, list):
        return tuple(frozen(v) for v in value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ScheduleError(f"a trace holds numbers, texts and lists, got {value!r}")


def identifier(name: str) -> str:
    """A name as a Python variable."""
    return "".join(c if c.isalnum() else "_" for c in name)


def python_text(value: Any) -> str:
    """An encoded argument as Python."""
    if not isinstance(value, tuple):
        return repr(value)
    kind, *rest = value
    if kind == "loop":
        return f's["{rest[0]}"].loop_named("{rest[1]}")'
    if kind == "stage":
        return f's["{rest[0]}"].tensor'
    if kind == "output":
        return f's["{rest[0]}"].op.output({rest[1]})'
    if kind == "thread":
        return (
            f'te.thread_axis("{rest[0]}")' if rest[1] < 0 else f'te.thread_axis((0, {rest[1]}), "{rest[0]}")'
        )
    if kind == "map":
        return f"IndexMap({tuple(rest)!r})"
    if kind == "decision":
        return f"{rest[0]}" if rest[1] < 0 else f"{rest[0]}[{rest[1]}]"
    if kind == "intrin":
        return f'te.intrinsic_named("{rest[0]}")'
    return "[" + ", ".join(python_text(v) for v in rest) + "]"


__all__ = ["Choice", "Decision", "decode", "encode", "frozen", "identifier", "python_text"]
