"""The README's Python that tunes runs as it stands there, but for the hours; `test_project` runs the rest."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import onnx
import pytest

import autotune
from autotune.frontends import zoo

README = Path(__file__).parent.parent / "README.md"


def blocks() -> list[str]:
    found = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.M | re.S)
    return [block for block in found if "tuning.db" in block]


def test_the_readme_tunes_compiles_saves_and_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(README.parent))  # workers start in the folder of the model
    onnx.save(zoo.load("tiny_cnn"), "model.onnx")
    tune, budgets = autotune.tune, list[str]()

    def shortly(*arguments: Any, budget: Any, **options: Any) -> Any:
        budgets.append(repr(autotune.Budget.of(budget)))
        return tune(*arguments, budget=autotune.Budget(trials=2), time_model=False, **options)

    tune_schedule = autotune.tune_schedule

    def program_shortly(*arguments: Any, budget: Any, **options: Any) -> Any:
        budgets.append(repr(autotune.Budget.of(budget)))
        return tune_schedule(*arguments, budget=autotune.Budget(trials=2), quiet=True, **options)

    monkeypatch.setattr(autotune, "tune", shortly)
    monkeypatch.setattr(autotune, "tune_schedule", program_shortly)
    names: dict[str, Any] = {}
    for block in blocks():
        exec(compile(block, str(README), "exec"), names)
    assert budgets == ["Budget('8h')", "Budget('1h30m', trials=2000)", "Budget('2m')"]
    assert isinstance(names["same"], autotune.Module)
    assert isinstance(names["best"], autotune.TunedSchedule)
