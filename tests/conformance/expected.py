"""ONNX's tests that are known to fail, and why: a strict list.

``expected_failures.toml`` has a reason and the tests that fail for it, as often as there are reasons. A name may
end in ``*``. A test that fails and is not in the list is a problem, and so is one in the list that passes or does not
exist.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from autotune.errors import InternalError

_FILE = Path(__file__).with_name("expected_failures.toml")


@dataclass(frozen=True)
class Reason:
    """Why tests fail, and which: names as ``kind/name``, or the start of names."""

    text: str
    tests: tuple[str, ...]
    starts: tuple[str, ...]

    def covers(self, test: str) -> bool:
        """Return whether a test is known to fail for this reason."""
        return test in self.tests or test.startswith(self.starts)


@cache
def reasons() -> tuple[Reason, ...]:
    """The list; raises InternalError for one that is not as it should be."""
    found = []
    for entry in tomllib.loads(_FILE.read_text(encoding="utf-8"))["failure"]:
        names = entry["tests"]
        if set(entry) != {"reason", "tests"} or not names:
            raise InternalError(f"{_FILE.name}: an entry has a reason and tests, this one {entry}")
        starts = tuple(name.removesuffix("*") for name in names if name.endswith("*"))
        found.append(Reason(entry["reason"], tuple(n for n in names if not n.endswith("*")), starts))
    return tuple(found)


def reason_of(test: str) -> str:
    """Why a test is known to fail, or nothing."""
    return next((reason.text for reason in reasons() if reason.covers(test)), "")


def stale(tests: Iterable[str]) -> list[str]:
    """Names in the list that are of no test."""
    known = set(tests)
    found = [name for reason in reasons() for name in reason.tests if name not in known]
    return found + [
        f"{start}*"
        for reason in reasons()
        for start in reason.starts
        if not any(name.startswith(start) for name in known)
    ]


def problems(passed: Mapping[str, bool]) -> list[str]:
    """Return what is not as the list says."""
    return [
        f"{test} passes, but is known to fail: {reason_of(test)}"
        if good
        else f"{test} fails, and no reason is known"
        for test, good in sorted(passed.items())
        if good == bool(reason_of(test))
    ]


__all__ = ["Reason", "problems", "reason_of", "reasons", "stale"]
