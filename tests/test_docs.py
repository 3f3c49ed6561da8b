"""Every Python block of the documentation runs as it stands there, those of a page one after another.

What a page says of a user's own files is there (``FILES``), hours of tuning are a few trials, and a page whose optional
package is missing here is skipped. The README's blocks are run by ``test_readme`` and ``test_project``, those of
``primitives.md``, which is made from docstrings, by ``schedule/test_documentation``.
"""

from __future__ import annotations

import doctest
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import autotune
from autotune.frontends.model_builder import ModelBuilder

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
ELSEWHERE = {"primitives.md"}
NEEDS = {"pytorch.md": "torch"}


def pages() -> list[Path]:
    found = sorted((ROOT / "docs").rglob("*.md"))
    return [page for page in found if page.name not in ELSEWHERE and BLOCK.search(page.read_text("utf-8"))]


def sized_model() -> onnx.ModelProto:
    """``ids`` of open batch and length, looked up and summed over what each has."""
    b = ModelBuilder("words")
    ids = b.input("ids", ("batch", "seq"), "int64")
    b.node("Gather", [b.normal("table", (8, 4), 1.0), ids], "looked_up")
    b.node("Relu", ["looked_up"], "y")
    return b.finish(["y"])


def decoder() -> onnx.ModelProto:
    """A word and 24 caches of what went before, each longer by one behind it."""
    b = ModelBuilder("decoder")
    word = b.input("word", (1, 1), "int64")
    b.node("Gather", [b.normal("table", (8, 64), 1.0), word], "embedded")
    b.node("MatMul", ["embedded", b.normal("weights", (64, 8), 1.0)], "logits")
    b.node("Reshape", ["embedded", b.constant("heads", np.array([1, 1, 1, 64]))], "one")
    b.node("Expand", ["one", b.constant("each", np.array([1, 12, 1, 64]))], "key")
    for n in range(24):
        b.node("Concat", [b.input(f"past{n}", (1, 12, "past", 64)), "key"], f"present{n}", axis=2)
    return b.finish(["logits", *(f"present{n}" for n in range(24))])


def nonzero() -> onnx.ModelProto:
    b = ModelBuilder("nonzero")
    b.node("NonZero", [b.input("x", (2, 3))], "y")
    return b.finish(["y"])


def files_of_sizes() -> None:
    onnx.save(sized_model(), "model.onnx")
    autotune.compile_for_sizes(decoder(), {"past": "0..1024:64,256,1024"}, threads=1).save("decoder.atm")


def files_of_replay() -> None:
    Path("results/replay").mkdir(parents=True)
    smallest = sorted((ROOT / "results/replay").glob("*.parquet"), key=lambda path: path.stat().st_size)[:2]
    for path in smallest:
        shutil.copy(path, "results/replay")


FILES: Mapping[str, Callable[[], Any]] = {
    "artifacts.md": lambda: autotune.compile("zoo:mlp", threads=2, allow_oversubscription=True).save("model.atm"),
    "indexing.md": lambda: onnx.save(nonzero(), "nonzero.onnx"),
    "pytorch.md": lambda: autotune.Database("tuning.db").close(),
    "replay.md": files_of_replay,
    "sizes.md": files_of_sizes,
}  # fmt: skip


@pytest.fixture
def shortly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets of a few trials in the place of minutes and hours."""
    for name in ("tune", "tune_schedule"):
        original = getattr(autotune, name)

        def few(*arguments: Any, original: Any = original, budget: Any, **options: Any) -> Any:
            assert autotune.Budget.of(budget)  # what stands there is one
            return original(*arguments, budget=autotune.Budget(trials=2), **{"quiet": True, **options})

        monkeypatch.setattr(autotune, name, few)


@pytest.mark.usefixtures("shortly")
@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.name in NEEDS:
        pytest.importorskip(NEEDS[page.name])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # workers start in the folder of the model
    FILES.get(page.name, lambda: None)()
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, block in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
        where = f"{page.name}, block {number}"
        if block.startswith(">>>"):
            run_examples(block, names, where)
        else:
            exec(compile(block, where, "exec"), names)


def run_examples(block: str, names: dict[str, Any], where: str) -> None:
    """A block as a doctest, in the names of its page."""
    test = doctest.DocTestParser().get_doctest(block, names, where, where, 0)
    test.globs = names
    report: list[str] = []
    result = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS).run(
        test, out=report.append, clear_globs=False
    )
    assert result.failed == 0, "".join(report)


def test_every_page_that_is_run_elsewhere_is_there() -> None:
    assert {path.name for path in (ROOT / "docs").rglob("*.md")} >= ELSEWHERE | {*FILES} | {*NEEDS}
