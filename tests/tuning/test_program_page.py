"""The page on programs of one's own: its Python runs as it stands there, but for sizes and budgets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune import te
from search_spaces.sketch import Sketch
from tests.schedule.printed import run_printed

PAGE = Path(__file__).parents[2] / "docs" / "your-own-programs.md"
SMALLER = {
    "PIXELS, CHANNELS = 14, 256": "PIXELS, CHANNELS = 14, 32",
    "ROWS, COLUMNS = 8192, 1024": "ROWS, COLUMNS = 32, 128",
    "SIZE = 2048": "SIZE = 64",
}


def page() -> str:
    """All Python of the page, with smaller sizes."""
    text = "\n".join(re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S))
    for size, smaller in SMALLER.items():
        assert size in text
        text = text.replace(size, smaller)
    return text


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory, shared_pools: None) -> dict[str, Any]:
    """Return what the page defines, after it ran with two trials a program."""
    tune = autotune.tune_schedule

    def shortly(*arguments: Any, budget: str, database: str, **options: Any) -> Any:
        assert autotune.Budget.of(budget).limit_s == 120
        folder = tmp_path_factory.getbasetemp()
        few = autotune.Budget(trials=2)
        return tune(*arguments, budget=few, database=folder / database, threads=1, quiet=True, **options)

    found: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(autotune, "tune_schedule", shortly)
        exec(compile(page(), str(PAGE), "exec"), found)
    return found


@pytest.mark.parametrize("name", ["tuned", "normalised", "blurred", "automatic"])
def test_the_programs_of_the_page_are_tuned_print_and_are_right(names: dict[str, Any], name: str) -> None:
    result = names[name]
    assert set(result.report.outcomes) == {"ok"}
    outputs = [t for t in result.args if isinstance(t.op, te.ComputeOp)]
    assert run_printed(str(result.trace), te.create_schedule(outputs)).trace == result.trace
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(t.shape).astype(t.dtype) for t in result.args]
    expected = te.evaluate(outputs, dict(zip(result.args[:-1], arrays[:-1], strict=True)))
    autotune.build(result.schedule, result.args, threads=1)(*arrays)
    np.testing.assert_allclose(arrays[-1], expected[0], rtol=1e-3, atol=1e-4)


def test_the_first_function_of_the_page_has_two_paths(names: dict[str, Any]) -> None:
    x = te.placeholder((16, 16), name="x")
    y = te.compute((16, 16), lambda i, j: x[i, j] * 2.0, name="y")
    sketch = Sketch(names["scale_rows"], [y])
    assert [len(sketch.bind({"rows": 4, "unrolled": unrolled})) for unrolled in (False, True)] == [2, 3]
    assert len(sketch.bind({"rows": 1})) == 1
