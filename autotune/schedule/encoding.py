"""Arguments of schedule steps as plain data, and as Python text."""

from __future__ import annotations

import json
import keyword
import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from autotune.errors import ScheduleError
from autotune.schedule.index_map import IndexMap
from autotune.schedule.knob import Config
from autotune.schedule.knob_expression import evaluate, expression_text, is_expression, knobs_in
from autotune.schedule.knob_value import KnobValue
from autotune.te.expr import IterVar
from autotune.te.intrinsic import TensorIntrin, intrinsic_named
from autotune.te.tensor import Operation, Tensor

if TYPE_CHECKING:
    from autotune.schedule.schedule import Schedule


def encode(schedule: Schedule, value: Any) -> Any:
    """Return an argument as numbers, texts and nested tuples of them; raises ScheduleError for anything else."""
    if isinstance(value, KnobValue):
        return value.expression
    if isinstance(value, IterVar):
        if value.kind == "thread":
            return ("thread", value.tag, value.extent)
        return ("loop", schedule.owner_of(value).op.name, value.name)
    if isinstance(value, Tensor) and value.value_index:
        return ("output", schedule[value].op.name, value.value_index)
    if isinstance(value, Tensor | Operation):
        return ("stage", schedule[value].op.name)
    if isinstance(value, IndexMap):
        return ("map", *(value.with_knobs or value.texts))
    if isinstance(value, TensorIntrin):
        return (
            ("intrin", value.name.rsplit(".", 1)[0], *value.sizes) if value.sizes else ("intrin", value.name)
        )
    if isinstance(value, list | tuple):
        return ("list", *[encode(schedule, v) for v in value])
    if isinstance(getattr(value, "op", None), Operation):  # a stage
        return ("stage", value.op.name)
    return plain(value)


def plain(value: Any) -> Any:
    """Return a number, a text or None as Python's own type; raises ScheduleError for anything else.

    Infinities and NaN are refused too: they have no JSON.
    """
    if getattr(value, "ndim", None) == 0:  # a number of NumPy
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        raise ScheduleError(f"a schedule step takes finite numbers, got {value!r}")
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    if value is None:
        return None
    raise ScheduleError(f"a schedule step cannot take a {type(value).__name__}: {value!r}")


def decode(schedule: Schedule, value: Any) -> Any:
    """Return the argument on another schedule of the same program; raises ScheduleError when it does not apply."""
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
    if kind == "knob":
        config = schedule.record.config
        if not config.keys() >= set(knobs_in(value)):
            raise ScheduleError(
                f"the trace has knobs ({', '.join(knobs_in(value))}); bind a configuration first"
            )
        return KnobValue(schedule.record, value, evaluate(value, config))
    if kind == "intrin":
        return intrinsic_named(rest[0])
    if kind == "list":
        return [decode(schedule, v) for v in rest]
    raise ScheduleError(f"unknown kind of value in a trace: {kind!r}")


def bound(value: Any, config: Config) -> Any:
    """Return an encoded argument with the values of ``config`` for its knobs; raises KnobError for one
    that is missing."""
    if not isinstance(value, tuple):
        return value
    if is_expression(value):
        return plain(evaluate(value, config))
    if value and value[0] == "map":
        return ("map", *IndexMap(value[1:]).bound(config).texts)
    if value and value[0] == "intrin" and len(value) > 2:
        return ("intrin", f"{value[1]}.{'x'.join(str(evaluate(size, config)) for size in value[2:])}")
    return tuple(bound(part, config) for part in value)


def frozen(value: Any) -> Any:
    """Return a JSON value as nested tuples; raises ScheduleError for what no trace holds."""
    return tuple(frozen(v) for v in value) if isinstance(value, list) else plain(value)


def identifier(name: str, taken: Collection[str] = ()) -> str:
    """Return a name as a Python variable that is none of ``taken``."""
    text = "".join(c if c.isalnum() else "_" for c in name)
    text = text if text.isidentifier() else f"_{text}"
    while text in taken or keyword.iskeyword(text):
        text += "_"
    return text


def quoted(text: str) -> str:
    """Return a text as Python writes it, in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def stage_text(name: str) -> str:
    """Return the stage of an operation as Python."""
    return f"s[{quoted(name)}]"


def python_text(value: Any) -> str:
    """Return an encoded argument as Python."""
    if not isinstance(value, tuple):
        return repr(value)
    kind, *rest = value
    if kind == "loop":
        return f"{stage_text(rest[0])}.loop_named({quoted(rest[1])})"
    if kind == "stage":
        return f"{stage_text(rest[0])}.tensor"
    if kind == "output":
        return f"{stage_text(rest[0])}.op.output({rest[1]})"
    if kind == "thread":
        extent = f"(0, {rest[1]}), " if rest[1] >= 0 else ""
        return f"te.thread_axis({extent}{quoted(rest[0])})"
    if kind == "knob":
        return expression_text(value)
    if kind == "intrin":
        sizes = "x".join(f"{{{expression_text(size)}}}" for size in rest[1:])
        name = f"f{quoted(f'{rest[0]}.{sizes}')}" if sizes else quoted(rest[0])
        return f"te.intrinsic_named({name})"
    return "[" + ", ".join(python_text(v) for v in rest) + "]"


__all__ = [
    "bound",
    "decode",
    "encode",
    "frozen",
    "identifier",
    "plain",
    "python_text",
    "stage_text",
]
