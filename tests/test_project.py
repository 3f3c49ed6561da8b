"""The project as a whole: imports, public names, documentation that runs."""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

import autotune

ROOT = Path(__file__).parent.parent
PACKAGES = ("autotune", "search_spaces", "cost_models")
MOST_CYCLES = 8
MOST_PARAMETERS = 8
CALLED_BY_USERS = {"autotune.te.extern.extern", "autotune.runtime.module.__init__"}
"""Functions of more parameters, which users call with keywords, beside those that the package exports."""
HEAVY = ("numba", "llvmlite", "optuna", "xgboost", "pandas", "pyarrow", "sqlalchemy", "onnx", "scipy")
ADVISED = re.compile(r"""\b(?:autotune-compiler\[|install\((?=name|["']))([\w,"'-]+)[\])]""")
"""Extras that documents name, and those whose command a message has (:func:`autotune.distribution.install`)."""


def modules() -> list[str]:
    """All importable modules of the three packages, and of the experiments."""
    names = []
    for package in (*PACKAGES, "results.bench"):
        names.append(package)
        folder = [str(ROOT / package.replace(".", "/"))]
        names += [m.name for m in pkgutil.walk_packages(folder, f"{package}.")]
    return [n for n in names if not n.endswith("__main__")]


def python(code: str, *arguments: str) -> str:
    """Standard output of a fresh interpreter; its standard error shows when it fails."""
    done = subprocess.run(
        [sys.executable, *arguments, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def imported(module: str, known: Collection[str]) -> set[str]:
    """Return those of ``known`` modules that a module imports at its start, for type checks too."""
    file = ROOT / module.replace(".", "/")
    tree = ast.parse(
        (file / "__init__.py" if file.is_dir() else file.with_suffix(".py")).read_text(encoding="utf-8")
    )
    found: set[str] = set()
    open_nodes: list[ast.AST] = [tree]
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{name.name}" for name in node.names}
            found |= names & set(known) or {node.module}
        elif isinstance(node, ast.Import):
            found.update(name.name for name in node.names)
        elif not isinstance(node, ast.FunctionDef):
            open_nodes += ast.iter_child_nodes(node)
    return found & set(known) - {module}


def test_import_cycles_are_few() -> None:
    """Imports for type checks alone count: who reads one module of a cycle must know all of them."""
    names = [name for name in modules() if name.split(".")[0] in PACKAGES]
    number = {name: n for n, name in enumerate(names)}
    edges = np.zeros((len(names), len(names)), dtype=np.bool_)
    for name in names:
        edges[number[name], [number[other] for other in imported(name, number)]] = True
    _, labels = connected_components(csr_array(edges), connection="strong")
    cycles = [
        [names[n] for n in np.flatnonzero(labels == label)]
        for label in np.flatnonzero(np.bincount(labels) > 1)
    ]
    assert len(cycles) <= MOST_CYCLES, cycles


def test_functions_take_few_parameters() -> None:
    """A function that takes more is public, where a user names them, or a command, whose options they are."""
    found = set()
    for path in (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                if (
                    len([argument for argument in given if argument.arg not in ("self", "cls")])
                    > MOST_PARAMETERS
                ):
                    found.add(
                        f"{path.relative_to(ROOT).with_suffix('').as_posix().replace('/', '.')}.{node.name}"
                    )
    public = {f"{module}.{name}" for name, module in autotune._WHERE.items()} | CALLED_BY_USERS
    assert {name for name in found if not name.startswith("autotune.cli.")} - public == set()


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = json.loads(python("import sys, json, autotune; print(json.dumps(sorted(sys.modules)))"))
    top_level = {name.split(".")[0] for name in loaded}
    assert sorted(top_level & set(HEAVY)) == []


def test_compiling_without_a_database_loads_none(tmp_path: Path) -> None:
    code = f"import os, sys; os.environ['AUTOTUNE_HOME'] = {str(tmp_path)!r}; import autotune; "
    code += "autotune.compile('zoo:tiny_cnn', threads=1).close(); print('sqlalchemy' in sys.modules)"
    assert python(code) == "False\n"


IN_PROCESSES = re.compile(r"results\.bench\.held_out\.(vision|language|blocks|sized)")
"""Models of PyTorch's libraries, which are loaded into processes of their own."""


@pytest.mark.parametrize("name", modules())
def test_public_names_exist(name: str) -> None:
    if IN_PROCESSES.fullmatch(name):
        pytest.skip("needs torchvision and transformers, which CI does not install")
    if name in ("autotune.pytorch.bound", "autotune.pytorch.flex_attention"):
        pytest.importorskip("torch")
    module = importlib.import_module(name)
    public = getattr(module, "__all__", ())
    assert [n for n in public if not hasattr(module, n)] == []
    assert len(set(public)) == len(public)


def test_every_extra_that_is_advised_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    sources = [path for package in (*PACKAGES, "results") for path in (ROOT / package).rglob("*.py")]
    sources += [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    advised = {
        extra
        for path in sources
        for found in ADVISED.findall(path.read_text(encoding="utf-8"))
        for extra in (("cmaes", "gp") if found == "name" else found.strip("'\"").split(","))
    }
    assert (
        {"postgres", "cmaes", "gp", "verify", "peers", "sign", "opencl", "torch", "held-out"}
        <= advised
        <= set(project["optional-dependencies"])
    )


def test_extras_bring_what_is_imported() -> None:
    from autotune.tuning.search.samplers import NEEDS

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    imported = {
        **NEEDS,
        "postgres": "psycopg",
        "verify": "islpy",
        "sign": "cryptography",
        "opencl": "pyopencl",
        "web": "starlette",
        "fleet": "ray",
    }
    for extra, package in imported.items():
        assert any(line.startswith(package) for line in project["optional-dependencies"][extra]), extra


def command_rows() -> dict[str, str]:
    """Return the table of commands of its page: name to description."""
    text = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^\| `autotune (\w+)[^|]*\|(.*)\|$", text, re.MULTILINE))


def test_the_page_shows_every_command() -> None:
    from autotune.cli.main import COMMANDS

    assert set(command_rows()) == set(COMMANDS)


@pytest.mark.parametrize("name", command_rows())
def test_options_and_subcommands_of_the_page_exist(name: str) -> None:
    import click

    from autotune.cli.main import cli

    context = click.Context(cli)
    command = cli.get_command(context, name)
    assert command is not None
    described = command_rows()[name]
    options = {text for p in command.params for text in p.opts}
    assert set(re.findall(r"`(--[a-z-]+)", described)) <= options
    if isinstance(command, click.Group):
        assert set(re.findall(r"`([a-z][a-z0-9-]*)`", described)) == set(command.list_commands(context))


def test_packages_ship_their_type_marker() -> None:
    assert [p for p in PACKAGES if not (ROOT / p / "py.typed").exists()] == []


def test_text_files_are_utf8_without_tabs_or_trailing_space() -> None:
    done = subprocess.run(
        ["git", "ls-files", "*.py", "*.md", "*.toml"], capture_output=True, text=True, cwd=ROOT
    )
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    bad = []
    for name in done.stdout.split():
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1):
            if "\t" in line or line != line.rstrip():
                bad.append(f"{name}:{number}")
    assert bad == []
