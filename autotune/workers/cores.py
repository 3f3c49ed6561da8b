"""The cores of this machine: either processes work on them, or one measures and nothing else runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Cores:
    """Who has the cores. What measures waits for the work in progress, and holds up the work that comes."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._working = 0
        self._measuring = 0

    @property
    def wanted(self) -> bool:
        """Return whether somebody measures, or waits to."""
        return self._measuring > 0

    @contextmanager
    def work(self) -> Iterator[None]:
        """Work beside others, as soon as nothing is measured or waits to be."""
        with self._changed:
            self._changed.wait_for(lambda: not self._measuring)
            self._working += 1
        try:
            yield
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify_all()

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Measure while nobody works."""
        with self._changed:
            self._measuring += 1
        try:
            with self._changed:
                self._changed.wait_for(lambda: not self._working)
            yield
        finally:
            with self._changed:
                self._measuring -= 1
                self._changed.notify_all()


CORES = Cores()
"""Those of this process and of its workers; other jobs are excluded by :mod:`autotune.machine_lock`."""

__all__ = ["CORES", "Cores"]
