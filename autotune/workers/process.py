"""A worker process that answers JSON lines; it may hang or die at any request."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from autotune.errors import AutotuneError, MeasureError
from autotune.workers.lifetime import PARENT
from autotune.workers.memory import Appetite, killed_for_memory

_LINES = 12
"""So many lines of what a worker wrote last go into an error."""
PAUSES_S = (0.5, 2.0, 8.0)
"""Before each further attempt to start a worker that was killed while it started, or that the system refused."""
_ABOUT_THE_COMMAND = (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR, errno.E2BIG)
"""Of these refusals none passes."""
_LOOK_S = 0.1
"""Seconds between two looks at the memory that a worker holds which works at a request."""
_STANDSTILL_S = 1.0
"""Seconds between two looks beyond which this process itself stood still."""


def python_module(name: str) -> tuple[str, ...]:
    """Return the command that runs a module of this package as a worker, by this Python."""
    return (sys.executable, "-m", "autotune.workers.launch", name)


class Died(Exception):
    """The worker did not answer a request; the text says how it ended.

    ``timed_out``: we ended it, because it hung; ``out_of_memory``: it took all that it may take; ``killed``: by a
    signal that was not ours; ``stderr``: the last lines that it wrote there.
    """

    def __init__(
        self,
        message: str,
        *,
        timed_out: bool = False,
        out_of_memory: bool = False,
        killed: bool = False,
        stderr: str = "",
    ) -> None:
        super().__init__(message)
        self.stderr = stderr
        self.timed_out = timed_out
        self.out_of_memory = out_of_memory
        self.killed = killed


class _Refused(Exception):
    """The system made no process; ``passes`` where it may make one later."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror or str(error))
        self.passes = error.errno not in _ABOUT_THE_COMMAND


class _Patience:
    """So many seconds to wait, without those in which this process stood still: stopped, frozen with its container, or
    its machine asleep. Its workers mostly stood still as well."""

    def __init__(self, seconds: float) -> None:
        self._left, self._seen = seconds, time.monotonic()

    def left(self) -> float:
        """Return the seconds that are left; to be asked at each look."""
        now = time.monotonic()
        self._left -= min(now - self._seen, _STANDSTILL_S)
        self._seen = now
        return self._left


@dataclass
class _Live:
    """A running worker and its pipes; ``kills`` is how many processes the system had killed for want of memory
    before it, ``pending`` what was read beyond the last line, ``appetite`` what the request in progress takes."""

    process: subprocess.Popen[bytes]
    requests: IO[bytes]
    answers: IO[bytes]
    stderr: IO[bytes]
    kills: int
    pending: bytes = b""
    appetite: Appetite | None = None

    def kill(self) -> None:
        self.process.kill()
        for pipe in (self.requests, self.answers, self.stderr):
            with contextlib.suppress(OSError):  # flushing into a dead process
                pipe.close()
        self.process.wait()

    def last_words(self) -> str:
        """Return the end of what it wrote to standard error."""
        self.stderr.seek(max(0, self.stderr.seek(0, os.SEEK_END) - 2000))
        return "\n".join(self.stderr.read().decode(errors="replace").strip().splitlines()[-_LINES:])


class WorkerProcess:
    """Starts a worker on first use, and again after it died.

    It has started when it has answered ``greeting``, a request that loads what it needs: that is never part
    of the time of a request after it. One that is killed while it starts, or that the system has no room for, is
    started again after each of the ``pauses`` (seconds). The worker has a process group of its own, so that Ctrl-C in a
    terminal reaches only us. ``name`` and ``error`` are for when no worker can be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        start_s: float = 120.0,
        *,
        greeting: Mapping[str, Any] | None = None,
        name: str = "measuring worker",
        error: type[AutotuneError] = MeasureError,
        pauses: Sequence[float] = PAUSES_S,
    ) -> None:
        self.name = name
        self.error = error
        self._command = tuple(command)
        self._environment = dict(environment or {})
        self._greeting = greeting
        self._start_s = start_s
        self._live: _Live | None = None
        self._calling = threading.Lock()
        self._pauses = tuple(pauses)
        self._closed = threading.Event()
        self.starts = 0

    def start(self) -> None:
        """Start the worker now, unless it runs; raises ``error`` when it can't be started."""
        with self._calling:
            if self._live is None:
                self._start()

    def call(
        self, request: Mapping[str, Any], timeout_s: float, phase: str, may_take: int | None = None
    ) -> dict[str, Any]:
        """Send one request and wait for its answer; for it the worker may take ``may_take`` bytes more.

        Raises Died when the worker ends or is killed after ``timeout_s`` seconds (``phase`` names
        what took too long), and ``error`` when no worker can be started at all.
        """
        with self._calling:
            return self._ask(self._live or self._start(), request, timeout_s, phase, may_take)

    def _ask(
        self,
        live: _Live,
        request: Mapping[str, Any],
        timeout_s: float,
        phase: str,
        may_take: int | None = None,
    ) -> dict[str, Any]:
        live.appetite = appetite = Appetite(live.process.pid, may_take, live.kills)
        if may_take is not None:
            request = {**request, "may_take": may_take}
        try:
            live.requests.write(json.dumps(request).encode() + b"\n")
            live.requests.flush()
        except OSError:
            raise self._reap(live) from None
        answer = self._read(live, timeout_s)
        if answer is None:
            words = live.last_words()
            self.kill()
            text = f"{phase} took longer than {timeout_s:.3g} s"
            if why := appetite.of_hanging():
                raise Died(f"out of memory: {why} ({text})", out_of_memory=True, stderr=words)
            raise Died(text, timed_out=True, stderr=words)
        return answer

    def _start(self) -> _Live:
        """Return a worker that is ready, at the first attempt or after a pause; raises ``error``."""
        begin, pauses = time.monotonic(), iter(self._pauses)
        while True:
            try:
                return self._attempt()
            except (Died, _Refused) as failure:
                passes = failure.passes if isinstance(failure, _Refused) else failure.killed
                pause = next(pauses, None) if passes else None
                if pause is None:
                    raise self._given_up(failure, time.monotonic() - begin, passes=passes) from failure
                self._closed.wait(pause)

    def _given_up(self, failure: Exception, seconds: float, *, passes: bool) -> AutotuneError:
        text = f"cannot start the {self.name}: {failure}"
        if not passes or not self._pauses:
            return self.error(text)
        return self.error(
            f"{text}\n  {len(self._pauses) + 1} attempts failed in {seconds:.1f} s: see whether memory or processes "
            "run out on this machine, or who kills them; then the same command goes on from here"
        )

    def _attempt(self) -> _Live:
        """Start a process and have it get ready; raises Died, _Refused, and ``error`` when this is closed."""
        live = self._live = self._process()
        self.starts += 1
        if self._closed.is_set():  # closed by another thread while the process was made
            self.kill()
            raise self._too_late()
        hello = self._read(live, self._start_s)
        if hello is not None and self._greeting is not None:
            hello = self._ask(live, self._greeting, self._start_s, "getting ready")
        if hello is None:
            self.kill()
            raise self.error(f"the {self.name} did not get ready in {self._start_s:g} s")
        return live

    def _process(self) -> _Live:
        if self._closed.is_set():
            raise self._too_late()
        kills = killed_for_memory()
        with contextlib.ExitStack() as undo:
            try:
                stderr = undo.enter_context(tempfile.TemporaryFile())
                process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    env={**os.environ, **self._environment, PARENT: str(os.getpid())},
                    process_group=0,
                )
            except OSError as error:
                raise _Refused(error) from error
            undo.pop_all()  # the file lives as long as the process
        if process.stdin is None or process.stdout is None:
            raise self.error(f"the {self.name} has no pipes")
        return _Live(process, process.stdin, process.stdout, stderr, kills)

    def _too_late(self) -> AutotuneError:
        return self.error(f"the {self.name} is closed")

    def _read(self, live: _Live, timeout_s: float) -> dict[str, Any] | None:
        """Return the next line, or None when time is up; raises Died at end of file."""
        patience = _Patience(timeout_s)
        with selectors.DefaultSelector() as selector:
            selector.register(live.answers, selectors.EVENT_READ)
            while b"\n" not in live.pending:
                left = patience.left()
                if not selector.select(max(0.0, min(left, _LOOK_S))):
                    if left <= _LOOK_S:
                        return None
                    if live.appetite is not None:
                        live.appetite.look()
                    continue
                chunk = os.read(live.answers.fileno(), 1 << 20)
                if not chunk:
                    raise self._reap(live)
                live.pending += chunk
        line, live.pending = live.pending.split(b"\n", 1)
        try:
            answer = json.loads(line)
        except ValueError as error:
            self.kill()
            raise self.error(f"the {self.name} wrote no JSON: {line[:80]!r}") from error
        return dict(answer)

    def _reap(self, live: _Live) -> Died:
        """Return the end of a process that died by itself, with its last words."""
        try:
            code: int | None = live.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = None
        words = live.last_words()
        self.kill()
        how = signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
        text = ": ".join([f"the worker died ({how})", *words.splitlines()[-1:]])
        killed = code is not None and code < 0
        if live.appetite is not None and (why := live.appetite.of_death(killed=code == -signal.SIGKILL)):
            return Died(f"out of memory: {why}; {text}", out_of_memory=True, killed=killed, stderr=words)
        return Died(text, killed=killed, stderr=words)

    def kill(self) -> None:
        """End the process at once; the next call starts another."""
        live, self._live = self._live, None
        if live is not None:
            live.kill()

    def interrupt(self) -> None:
        """End the process, and a call that waits for it in another thread; the next call starts another."""
        live = self._live
        if live is not None:
            live.process.kill()  # its caller reads the end of its answers: closing the pipe would wake nobody
        with self._calling:
            self.kill()

    def close(self) -> None:
        """End the process as :meth:`interrupt` does, and refuse to start another."""
        self._closed.set()
        self.interrupt()


__all__ = ["Died", "WorkerProcess", "python_module"]
