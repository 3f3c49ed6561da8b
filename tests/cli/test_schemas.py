"""JSON documents of commands have a schema that knows each of their members."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from autotune.bench.tables import Document
from autotune.cli import main as cli
from autotune.cli.schemas import DOCUMENTS, schema
from tests.cli.conftest import EVENTS, MODEL

MODEL_ARGUMENTS = (MODEL, "--threads", "1")
COMMANDS = {
    "query": ["query", *MODEL_ARGUMENTS, "--top", "3", "--front", "--explain"],
    "explain": ["explain", *MODEL_ARGUMENTS],
    "explain-predict": ["explain", *MODEL_ARGUMENTS, "--predict"],
    "jobs": ["jobs"],
    "status": ["status"],
    "report": ["report"],
    "db-stats": ["db", "stats"],
}


def check(name: str, document: Any) -> None:
    Draft202012Validator(schema(name)).validate(document)


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    assert cli.run([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_schema_is_printed_and_is_one(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["schema", name]) == 0
    Draft202012Validator.check_schema(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_document_fits(name: str, tuned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(name, printed(capsys, *COMMANDS[name], "--db", tuned))


def test_what_was_not_measured_fits(tuned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check("query", printed(capsys, "query", "zoo:mlp", "--explain", "--threads", "1", "--db", tuned))


def test_each_line_of_a_job_fits(tuned: Path) -> None:
    lines = [json.loads(line) for line in (tuned.parent / EVENTS).read_text().splitlines()]
    for line in lines:
        check("tune", line)
    assert {"preparing", "started", "measured", "phase", "finished"} <= {line["event"] for line in lines}


@pytest.mark.parametrize("targets", [(), ("x86-64-v2", "x86-64-v3")])
def test_artifacts_fit(
    targets: tuple[str, ...], tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.atm"
    asked = [word for target in targets for word in ("--target", target)]
    check("compile", printed(capsys, "compile", MODEL, "-o", path, "--db", tuned, *asked))
    check("explain-artifact", printed(capsys, "explain", path))
    check("run", printed(capsys, "run", path, "--random", "--repeat", "2", "--profile"))


@pytest.mark.parametrize("name", ["bench", "replay"])
def test_experiments_fit(name: str) -> None:
    document = Document(
        "t", "autotune bench gemm", {"machine": "m"}, (), data=[{"gflops": 1.0}], notes=("n",)
    )
    check(name, json.loads(json.dumps(document.to_json())))


def test_a_member_more_or_less_does_not_fit(tuned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "jobs", "--db", tuned)
    for wrong in (found | {"more": 1}, {"jobs": found["jobs"]}, found | {"database": 3}):
        with pytest.raises(ValidationError):
            check("jobs", wrong)


def test_schemas_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["schema"]) == 0
    assert capsys.readouterr().out.split() == [*DOCUMENTS]
