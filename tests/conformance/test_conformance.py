"""ONNX's own tests through machine code: a sample of them, and the strict list of those that fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import UsageError
from tests.conformance import expected, run, worker
from tests.conformance.run import Outcome, read_journal

PASSES = "simple/test_sign_model"
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")


def test_a_test_is_run_and_what_the_journal_has_is_not(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    names = [PASSES, "simple/test_strnorm_model_monday_empty_output"]
    first = run.run(names, jobs=1, journal=journal)
    assert [outcome.passed for outcome in first] == [True, False]
    assert "StringNormalizer" in first[1].why
    assert read_journal(journal) == first
    journal.write_text(journal.read_text().replace("true", "false"))
    assert [outcome.passed for outcome in run.run(names, jobs=1, journal=journal)] == [False, False]


def test_a_last_line_cut_short_is_run_again_and_another_is_an_error(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    line = f'{{"test": "{PASSES}", "passed": true, "why": "", "values": []}}\n'
    journal.write_text(line + line[:30])
    assert read_journal(journal) == [Outcome(PASSES, True)]
    run.run([PASSES], jobs=1, journal=journal)
    assert journal.read_text() == line
    journal.write_text(line[:30] + "\n" + line)
    with pytest.raises(UsageError, match="line 1 is no outcome of a test"):
        read_journal(journal)


def test_the_list_is_strict() -> None:
    listed = "node/test_string_concat"
    assert expected.problems({listed: False, "node/test_abs": True}) == []
    assert expected.problems({listed: True, "node/test_abs": False}) == [
        "node/test_abs fails, and no reason is known",
        f"{listed} passes, but is known to fail: {expected.reason_of(listed)}",
    ]
    assert expected.stale([]) != []


def test_every_name_in_the_list_is_a_test() -> None:
    assert expected.stale(run.names(KINDS)) == []


@pytest.mark.filterwarnings("ignore")  # ONNX's tests divide by zero on purpose
def test_a_sample_is_as_the_list_says() -> None:
    """In this process, which has worked out ONNX's cases already; workers are asked above."""
    system = worker.system_of("autotune")
    found = {
        name: worker.judge(worker.load_tests(name.partition("/")[0])[name], system)["passed"]
        for name in run.names(KINDS)[::40]
    }
    assert expected.problems(found) == []
