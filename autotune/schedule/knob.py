"""A knob: one tunable choice, with its legal values, default, neighbours and encoding."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autotune.errors import KnobError

Value = int | str | bool
Config = Mapping[str, Value]
Columns = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Knob:
    """One tunable choice.

    ``values`` are the legal values: all ints (ascending, hence ordered: neighbours are one step away), all
    strings or all bools (unordered: every other value is a neighbour). Adding a value or a knob gives the
    space another key. Raises KnobError where the declaration itself is wrong.
    """

    name: str
    values: tuple[Value, ...]
    default_index: int = 0
    help: str = ""
    zero_is_all: bool = False
    """True if 0 stands for the whole extent: it then lies beyond the largest value, and not below the smallest."""

    def __post_init__(self) -> None:
        if not self.values:
            raise KnobError(f"knob {self.name!r} has no values: give it at least one")
        kinds = {type(value) for value in self.values}
        if len(kinds) != 1 or not kinds <= {int, str, bool}:
            raise KnobError(
                f"knob {self.name!r} mixes or uses unknown types of values: {self.values!r}; "
                "allowed: all int, all str or all bool"
            )
        if len(set(self.values)) != len(self.values):
            raise KnobError(f"knob {self.name!r} repeats a value: {self.values!r}")
        if kinds == {int} and list(self.values) != sorted(self.values):
            raise KnobError(f"knob {self.name!r} is not in ascending order: {self.values!r}")
        if not 0 <= self.default_index < len(self.values):
            raise KnobError(
                f"knob {self.name!r} has default index {self.default_index}, "
                f"allowed: 0 to {len(self.values) - 1}"
            )

    @staticmethod
    def of(
        name: str, values: tuple[Value, ...], default: Value, help: str = "", *, zero_is_all: bool = False
    ) -> Knob:
        """Return a knob from its default *value*; raises KnobError where the default is not legal."""
        for index, value in enumerate(values):
            if type(value) is type(default) and value == default:
                return Knob(name, values, index, help, zero_is_all)
        raise KnobError(f"knob {name!r} has default {default!r}, allowed: {_shown(values)}")

    @property
    def default(self) -> Value:
        """The value used where nothing better is known."""
        return self.values[self.default_index]

    @property
    def ordered(self) -> bool:
        """Return whether the values lie on a line (ints) or are alternatives (strings, bools)."""
        return type(self.values[0]) is int

    @cached_property
    def array(self) -> NDArray[np.generic]:
        """The values as an array, for taking whole populations at once."""
        return np.asarray(self.values, dtype=np.int64 if self.ordered else None)

    @cached_property
    def _index(self) -> dict[tuple[type, Value], int]:
        return {(type(value), value): i for i, value in enumerate(self.values)}

    def index(self, value: Value) -> int:
        """Return the position of ``value``; raises KnobError with the nearest legal value."""
        found = self._index.get((type(value), value))
        if found is None:
            raise KnobError(
                f"knob {self.name!r} cannot be {value!r}; allowed: {_shown(self.values)}"
                + self._nearest(value)
            )
        return found

    def _nearest(self, value: Value) -> str:
        if not self.ordered or type(value) is not int:
            return ""
        near = min(self.values, key=lambda legal: abs(int(legal) - int(value)))
        return f" (nearest: {near})"

    def neighbours(self, index: int) -> tuple[int, ...]:
        """Return indexes of the values one step away: beside it if ordered, else all others."""
        if self.ordered:
            return tuple(i for i in (index - 1, index + 1) if 0 <= i < len(self.values))
        return tuple(i for i in range(len(self.values)) if i != index)

    @cached_property
    def steps(self) -> NDArray[np.int16]:
        """The :meth:`neighbours` of every index, int16 [values, most neighbours], -1 where there are fewer."""
        found = [self.neighbours(index) for index in range(len(self.values))]
        table = np.full((len(found), max(map(len, found))), -1, dtype=np.int16)
        for row, others in zip(table, found, strict=True):
            row[: len(others)] = others
        return table

    def costs(self, wanted: Value) -> NDArray[np.float64]:
        """Return each value's distance from a wanted one, which need not be legal [values]: octaves
        between ints, else 0 or 1.

        >>> Knob("rows", (1, 2, 4)).costs(7).round(1).tolist(), Knob("tail", ("overlap", "peel")).costs("peel").tolist()
        ([2.0, 1.4, 0.7], [1.0, 0.0])
        """
        if not self.ordered or type(wanted) is not int:
            return np.asarray([float(value != wanted) for value in self.values])
        return np.abs(np.asarray([self._octave(int(v)) for v in self.values]) - self._octave(wanted))

    def _octave(self, value: int) -> float:
        if self.zero_is_all and value == 0:
            return 1 + math.log2(1 + int(self.values[-1]))
        return math.log2(1 + max(0, value))

    def encode(self, value: Value) -> float:
        """Return the value as a number for a cost model: log2(1 + v) of an int, else its position."""
        index = self.index(value)
        return math.log2(1 + max(0, int(value))) if self.ordered else float(index)

    def to_json(self) -> dict[str, object]:
        """Return a JSON-able description, read back by :meth:`from_json`."""
        return {
            "name": self.name,
            "values": list(self.values),
            "default_index": self.default_index,
            "help": self.help,
            "zero_is_all": self.zero_is_all,
        }

    @staticmethod
    def from_json(data: Mapping[str, object]) -> Knob:
        """Read what :meth:`to_json` gave; raises KnobError."""
        try:
            name, values, default = data["name"], data["values"], data["default_index"]
        except KeyError as error:
            raise KnobError(f"a knob description lacks {error}: {dict(data)!r}") from error
        if not (isinstance(name, str) and isinstance(values, list) and isinstance(default, int)):
            raise KnobError(f"not a knob description: {dict(data)!r}")
        zero_is_all = bool(data.get("zero_is_all", False))
        return Knob(name, tuple(values), default, str(data.get("help", "")), zero_is_all)

    @property
    def fingerprint(self) -> str:
        """Canonical text of what changes the meaning of a stored value (not the help text)."""
        return json.dumps([self.name, list(self.values)], separators=(",", ":"))


def _shown(values: tuple[Value, ...]) -> str:
    texts = [repr(value) for value in values]
    return ", ".join(texts if len(texts) <= 16 else [*texts[:15], f"... {texts[-1]}"])


def config_to_json(config: Config) -> str:
    """Return the canonical JSON of a configuration: sorted names, no spaces."""
    return json.dumps(dict(config), sort_keys=True, separators=(",", ":"))


__all__ = ["Columns", "Config", "Knob", "Value", "config_to_json"]
