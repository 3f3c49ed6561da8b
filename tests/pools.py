"""Measuring pools that go from one job of this process to the next: their workers take seconds to get ready."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from autotune.settings import environment_name
from autotune.tuning.measure.pool import ProcessPool

APART = frozenset(map(environment_name, ("home", "config")))
"""Settings that no worker reads."""
OWN_CODE = tuple(map(environment_name, ("kernels", "operators")))
"""Settings that name modules: workers find them in the folder in which they were started."""

ROOT = Path(__file__).parents[1]
_START = (
    "import os, runpy, sys; os.chdir(sys.argv.pop(1)); "
    "runpy.run_module('autotune.workers.launch', run_name='__main__', alter_sys=True)"
)
WORKER = (sys.executable, "-c", _START, str(ROOT), "autotune.tuning.measure.worker")
"""Outside of the folder of a test, which is removed before it ends."""

_Setting = tuple[int, frozenset[tuple[str, str]]]


class KeptPool(ProcessPool):
    """A pool whose job ends without ending its workers."""

    def __init__(self, builders: int) -> None:
        super().__init__(builders, command=WORKER)
        self.kept: Callable[[KeptPool], None] | None = None

    def rest(self) -> None:
        """Drop waiting builds; workers that wait for the next request disturb nothing."""
        for role in {*self._roles}:
            self._workers.drop(role)

    def close(self) -> None:
        """Drop waiting builds, and let the next job have the workers; a job may close its pool twice."""
        kept, self.kept = self.kept, None
        if kept is not None:
            self.rest()
            kept(self)


class Pools:
    """Pools that no job uses, by their number of builders and the settings that their workers were started with."""

    def __init__(self) -> None:
        self._free: dict[_Setting, KeptPool] = {}

    def started(self, builders: int) -> ProcessPool:
        """Return a pool that a job before has left, or else one that is warming up."""
        if any(os.environ.get(name) for name in OWN_CODE):
            pool = ProcessPool(builders)
            pool.warm_up()
            return pool
        setting = builders, _environment()
        kept = self._free.pop(setting, None)
        if kept is None:
            kept = KeptPool(builders)
            kept.warm_up()
        kept.kept = partial(self._keep, setting)
        return kept

    def _keep(self, setting: _Setting, pool: KeptPool) -> None:
        if setting in self._free:
            ProcessPool.close(pool)
        else:
            self._free[setting] = pool

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Let the jobs of this process have these pools."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ProcessPool, "started", staticmethod(self.started))
            yield

    def close(self) -> None:
        """End all workers."""
        for pool in self._free.values():
            ProcessPool.close(pool)


def _environment() -> frozenset[tuple[str, str]]:
    names = {name for name in os.environ if name.startswith(environment_name("")) or name == "PYTHONPATH"}
    return frozenset((name, os.environ[name]) for name in names - APART)


__all__ = ["Pools"]
