"""Fixtures of all tests: golden files, and one cost model on every machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.hardware import usable_cores
from autotune.settings import environment_name


def pytest_configure() -> None:
    """Default schedules are those of the table of processors, whatever was measured of this machine or chosen on it."""
    os.environ[environment_name("machine")] = "table"
    os.environ[environment_name("defaults")] = "anew"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One worker more than cores: tests that start processes, kill them and wait leave a core idle."""
    return usable_cores() + 1


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` rewrites the golden files with what the tests produce now."""
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Compares a text with `golden/<test name>.txt` beside the test file."""
    folder = Path(request.path).parent / "golden"
    file = folder / f"{request.node.name.removeprefix('test_').replace('[', '-').rstrip(']')}.txt"

    def compare(text: str) -> None:
        if request.config.getoption("--update-golden"):
            folder.mkdir(exist_ok=True)
            file.write_text(text + "\n", encoding="utf-8")
        assert text + "\n" == file.read_text(encoding="utf-8")

    return compare
