"""Fixtures of all tests: golden files, and one cost model on every machine."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from autotune.hardware import usable_cores
from autotune.settings import Settings, environment_name
from cost_models import kept_defaults
from tests.once import compile_once

HOME = environment_name("home")
DEFAULTS = environment_name("defaults")
FOLDER = pytest.StashKey[Path]()
"""The folder in which the tests of this process have their homes."""


def pytest_configure(config: pytest.Config) -> None:
    """Keep what the user has out of the tests: settings of the environment, the database and cost models in their
    folders, what was measured of this machine and chosen on it. Only the level that it counts as is left, and where
    the tests of this session keep default schedules: all their processes share those, as each follows from its key."""
    shared_defaults = os.environ.get(DEFAULTS) if hasattr(config, "workerinput") else None
    for name in {environment_name(field.name) for field in fields(Settings)} - {environment_name("host")}:
        os.environ.pop(name, None)
    os.environ[environment_name("machine")] = "table"
    # The processes of the tests have the cores, and what they compile is compiled once.
    os.environ[environment_name("builders")] = "1"
    config.stash[FOLDER] = folder = Path(tempfile.mkdtemp(prefix="autotune-tests-"))
    os.environ[DEFAULTS] = shared_defaults or str(folder / "defaults")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    objects = Path(os.environ[DEFAULTS]).with_name("objects")
    objects.mkdir(parents=True, exist_ok=True)
    compile_once(objects)
    shared = folder / "shared"  # of fixtures that several tests share
    shared.mkdir()
    os.environ[HOME] = str(shared)
    os.environ[environment_name("locks")] = os.environ[HOME]  # no test waits for jobs beside it
    gc.disable()


def pytest_collection_finish() -> None:
    """Keep Python's collector from the modules and the tests, which all stay: it would look at them again and again.

    It looks at what the tests make after so many objects that it takes no part of their time worth mentioning; most
    of it goes without it.
    """
    gc.freeze()
    gc.set_threshold(20_000, 10, 5)
    gc.enable()


@pytest.fixture(autouse=True)
def own_home(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give each test a database, cost models and a cache of its own: none are there, and nothing is left.

    The numbered folders of pytest are no place for so many: each new one reads the names of all.
    """
    home = tempfile.mkdtemp(dir=pytestconfig.stash[FOLDER])
    monkeypatch.setenv(HOME, home)
    yield
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(autouse=True, scope="module")
def defaults_of_others() -> None:
    """Read what the processes beside this one have kept by now."""
    kept_defaults.forget()


@pytest.fixture(scope="session")
def pools() -> Iterator[Any]:
    """Workers of jobs that have ended, for :func:`shared_pools`."""
    from tests.pools import Pools  # few tests need it

    found = Pools()
    yield found
    found.close()


@pytest.fixture(scope="module")
def shared_pools(pools: Any) -> Iterator[None]:
    """Let real jobs have the workers of those before them; each would start three, in several seconds."""
    with pools.shared():
        yield


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One worker more than cores: tests that start processes, kill them and wait leave a core idle."""
    return usable_cores() + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let tests of a module stay in a process as long as there are others: what they share is made once."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getvalue("dist") == "load" else None


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
