"""One fault at one place: how users ask, and what was found of their answers."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any

from autotune.runtime.module import Module
from tests.faults.places import PATIENCE_S, Place, question, right

WAYS = ("calls", "threads", "in flight")
"""The ways of requests: one after another, four at once, and all submitted before the first result is asked for."""
ASKED = 12
_WRONG = 5
_CLIENTS = 4
WAIT_S = 0.05

Answer = Any
"""The arrays of a request, or what it failed with."""


class Case:
    """One fault at one place in one way: collects what happened and what should not have."""

    def __init__(self, at: Place, way: str) -> None:
        self.at = at
        self.way = way
        self.error = ""
        self.good = self.others = 0
        self.problems: list[str] = []

    def check(self, holds: bool, problem: str) -> None:
        """Note a problem unless something holds."""
        if not holds:
            self.problems.append(problem)

    def failed(self, answer: Answer, kinds: type[BaseException] | tuple[type, ...], *parts: str) -> None:
        """This one must have failed so, with these parts in its message."""
        if not isinstance(answer, BaseException):
            self.problems.append("no error came to the one who made the fault")
            return
        text = f"{type(answer).__name__}: {answer}".strip().rstrip(":")
        self.error = self.error or text
        self.check(isinstance(answer, kinds), f"not the error that was expected: {text}")
        for part in parts:
            self.check(part in str(answer), f"{part!r} is not in the message: {text}")

    def answered(self, answers: dict[int, Answer]) -> None:
        """These must be right, by the number of their question."""
        self.others += len(answers)
        for number, answer in answers.items():
            good = not isinstance(answer, BaseException) and right(number, answer)
            self.good += good
            if not good:
                what = repr(answer) if isinstance(answer, BaseException) else "a wrong answer"
                self.problems.append(f"request {number}, which had no fault, got {what}")


def asked(model: Module, way: str, questions: Sequence[tuple[Any, ...]]) -> list[Answer]:
    """The answer to each question, or what it failed with."""

    def call(arrays: tuple[Any, ...]) -> Answer:
        try:
            return model(*arrays)
        except Exception as error:  # noqa: BLE001 - looked at by the caller
            return error

    if way == WAYS[0]:
        return [call(arrays) for arrays in questions]
    if way == WAYS[1]:
        with ThreadPoolExecutor(_CLIENTS) as clients:
            return list(clients.map(call, questions))
    return [result(request) for request in model.submit_all(questions)]


def result(request: Any) -> Answer:
    """Return the answer or the error that a request ends with."""
    try:
        return request.result(PATIENCE_S)
    except (Exception, CancelledError) as error:  # noqa: BLE001 - looked at by the caller
        return error


def one_of_them(case: Case, model: Module, kind: type[BaseException], *parts: str) -> None:
    """Exactly one of the requests meets the fault; which one is chance."""
    answers = dict(enumerate(asked(model, case.way, [question(n) for n in range(ASKED)])))
    met = [n for n, answer in answers.items() if isinstance(answer, BaseException)]
    case.check(len(met) == 1, f"{len(met)} requests failed and not one")
    if met:
        case.failed(answers.pop(met[0]), kind, *parts)
    case.answered(answers)


__all__ = ["ASKED", "WAIT_S", "WAYS", "Answer", "Case", "asked", "one_of_them", "result"]
