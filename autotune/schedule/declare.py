"""The choices of a schedule function: ``s.knob`` and ``s.require``."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from autotune.errors import KnobError
from autotune.schedule.knob import Knob, Value
from autotune.schedule.knob_expression import expression_text
from autotune.schedule.knob_value import KnobRecord, KnobValue, Requirement, concrete

_TAKEN = re.compile(r"s|te|i\d+")
"""Names with another meaning in the text of a trace and in index maps."""


class KnobDeclarations:
    """knob and require."""

    record: KnobRecord

    def knob(
        self, name: str, values: Iterable[Value] = (), default: Value | None = None, help: str = ""
    ) -> Any:
        """Return a choice: one of ``values``, as the configuration says that the function is run with.

        Integers ascend and are ordered for the search; texts and truth values are alternatives. Without a
        configuration the value is ``default``, or the first one. Without ``values`` it is a knob that was declared
        before. Raises KnobError for a wrong declaration.

        >>> from autotune.lower.examples import chain, loops
        >>> s, A, B, C = chain(16)
        >>> width = s.knob("width", (2, 4, 8), default=4)
        >>> outer, inner = s[C].split(s[C].op.axis[0], factor=width)
        >>> print(s.trace)
        i_outer, i_inner = s["C"].split(parent=s["C"].loop_named("i"), factor=width)
        >>> print(s.trace.bind({"width": 8}))
        i_outer, i_inner = s["C"].split(parent=s["C"].loop_named("i"), factor=8)
        """
        legal = tuple(values)
        if not legal and name in self.record.knobs:
            return self.record.declare(self.record.knobs[name])
        if not name.isidentifier() or keyword.iskeyword(name) or _TAKEN.fullmatch(name):
            raise KnobError(
                f"the name of a knob must be a Python name other than s, te, i0, i1, ..., got {name!r}"
            )
        return self.record.declare(
            Knob(name, legal) if default is None else Knob.of(name, legal, default, help)
        )

    def require(self, name: str, knobs: Sequence[Any], rule: Callable[..., Any], help: str = "") -> None:
        """State what configurations must keep: ``rule`` of the values of ``knobs``.

        The search calls the rule with arrays, one value a candidate, and proposes only what keeps it: write ``&``
        and ``|`` for ``and`` and ``or``. ``help`` says why. Raises KnobError where the rule does not hold now.

        >>> from autotune.lower.examples import chain
        >>> s, A, B, C = chain(16)
        >>> rows, vectors = s.knob("rows", (2, 4, 6), default=6), s.knob("vectors", (1, 2, 4), default=4)
        >>> s.require("fits", (rows, vectors), lambda r, v: r * v <= 16, "one register an accumulator")
        Traceback (most recent call last):
        autotune.errors.KnobError: constraint 'fits' does not hold for rows=6, vectors=4: one register an accumulator
        """
        values = [k.expression if isinstance(k, KnobValue) else k for k in knobs]
        self.record.requirements.append(
            Requirement(name, tuple(values), rule, help, dict(self.record.guards))
        )
        if not rule(*map(concrete, knobs)):
            read = ", ".join(
                f"{expression_text(e)}={concrete(k)!r}" for e, k in zip(values, knobs, strict=True)
            )
            raise KnobError(f"constraint {name!r} does not hold for {read}" + (f": {help}" if help else ""))


__all__ = ["KnobDeclarations"]
