"""The map of the code: every folder with the first line of its docstring, in the order of the pipeline."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "map.md"

STAGES = {
    "Models and graphs": ("autotune/frontends", "autotune/graph", "autotune/passes"),
    "Programs and schedules": ("autotune/te", "autotune/schedule", "autotune/lower"),
    "Machine code": ("autotune/codegen", "autotune/library"),
    "Compiling a model": ("autotune/compiler", "autotune/functions"),
    "Running it": ("autotune/runtime", "autotune/workers", "autotune/profiling"),
    "Search spaces": ("search_spaces",),
    "Cost models": ("cost_models", "autotune/calibration"),
    "The database": ("autotune/database",),
    "Tuning": ("autotune/tuning",),
    "For users": ("autotune", "autotune/pytorch", "autotune/quantization", "autotune/cli", "autotune/bench"),
}
"""The folders of each stage; those inside them follow. A folder that is missing here fails the test."""


def first_line(folder: str) -> str:
    """Return a package's line about itself; '' where it says nothing."""
    source = (ROOT / folder / "__init__.py").read_text(encoding="utf-8")
    text = ast.get_docstring(ast.parse(source)) or ""
    return text.split("\n")[0].strip()


def packages() -> list[str]:
    """All folders with code, sorted."""
    found = (
        path for top in ("autotune", "search_spaces", "cost_models") for path in (ROOT / top).rglob("*.py")
    )
    return sorted({path.parent.relative_to(ROOT).as_posix() for path in found})


def arranged() -> dict[str, list[str]]:
    """All folders by stage; one that no stage names stands under the nearest folder around it."""
    listed = {top for tops in STAGES.values() for top in tops}
    found: dict[str, list[str]] = {stage: [] for stage in STAGES}
    for stage, tops in STAGES.items():
        for top in tops:
            inner = [
                p for p in packages() if p.startswith(f"{top}/") and p not in listed and top != "autotune"
            ]
            found[stage] += [top, *inner]
    return found


def page() -> str:
    """The page as it should be."""
    lines = [
        "# Map of the code",
        "",
        "Folders are stages, and imports go one way (the contracts are in `pyproject.toml`). Each line is the first of",
        "the docstring of the folder's `__init__.py`; the files in it say the same of themselves.",
    ]
    for stage, folders in arranged().items():
        lines += ["", f"## {stage}", ""]
        for folder in folders:
            indent = "  " if folder not in STAGES[stage] else ""
            lines.append(f"{indent}- `{folder}/` – {first_line(folder)}")
    return "\n".join(lines) + "\n"


def test_every_folder_is_on_the_map() -> None:
    listed = [folder for folders in arranged().values() for folder in folders]
    assert sorted(listed) == packages()


@pytest.mark.parametrize("folder", packages())
def test_every_folder_says_in_a_line_what_it_is(folder: str) -> None:
    assert first_line(folder)


def test_the_map_is_up_to_date(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page(), f"run: pytest --update-golden {Path(__file__).name}"
