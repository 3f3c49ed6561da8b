"""Jobs of a machine measure one at a time, and each hears of the one that it waits for.

Two files beside each other, of which the system's own locks (``flock``) count and not that they are there: who has the
lock of the first measures, who has that of the second is next. Who measures offers the machine between its turns, and
gets in line behind the one that is next. A process that is killed has no locks any more.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from autotune import settings
from autotune.workers.cores import CORES

_SHARED = Path("/tmp")
_NAMES = ("autotune-measures.lock", "autotune-next.lock")
_LOOK_S = 0.05
_SILENT_S, _UNKNOWN = 2.0, "of unknown name"
"""One that has the lock for so long without writing who it is."""
_LONGEST = 80
"""Letters of what another job says of itself."""
_MINE = threading.local()


class Measuring:
    """The machine for as long as this is entered; ``what`` is what others hear, ``say`` what this one waits for.

    Entered again in the same thread it waits for nobody. Where the system has no such lock it says so and goes on.
    """

    def __init__(self, what: str, say: Callable[[str], None]) -> None:
        self.say = say
        self._what = what
        self._said = ""
        self._files: tuple[int, int] | None = None

    def __enter__(self) -> Self:
        if getattr(_MINE, "held", False):
            return self
        try:
            self._files = _opened()
            self._take()
        except OSError as error:
            self._close()
            self.say(
                f"jobs beside this one may disturb it: no lock of this machine ({error.strerror or error})"
            )
        except BaseException:  # Ctrl-C while it waits
            self._close()
            raise
        else:
            _MINE.held = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._files is not None:
            _MINE.held = False
            self._close()

    def offer(self) -> None:
        """Let the job that is next have the machine, if there is one, and wait until it is our turn again."""
        if self._files is None:
            return
        measures, following = self._files
        if _locked(following):
            _unlock(following)
            return
        with CORES.measure():  # builders that work ahead would be measured by the other job
            os.ftruncate(measures, 0)
            _unlock(measures)
            self._take()

    def _take(self) -> None:
        assert self._files is not None
        measures, following = self._files
        self._wait(following)
        self._wait(measures)
        _unlock(following)
        text = json.dumps({"pid": os.getpid(), "what": self._what}).encode()
        os.ftruncate(measures, 0)
        os.pwrite(measures, text, 0)

    def _wait(self, file: int) -> None:
        assert self._files is not None
        begin = time.monotonic()
        while not _locked(file):
            other = _described(self._files[0]) or (_UNKNOWN if time.monotonic() - begin > _SILENT_S else "")
            if other and other != self._said:
                self._said = other
                self.say(f"another job measures on this machine ({other}): waiting for its turn to end")
            time.sleep(_LOOK_S)

    def _close(self) -> None:
        files, self._files = self._files, None
        for file in files or ():
            os.close(file)


def _opened() -> tuple[int, int]:
    """Return both files; raises OSError."""
    named = settings.current().locks
    folder = Path(named) if named else _SHARED if _SHARED.is_dir() else Path(tempfile.gettempdir())
    first = _open(folder / _NAMES[0])
    try:
        return first, _open(folder / _NAMES[1])
    except BaseException:
        os.close(first)
        raise


def _open(path: Path) -> int:
    """Return a file that all users may lock. In a shared folder the system may refuse to make what
    another user has made."""
    flags = os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
    for _ in range(2):
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            try:
                made = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
            except FileExistsError:
                continue  # another job was faster
            os.fchmod(made, 0o666)
            return made
    return os.open(path, flags)


def _locked(file: int) -> bool:
    """Take the lock of a file; False where another has it."""
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unlock(file: int) -> None:
    import fcntl

    fcntl.flock(file, fcntl.LOCK_UN)


def _described(file: int) -> str:
    """Return the holder of the lock, as it has written; empty between two of them. Any user may write there."""
    try:
        found = json.loads(os.pread(file, 4096, 0))
        pid, what = int(found["pid"]), str(found["what"])
    except (OSError, ValueError, TypeError, KeyError):
        return ""
    return f"process {pid}: {''.join(c if c.isprintable() else '?' for c in what[:_LONGEST])}"


__all__ = ["Measuring"]
