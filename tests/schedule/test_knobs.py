"""Knobs in the schedule language: what a knob value computes, which guards it records, what steps keep of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autotune.errors import KnobError, ScheduleError
from autotune.lower.examples import chain, matmul
from autotune.schedule import Schedule, Trace
from autotune.schedule.knob_expression import evaluate
from autotune.schedule.knob_value import KnobRecord, KnobValue, ceil_div, maximum, minimum


def recorded(config: dict[str, Any] | None = None) -> Schedule:
    """A schedule whose guards are recorded, as in a run of a sketch."""
    s = matmul(16, 24, 8)[0]
    s.record = KnobRecord(config or {}, recording=True)
    return s


COMPUTED: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a + b + 1,
    "reflected": lambda a, b: 100 - (2 * a) % b + 7 // b,
    "negative": lambda a, b: -a * -b,
    "smallest": lambda a, b: minimum(a, maximum(b, 3)),
    "quotient": lambda a, b: ceil_div(a * 5, b),
    "compared": lambda a, b: (a < b) | (a >= 4) & (b != 2),
    "equal": lambda a, b: (a == 4) | (b < 1) | (b <= a),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_a_knob_value_computes_as_its_number_and_as_arrays(name: str) -> None:
    compute, values = COMPUTED[name], ((2, 4, 6), (1, 2, 5))
    s = recorded()
    found = compute(s.knob("a", values[0]), s.knob("b", values[1]))
    pairs = [(a, b) for a in values[0] for b in values[1]]
    expected = [compute(a, b) for a, b in pairs]
    assert isinstance(found, KnobValue)
    assert found.value == expected[0]
    assert [evaluate(found.expression, {"a": a, "b": b}) for a, b in pairs] == expected
    columns = dict(zip("ab", np.asarray(pairs).T, strict=True))
    assert evaluate(found.expression, columns).tolist() == expected
    assert s.record.guards == {}


SEEN: dict[str, tuple[Callable[[Any], Any], object, tuple[Any, Any]]] = {
    "if": (bool, True, (("knob", "!=", ("knob", "a"), 0), True)),
    "int": (int, 4, (("knob", "a"), 4)),
    "range": (lambda a: len(range(a)), 4, (("knob", "a"), 4)),
    "text": (str, "4", (("knob", "a"), 4)),
    "format": (lambda a: f"{a:>3}", "  4", (("knob", "a"), 4)),
    "key": (lambda a: {4: "four"}.get(a), "four", (("knob", "a"), 4)),
    "member": (lambda a: a in (4, 8), True, (("knob", "==", ("knob", "a"), 4), True)),
    "times": (lambda a: [0] * a, [0] * 4, (("knob", "a"), 4)),
    "float": (lambda a: float(a) / 8, 0.5, (("knob", "a"), 4)),
}


@pytest.mark.parametrize("name", SEEN)
def test_what_python_sees_is_a_guard(name: str) -> None:
    see, expected, guard = SEEN[name]
    s = recorded({"a": 4})
    assert see(s.knob("a", (2, 4))) == expected
    assert next(iter(s.record.guards.items())) == guard


def test_primitives_record_no_guards_and_keep_expressions() -> None:
    s = recorded({"rows": 4})
    rows, on = s.knob("rows", (2, 4)), s.knob("on", (False, True))
    io, _, ii, ji = s["C"].tile(*s["C"].op.axis, rows, rows * 2)
    fused = s["C"].fuse(ii, ji)
    s["C"].unroll(fused, when=on)
    s["C"].parallel(io, when=rows > 2)
    s.transform_layout(s.cache_read(s["B"].tensor, "global", ["C"]), lambda i, j: [j // rows, i, j % rows])
    assert s.record.guards == {}
    assert s.trace.knobs == {"rows", "on"}
    text = str(s.trace.bind({"rows": 2, "on": True}))
    assert "x_factor=2, y_factor=4" in text
    assert "['i1 // 2', 'i0', 'i1 % 2']" in text
    assert "unroll" in text
    assert "parallel" not in text
    assert s["C"].kind_of(io) == "parallel"
    assert s["C"].kind_of(fused) == "serial"


def test_the_extent_of_a_loop_is_a_knob_value_to_the_function_only() -> None:
    s = recorded({"f": 5})
    outer, inner = s["C"].split(s["C"].op.axis[0], factor=s.knob("f", (3, 5, 32)))
    assert (outer.extent + inner.extent).value == 4 + 5
    assert [evaluate(outer.extent.expression, {"f": f}) for f in (3, 5, 32)] == [6, 4, 1]
    assert [evaluate(inner.extent.expression, {"f": f}) for f in (3, 5, 32)] == [3, 5, 16]
    s.record.recording = False
    assert (outer.extent, inner.extent) == (4, 5)
    assert type(outer.extent) is int


def test_a_trace_with_knobs_comes_back_from_json_and_is_bound_before_use() -> None:
    s, _, _, c = chain(16)
    s[c].split(s[c].op.axis[0], factor=s.knob("width", (2, 4), default=4) * 2)
    back = Trace.from_json(s.trace.to_json())
    assert back == s.trace
    with pytest.raises(ScheduleError, match=r"the trace has knobs \(width\); bind a configuration first"):
        back.apply(chain(16)[0])
    with pytest.raises(KnobError, match="the knob 'width' has no value in an empty configuration"):
        back.bind({})
    bound = back.bind({"width": 2})
    assert [iv.extent for iv in bound.apply(chain(16)[0])["C"].leaf_iter_vars] == [4, 4]
    assert bound.bind({}) == bound


WRONG: dict[str, tuple[Callable[[Schedule], object], str]] = {
    "value": (lambda s: s.knob("k", (1, 2), default=3), "knob 'k' has default 3, allowed: 1, 2"),
    "nothing": (lambda s: s.knob("k", ()), "knob 'k' has no values: give it at least one"),
    "order": (lambda s: s.knob("k", (2, 1)), "knob 'k' is not in ascending order: (2, 1)"),
    "name": (
        lambda s: s.knob("i0", (1, 2)),
        "the name of a knob must be a Python name other than s, te, i0, i1, ..., got 'i0'",
    ),
    "twice": (
        lambda s: (s.knob("k", (1, 2)), s.knob("k", (1, 3))),
        "knob 'k' is declared twice, with different values or defaults",
    ),
    "rule": (
        lambda s: s.require("small", [s.knob("k", (4, 8)) * 2], lambda k: k < 8, "registers"),
        "constraint 'small' does not hold for (k * 2)=8: registers",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_declarations_are_refused(name: str) -> None:
    declare, message = WRONG[name]
    with pytest.raises(KnobError) as refusal:
        declare(recorded())
    assert str(refusal.value) == message


def test_a_value_that_a_knob_does_not_have_is_refused() -> None:
    with pytest.raises(KnobError, match=r"knob 'k' cannot be 3; allowed: 1, 2, 4 \(nearest: 2\)"):
        recorded({"k": 3}).knob("k", (1, 2, 4))


def test_a_knob_is_no_float_and_a_text_is_no_number() -> None:
    s = recorded()
    with pytest.raises(TypeError):
        s.knob("k", (1, 2)) * 0.5
    with pytest.raises(TypeError):
        int(s.knob("t", ("a", "b")))
