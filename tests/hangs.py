"""Time of worker processes that passes only while one of them hangs: nothing else is late on a busy machine.

A worker hangs by :func:`hang`, its parent counts time by :func:`only_hangs_take_time`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

_FOLDER = "TESTS_HANGS"


def hang(looks: int = 10**9) -> None:
    """Do nothing until whoever counts the time has looked so often, by default for ever."""
    here = Path(os.environ[_FOLDER], str(os.getpid()))
    here.touch()
    while here.stat().st_size < looks:
        time.sleep(0.01)
    here.unlink()


class _Clock:
    """A second passes at each look while a process hangs, which hears of the look."""

    def __init__(self, hanging: Path) -> None:
        self._hanging, self._now = hanging, 0.0

    def monotonic(self) -> float:
        self._now += max(map(self._tell, self._hanging.iterdir()), default=False)
        return self._now

    def _tell(self, hanging: Path) -> bool:
        """Let a process know of this look, and return whether it is still there."""
        with contextlib.suppress(FileNotFoundError), open(hanging, "r+b") as file:
            file.seek(0, os.SEEK_END)
            file.write(b".")
        return os.path.exists(f"/proc/{hanging.name}")


@contextlib.contextmanager
def only_hangs_take_time(folder: Path) -> Iterator[None]:
    """Count the time of workers so within the block; they are started within it, too."""
    import pytest  # processes that hang need neither

    from autotune.workers import process

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(_FOLDER, str(folder))
        patch.setattr(process, "time", SimpleNamespace(monotonic=_Clock(folder).monotonic))
        yield


__all__ = ["hang", "only_hangs_take_time"]
