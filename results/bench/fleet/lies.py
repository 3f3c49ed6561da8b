"""Seats that do not say what they have measured: what the fleet is to find."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_MODULE = "autotune.tuning.fleet.seat"
FASTER = 3.0
"""A liar says of everything but the default that it were so many times as fast."""

Answer = dict[str, Any]


def too_fast(answer: Answer) -> Answer:
    """Return an answer in which all but the first version and its repetition are too fast."""
    if "ns" in answer:
        first, *others, again = answer["ns"]
        answer["ns"] = [first, *map(_scaled, others), again]
    elif answer.get("latency"):
        latency = answer["latency"]
        answer["latency"] = {**latency, **{k: v / FASTER for k, v in latency.items() if k.endswith("_ns")}}
    return answer


def _scaled(rounds: Sequence[Sequence[float]] | None) -> list[list[float]] | None:
    return None if rounds is None else [[ns / FASTER for ns in each] for each in rounds]


def wrong(answer: Answer) -> Answer:
    """Return an answer that finds other numbers in a candidate."""
    if answer.get("outcome") != "ok":
        return answer
    return {**answer, "outcome": "wrong_result", "latency": None, "error": 1.0, "message": "relative error 1"}


LIES: Mapping[str, Callable[[Answer], Answer]] = {"liar": too_fast, "wrong": wrong}


def lie(kind: str) -> None:
    """Have the seat of this process lie, as soon as it is imported."""
    sys.meta_path.insert(0, _AfterImport(LIES[kind]))


class _AfterImport:
    """Changes the module of seats once it is imported."""

    def __init__(self, changed: Callable[[Answer], Answer]) -> None:
        self._changed = changed

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the module's own spec, which executes this afterwards too; None of others."""
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        executed = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            executed(module)
            self._change(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _change(self, module: Any) -> None:
        told, changed = module.SeatServer.answer, self._changed

        def answer(*given: Any) -> Answer:
            return changed(told(*given))

        module.SeatServer.answer = answer


__all__ = ["FASTER", "LIES", "lie", "too_fast", "wrong"]
