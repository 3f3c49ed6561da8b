"""Run every Python block of the documentation as it stands there, those of a page one after another.

A user's own files exist (``FILES``), hours of tuning are a few trials, and a page whose optional package is missing
here is skipped. ``primitives.md`` is generated from docstrings, which ``schedule/test_documentation`` runs, and
``tuning/test_program_page`` runs ``your-own-programs.md`` with smaller sizes.
"""

from __future__ import annotations

import ast
import doctest
import json
import re
import runpy
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import autotune
from autotune import library
from autotune.cli import main as cli
from autotune.errors import ModelImportError
from autotune.frontends import zoo
from autotune.frontends.model_builder import ModelBuilder
from autotune.runtime import run_command

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
ELSEWHERE = {"primitives.md", "your-own-programs.md"}
NEEDS = {"pytorch.md": "torch"}
SHELL = ("start.md", "uses/tune.md", "uses/query.md", "uses/retrain.md", "database.md", "cost-models.md")
"""Pages whose commands run, in the order of a reader, who has one database."""


def pages() -> list[Path]:
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
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


def artifact() -> None:
    autotune.compile("zoo:mlp", threads=2, allow_oversubscription=True).save("model.atm")


FILES: Mapping[str, Callable[[], Any]] = {
    "artifacts.md": artifact,
    "deploy.md": artifact,
    "indexing.md": lambda: onnx.save(nonzero(), "nonzero.onnx"),
    "python.md": lambda: onnx.save(zoo.load("tiny_cnn"), "model.onnx"),
    "pytorch.md": lambda: autotune.Database("tuning.db").close(),
    "replay.md": files_of_replay,
    "retrain.md": lambda: autotune.Database("tuning.db").close(),
    "sizes.md": files_of_sizes,
    "tuning.md": lambda: onnx.save(zoo.load("tiny_cnn"), "model.onnx"),
}  # fmt: skip


@pytest.fixture
def shortly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets of a few trials in the place of minutes and hours; whole models are not timed, in nine processes each."""
    for name, more in {"tune": {"time_model": False}, "tune_schedule": {}}.items():
        original = getattr(autotune, name)
        usual = {"quiet": True, **more}

        def few(
            *arguments: Any, original: Any = original, usual: Any = usual, budget: Any, **options: Any
        ) -> Any:
            assert autotune.Budget.of(budget)  # what stands there is one
            return original(*arguments, budget=autotune.Budget(trials=2), **{**usual, **options})

        monkeypatch.setattr(autotune, name, few)


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Take kernels back that a page registers: they are options of every model of this process."""
    before = library.registered()
    yield
    for name, dtype in set(library.registered()) - set(before):
        library.unregister(name, dtype)


@pytest.mark.usefixtures("shared_pools", "shortly", "forgotten")
@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
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


@pytest.mark.usefixtures("shared_pools", "shortly", "forgotten")
@pytest.mark.parametrize(
    "script", sorted((ROOT / "docs" / "examples").glob("*.py")), ids=lambda path: path.name
)
def test_an_example_runs(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(sys, "argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")


@pytest.mark.usefixtures("shared_pools", "shortly", "forgotten")
@pytest.mark.parametrize(
    "notebook", sorted((ROOT / "docs" / "examples").glob("*.ipynb")), ids=lambda path: path.name
)
def test_a_notebook_runs(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in cells_of(notebook) if cell["cell_type"] == "code"]
    assert cells
    for number, cell in enumerate(cells):
        assert cell["outputs"] == [], "clear the outputs before you commit a notebook"
        run_cell("".join(cell["source"]), names, f"{notebook.name}, cell {number}")


def cells_of(notebook: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return cells


def run_cell(text: str, names: dict[str, Any], where: str) -> None:
    """Run a cell; the value of a last expression can be shown, as HTML where it has some."""
    tree = ast.parse(text)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, where, "exec"), names)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), where, "eval"), names)
        assert getattr(value, "_repr_html_", value.__repr__)()


def commands(page: Path) -> list[str]:
    """Return the commands of ours in the shell blocks of a page, with a smaller model and a budget of two trials."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
    lines = [line.partition("  #")[0] for block in blocks for line in block.splitlines()]
    smaller = [
        line.replace("zoo:squeezenet", "zoo:tiny_cnn") for line in lines if line.startswith("autotune")
    ]
    return [re.sub(r"--(budget|trials) \w+", "--trials 2", line) for line in smaller]


@pytest.mark.usefixtures("shared_pools")
def test_commands_of_pages_run_in_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    programs = {"autotune": cli.run, "autotune-run": run_command.run}
    for page in SHELL:
        found = commands(ROOT / "docs" / page)
        assert found, page
        for line in found:
            program, *arguments = shlex.split(line)
            assert programs[program](arguments) == 0, f"{page}: {line}"


def test_the_first_page_quotes_the_advice_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(sized_model(), "words.onnx")
    with pytest.raises(ModelImportError) as caught:
        autotune.compile("words.onnx")
    assert f"error: {caught.value}\n" in (ROOT / "docs" / "start.md").read_text(encoding="utf-8")


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


def links(page: Path) -> list[str]:
    """Return the files that a page links to, relative to its folder."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return [link for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text) if "://" not in link]


def test_links_lead_to_files() -> None:
    documents = [*ROOT.glob("*.md"), ROOT / "results" / "README.md", *(ROOT / "docs").rglob("*.md")]
    missing = [
        f"{page.name}: {link}"
        for page in documents
        for link in links(page)
        if not (page.parent / link).exists()
    ]
    assert missing == []


def test_anchors_of_links_are_headings() -> None:
    missing = []
    for page in [*ROOT.glob("*.md"), ROOT / "results" / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for file, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text(encoding="utf-8")):
            text = ((page.parent / file) if file else page).read_text(encoding="utf-8")
            headings = re.findall(r"^#+ (.*)$", text, re.M)
            if anchor not in {
                re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings
            }:
                missing.append(f"{page.name}: {file}#{anchor}")
    assert missing == []


def test_the_index_lists_every_page_once() -> None:
    index = ROOT / "docs" / "index.md"
    listed = [link for link in links(index) if not link.startswith("..")]
    found = (page for pattern in ("*.md", "*.ipynb") for page in index.parent.rglob(pattern))
    there = {str(page.relative_to(index.parent)) for page in found}
    contributing = {str(Path("contributing") / Path(link).name) for link in links(ROOT / "CONTRIBUTING.md")}
    assert sorted(listed) == sorted(there - contributing - {"index.md"})


def test_the_reference_has_every_public_name() -> None:
    """A name of the package by the module that defines it; ``tir`` is names of ``te``."""
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    shown = {text.rpartition(".")[2] for text in re.findall(r"^::: (\S+)$", page, re.M)}
    assert shown >= set(autotune.__all__) - {"tir"}


def test_the_chart_shows_the_tables() -> None:
    chart = runpy.run_path(str(ROOT / "docs" / "chart.py"))
    assert chart["CHART"].read_text(encoding="utf-8") == chart["chart"](), "run: python docs/chart.py"


def test_the_front_door_is_short() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 120
    release = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[2]
    assert release.startswith("[0.1.0]")
    assert len(re.findall(r"^- ", release, re.M)) <= 60
