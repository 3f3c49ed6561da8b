"""Running ONNX's tests in worker processes, and keeping what came out of each."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import autotune
from autotune.errors import UsageError
from autotune.workers.pool import WorkerPool
from autotune.workers.process import Died, WorkerProcess

_SCRIPT = Path(__file__).with_name("worker.py")
_TEST_S = 120.0
_START_S = 300.0
_SAY = 100
"""Progress is said after so many tests."""


@dataclass(frozen=True)
class Outcome:
    """The end of one test; ``values`` are inputs that had to be known when its model was compiled."""

    test: str
    passed: bool
    why: str = ""
    values: tuple[str, ...] = ()


def names(kinds: Sequence[str]) -> list[str]:
    """ONNX's tests of some kinds, as ``kind/name``."""
    import warnings

    from tests.conformance.worker import load_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ONNX's tests divide by zero on purpose
        return [name for kind in kinds for name in load_tests(kind)]


def run(
    tests: Sequence[str],
    *,
    jobs: int,
    system: str = "autotune",
    python: str = sys.executable,
    journal: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> list[Outcome]:
    """Run tests in so many processes; a test that ends its process has failed, and the others go on.

    What a ``journal`` has is not run again; what is run is added to it, a line of JSON each.
    """
    done = {outcome.test: outcome for outcome in read_journal(journal)} if journal else {}
    if journal is not None and journal.exists():
        text = journal.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]  # less a last line that was cut short
        journal.write_text(whole, encoding="utf-8")
    waiting = [test for test in tests if test not in done]
    root = str(Path(autotune.__file__).parents[1]) if system == "autotune" else "-"
    with WorkerPool() as pool:
        for _ in range(min(jobs, len(waiting))):
            command = (python, "-I", str(_SCRIPT), system, root)
            pool.add("test", WorkerProcess(command, start_s=_START_S, name="worker of ONNX's tests"))
        futures = [pool.submit("test", partial(_one, test)) for test in waiting]
        for count, future in enumerate(as_completed(futures), 1):
            outcome = future.result()
            done[outcome.test] = outcome
            if journal is not None:
                with journal.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(outcome)) + "\n")
            if count % _SAY == 0:
                passed = sum(each.passed for each in done.values())
                say(f"{system}: {count} of {len(waiting)} tests, {passed} of {len(done)} passed")
    return [done[test] for test in tests]


def _one(test: str, worker: WorkerProcess) -> Outcome:
    try:
        answer = worker.call({"test": test}, _TEST_S, "the test")
    except Died as error:
        return Outcome(test, False, f"its process ended: {error}")
    return Outcome(test, answer["passed"], answer["why"], tuple(answer["values"]))


def read_journal(path: Path) -> list[Outcome]:
    """Outcomes of an earlier run; a last line that is cut short counts as not there. Raises UsageError."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    found = []
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            found.append(Outcome(entry["test"], entry["passed"], entry["why"], tuple(entry["values"])))
        except (ValueError, KeyError, TypeError) as error:
            if number < len(lines):
                raise UsageError(f"{path}, line {number} is no outcome of a test: {line[:60]!r}") from error
    return found


__all__ = ["Outcome", "names", "read_journal", "run"]
