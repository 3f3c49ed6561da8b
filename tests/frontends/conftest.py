"""The judge of operators of other domains than ONNX's: ``--peer-python PYTHON`` names one with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import pytest

from tests.frontends import foreign_nodes
from tests.frontends.judge import Judge


def pytest_addoption(parser: Any) -> None:
    parser.addoption("--peer-python", help="a Python with ONNX Runtime, which judges operators too")


def pytest_configure(config: pytest.Config) -> None:
    python = config.getoption("--peer-python", None)  # unknown where tests of other folders run too
    if python:
        foreign_nodes.JUDGE = judge = Judge(python)
        config.add_cleanup(judge.close)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if foreign_nodes.JUDGE is not None:
        cases = foreign_nodes.JUDGE.cases
        terminalreporter.write_line(f"ONNX Runtime judged {cases.total()} nodes of {len(cases)} operators")
        terminalreporter.write_line(", ".join(f"{name} {count}" for name, count in sorted(cases.items())))
