"""Defaults of options from ``autotune.toml``, and quiet and verbose commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.cli import main as cli
from autotune.cli.defaults import FILE, config_file
from tests.cli.conftest import MODEL


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and no configuration beside it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    monkeypatch.delenv("AUTOTUNE_CONFIG", raising=False)
    folder = tmp_path / "project" / "below"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def jobs(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.run(["jobs", *arguments]) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.run([*arguments]) == 2
    return capsys.readouterr().err.removeprefix("error: ").strip()


def test_the_nearest_file_has_the_defaults_and_the_command_line_wins(
    here: Path, tuned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here.parent / FILE).write_text(f'[all]\ndb = "{tuned}"\n[jobs]\njson = true\n')
    assert json.loads(jobs(capsys))["database"] == str(tuned)
    (here / FILE).write_text(f'[jobs]\ndb = "{tuned}"\n')
    assert jobs(capsys).splitlines()[0].startswith("job ")
    assert "no-such.db" in refused(capsys, "jobs", "--db", str(here / "no-such.db"))


def test_where_a_file_is_looked_for(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert config_file() is None
    user = here.parents[1] / "user" / "autotune" / FILE
    user.parent.mkdir(parents=True)
    user.touch()
    assert config_file() == user
    (here.parent / FILE).touch()
    assert config_file() == here.parent / FILE
    assert config_file(str(user)) == user


def test_a_file_can_be_named(
    here: Path, tuned: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = here / "own.toml"
    own.write_text(f'[jobs]\ndb = "{tuned}"\nquiet = true\n')
    (ident,) = jobs(capsys, "--config", str(own)).split()
    monkeypatch.setenv("AUTOTUNE_CONFIG", str(own))
    assert jobs(capsys).split() == [ident]
    assert "no file none.toml of defaults" in refused(capsys, "jobs", "--config", "none.toml")


def test_options_that_repeat_and_groups_of_commands(
    here: Path, tuned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '[compile]\ntarget = ["x86-64-v2", "x86-64-v3"]\noutput = "m.atm"\n'
    (here / FILE).write_text(f'{text}[db.stats]\ndb = "{tuned}"\njson = true\n')
    assert cli.run(["compile", MODEL, "--db", str(tuned), "--quiet"]) == 0
    assert capsys.readouterr().out.startswith("wrote m.atm: ")
    assert cli.run(["db", "stats"]) == 0
    assert json.loads(capsys.readouterr().out)["database"] == str(tuned)


@pytest.mark.parametrize(
    ("text", "command", "message"),
    [
        ("[tune]\nbudgt = 1", "tune x", "{file}: [tune]: no option 'budgt'"),
        ("[tune]\nbudgt = 1", "tune x", "did you mean 'budget'?"),
        ("[tnue]\n", "jobs", "{file}: no command 'tnue'"),
        ("[db.sats]\n", "db stats", "{file}: [db]: no command 'sats'"),
        ("[all]\ncores = 1", "jobs", "{file}: [all]: no option 'cores'"),
        ("jobs = 1", "jobs", "{file}: jobs = 1 is no section\n  options stand below [jobs]"),
        ("[jobs]\njson = 1", "jobs", "{file}: json = 1\n  allowed: true or false"),
        ("[tune]\nthreads = [1]", "tune x", "{file}: threads = [1]\n  allowed: a text or a number"),
        ("[tune]\nthreads = 'x'", "tune x", "{file}: threads = 'x': 'x' is not a valid integer."),
        ("[tune]\nshape = '=1'", "tune x", "{file}: shape = '=1': --shape '=1' is not NAME=SIZES"),
        ("[tune", "tune x", "{file} is no TOML: "),
    ],
)
def test_a_mistake_is_one_error_that_names_the_file(
    text: str, command: str, message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / FILE).write_text(text)
    assert message.format(file=here / FILE) in refused(capsys, *command.split())


QUIET = {
    ("jobs",): 1,
    ("status",): 1,
    ("query", MODEL): None,
    ("report",): None,
}


@pytest.mark.parametrize("command", QUIET)
def test_quiet_is_a_part_of_what_is_said(
    command: tuple[str, ...], here: Path, tuned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for flag in ([], ["-q"]):
        assert cli.run([*command, "--db", str(tuned), *flag]) == 0
        said.append(capsys.readouterr().out.splitlines())
    assert len(said[1]) < len(said[0])
    assert QUIET[command] in (None, len(said[1]))


def test_verbose_says_of_each_dispatch_why(
    here: Path, tuned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(here / "m.atm")
    for command in (["query", MODEL], ["compile", MODEL, "-o", path]):
        said = []
        for flags in ([], ["-v"], ["-v", "-q"]):
            assert cli.run([*command, "--db", str(tuned), *flags]) == 0
            said.append(capsys.readouterr().out.splitlines())
        assert len(said[0]) < len(said[1])
        assert len(said[1]) == len(said[2])
