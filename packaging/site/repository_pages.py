"""Hooks of mkdocs: pages are the repository's Markdown files and notebooks, and ``docs/index.md`` is their order."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
FRONT = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
PARTS = {"Contributing": ("CONTRIBUTING.md", "docs/contributing/"), "Results": ("results/",)}
"""Parts behind those of the index, which has no list of their pages."""
_LINK = re.compile(r"\]\(([^)#:\s]+)[^)]*\)")
_NOTEBOOK = re.compile(r"\]\(([^)#:\s]+\.ipynb)\)")
_ITEM = re.compile(r"^- .*?\[([^\]]+)\]\(([^)#:]+)\)")
_GROUP = re.compile(r"^(?:## (?P<part>.+)|(?P<topic>[A-Z][^:\n]+):)$")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Let the table of contents be that of ``docs/index.md``."""
    parts = navigation((ROOT / "docs" / "index.md").read_text(encoding="utf-8"))
    others = [name for name in map(_name, pages()) if name not in {*_names(parts)}]
    first = {"Overview": ["README.md", "docs/index.md", "CHANGELOG.md"]}
    last = [{part: [name for name in others if name.startswith(of)]} for part, of in PARTS.items()]
    config.nav = [first, *parts, *last]
    config.watch.append(str(ROOT / "docs"))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, and what they link to."""
    notebooks = sorted((ROOT / "docs").rglob("*.ipynb"))
    others = {path for page in pages() for path in linked(page) if path.suffix != ".md"}
    for path in [*pages(), *sorted(others.union(notebooks))]:
        files.append(File(_name(path), str(ROOT), config.site_dir, config.use_directory_urls))
    for path in notebooks:
        files.append(File.generated(config, f"{_name(path)}.md", content=notebook_page(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let links to notebooks lead to their pages."""
    return _NOTEBOOK.sub(r"](\1.md)", markdown)


def pages() -> list[Path]:
    """Return the Markdown files of the site."""
    found = [ROOT / name for name in FRONT]
    return [*found, *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "results").rglob("*.md"))]


def linked(page: Path) -> set[Path]:
    """Return the files of the repository that a page links to."""
    texts = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    found = {(page.parent / link).resolve() for link in _LINK.findall(texts)}
    return {path for path in found if path.is_file() and path.is_relative_to(ROOT)}


def notebook_page(path: Path) -> str:
    """Return a notebook as Markdown, with a link to the file itself below its title."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    title, *others = map(_cell, cells)
    download = f'<a href="{path.name}" download>Download this notebook</a>'
    return "\n\n".join([*title.split("\n", 1)[:1], download, *title.split("\n", 1)[1:], *others])


def _cell(cell: dict[str, Any]) -> str:
    text = "".join(cell["source"])
    return f"```python\n{text}\n```" if cell["cell_type"] == "code" else text


def navigation(index: str) -> list[Any]:
    """Return the parts of the index with their pages; ``Models:`` above a list is a group of its part."""
    parts: list[Any] = []
    part: list[Any] = []
    here = part
    for line in index.splitlines():
        if (group := _GROUP.match(line)) is not None and group["part"]:
            here = part = []
            parts.append({group["part"]: here})
        elif group is not None:
            here = []
            part.append({group["topic"]: here})
        elif (item := _ITEM.match(line)) is not None:
            path = (ROOT / "docs" / item[2]).resolve()
            here.append({item[1]: f"{_name(path)}.md" if path.suffix == ".ipynb" else _name(path)})
    return parts


def _names(entries: Any) -> Iterator[str]:
    if isinstance(entries, str):
        yield entries
        return
    for value in entries.values() if isinstance(entries, dict) else entries:
        yield from _names(value)


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
