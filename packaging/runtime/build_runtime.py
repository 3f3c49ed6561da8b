"""Build backend (PEP 517) of ``autotune-runtime``: a wheel of the runtime and of what it imports, and of nothing else.

The modules follow from the imports at the start of those in ``autotune/runtime``; version, licence and the versions of
dependencies are those of the whole package. It needs nothing but Python, so that it builds without an index.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKAGE = "autotune"
DEPENDENCIES = ("numpy", "ml_dtypes", "xxhash")
"""Distributions that the modules import; a test compares it with their imports."""
_WRITTEN = (1980, 1, 1, 0, 0, 0)
"""The time of each file in the wheel: the same sources are the same bytes."""


def build_wheel(
    wheel_directory: str,
    config_settings: Mapping[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Write the wheel to a folder, and return its name (the hook of PEP 517)."""
    project, version = _project(), _version()
    name = project["name"].replace("-", "_")
    files = {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in sorted(runtime_files())}
    info = f"{name}-{version}.dist-info"
    files[f"{info}/licenses/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    files[f"{info}/METADATA"] = _metadata(project, version).encode()
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: build_runtime\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    files[f"{info}/entry_points.txt"] = _entry_points(project).encode()
    record = "".join(f"{path},sha256={_digest(data)},{len(data)}\n" for path, data in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    wheel = f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(Path(wheel_directory) / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            member = zipfile.ZipInfo(path, _WRITTEN)
            member.compress_type, member.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(member, data)
    return wheel


def build_sdist(sdist_directory: str, config_settings: Mapping[str, Any] | None = None) -> str:
    """Raise: its sources are those of the whole package, which has an archive of them."""
    raise RuntimeError("autotune-runtime is built from a checkout of the repository, as a wheel only")


def runtime_files() -> set[Path]:
    """Return the files of ``autotune/runtime``, and those that they import at their start, directly or not."""
    waiting, found = [*(ROOT / PACKAGE / "runtime").rglob("*.py")], {ROOT / PACKAGE / "py.typed"}
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            packages = [
                folder / "__init__.py" for folder in path.parents if folder.is_relative_to(ROOT / PACKAGE)
            ]
            waiting += [*packages, *filter(None, map(_file, imported(path)))]
    return found


def imported(path: Path) -> Iterator[str]:
    """Yield the names that a module imports when it is loaded: not those for type checks or of its functions."""
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _for_types(node):
            waiting += ast.iter_child_nodes(node)


def _for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _file(name: str) -> Path | None:
    """Return the file of a module of ours; None for a name in one, and for another's module."""
    place = ROOT.joinpath(*name.split("."))
    files = (place / "__init__.py", place.with_suffix(".py"))
    return next((path for path in files if name.split(".")[0] == PACKAGE and path.is_file()), None)


def _project() -> dict[str, Any]:
    return _table(HERE)


def _table(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def _version() -> str:
    tree = ast.parse((ROOT / PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    named = {
        target.id: node.value for node in assigned for target in node.targets if isinstance(target, ast.Name)
    }
    return str(ast.literal_eval(named["__version__"]))


def _metadata(project: Mapping[str, Any], version: str) -> str:
    whole = _table(ROOT)
    needed = [text for text in whole["dependencies"] if text.partition(">")[0] in DEPENDENCIES]
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {version}",
        f"Summary: {project['description']}",
        f"License-Expression: {whole['license']}",
        "License-File: LICENSE",
        f"Requires-Python: {project['requires-python']}",
        *(f"Requires-Dist: {text}" for text in needed),
    ]
    return "\n".join(lines) + "\n"


def _entry_points(project: Mapping[str, Any]) -> str:
    return "\n".join(
        ["[console_scripts]", *(f"{name} = {what}" for name, what in project["scripts"].items()), ""]
    )


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
