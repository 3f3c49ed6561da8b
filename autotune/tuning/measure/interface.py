"""The interface of everything that measures: a pool of processes here, a table that is replayed.

Nothing is shared with the caller and nothing is pickled: a candidate is text, built code is bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from autotune.database.records import Footprint
from autotune.tuning.measure.outcome import Measurement


@dataclass(frozen=True)
class Candidate:
    """One configuration of one workload; ``workload`` and ``target`` are their canonical texts.

    ``trace`` has its steps as JSON where no space of ours makes them of the configuration, ``refused`` why there are
    none.
    """

    workload: str
    target: str
    config: Mapping[str, int | str | bool]
    seed: int = 0
    trace: str | None = None
    refused: str = ""


@dataclass(frozen=True)
class Built:
    """A candidate after building: code to run, or the outcome that ended it (``failed``).

    ``trace_key`` identifies the schedule, also of a candidate that failed; ``payload`` is what the
    measurer itself needs to run it, ``fenced`` the same of a build that is checked and not timed, if there is one;
    ``footprint`` is None where that is not known.
    """

    candidate: Candidate
    trace_key: str
    trace_json: str
    failed: Measurement | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    footprint: Footprint | None = None
    fenced: Mapping[str, Any] | None = None

    @cached_property
    def code_key(self) -> str:
        """SHA-256 (hex) of the machine code: equal for schedules that differ in nothing that is executed; empty
        without any."""
        if not self.payload:
            return ""
        return hashlib.sha256(json.dumps(_executed(self.payload), sort_keys=True).encode()).hexdigest()

    @property
    def code(self) -> str:
        """Return the key of the generated code (:class:`autotune.codegen.code.DispatchCode`), by which timings are
        stored; empty without any."""
        return str(self.payload.get("key", ""))

    def same_code(self, other: Built) -> bool:
        """Return whether both are the same machine code."""
        return bool(self.code_key) and self.code_key == other.code_key


def _executed(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is executed of a payload: without the keys of the texts that it was compiled from."""
    return {
        name: _executed(value) if isinstance(value, Mapping) else value
        for name, value in payload.items()
        if name != "key"
    }


@dataclass(frozen=True)
class BuiltOption:
    """An option of a workload by its name; ``workload`` and ``target`` are their canonical texts.

    ``payloads`` are those of :class:`Built` by workload key of its regions.
    """

    workload: str
    target: str
    seed: int
    name: str
    payloads: Mapping[str, Mapping[str, Any]]


class Measurer(Protocol):
    """Builds candidates, checks them against the reference, and times them."""

    def build(self, candidates: Sequence[Candidate]) -> list[Built]:
        """Build all of them, several at a time; never raises for a bad candidate."""

    def measure(self, built: Built, default_ns: float) -> Measurement:
        """Check one and time it: a few times, or more where it seems slower than the default, which takes
        ``default_ns`` alone (infinite while that is unknown).

        Raises NoReferenceError when there is nothing to check it against.
        """

    def check(self, option: BuiltOption) -> Measurement:
        """Check a whole option against its declared error, without timing it.

        Raises NoReferenceError as :meth:`measure` does.
        """

    def rest(self) -> None:
        """Have nothing run, and drop what waits, until the next candidate."""

    def close(self) -> None:
        """Stop everything; safe to call twice, and from an interrupt."""


__all__ = ["Built", "BuiltOption", "Candidate", "Measurer"]
