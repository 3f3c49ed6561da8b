"""A worker process that answers JSON lines; it may hang or die at any request."""

from __future__ import annotations

import contextlib
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


def python_module(name: str) -> tuple[str, ...]:
    """The command that runs a module of this package by this Python."""
    return (sys.executable, "-m", name)


class Died(Exception):
    """The worker did not answer a request; the text says how it ended, ``timed_out`` whether we ended it."""

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


@dataclass
class _Live:
    """A running worker and its pipes; ``pending`` is what was read beyond the last line."""

    process: subprocess.Popen[bytes]
    requests: IO[bytes]
    answers: IO[bytes]
    stderr: IO[bytes]
    pending: bytes = b""

    def kill(self) -> None:
        self.process.kill()
        for pipe in (self.requests, self.answers, self.stderr):
            with contextlib.suppress(OSError):  # flushing into a dead process
                pipe.close()
        self.process.wait()

    def last_words(self) -> str:
        """The end of what it wrote to standard error."""
        self.stderr.seek(max(0, self.stderr.seek(0, os.SEEK_END) - 2000))
        return self.stderr.read().decode(errors="replace")


class WorkerProcess:
    """Starts a worker on first use, and again after it died.

    The worker has a process group of its own, so that Ctrl-C in a terminal reaches only us. ``name`` and
    ``error`` are for when no worker can be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        start_s: float = 120.0,
        *,
        name: str = "measuring worker",
        error: type[AutotuneError] = MeasureError,
    ) -> None:
        self.name = name
        self.error = error
        self._command = tuple(command)
        self._environment = dict(environment or {})
        self._start_s = start_s
        self._live: _Live | None = None
        self._calling = threading.Lock()
        self._closed = False
        self.starts = 0

    def call(self, request: Mapping[str, Any], timeout_s: float, phase: str) -> dict[str, Any]:
        """Send one request and wait for its answer.

        Raises Died when the worker ends or is killed after ``timeout_s`` seconds (``phase`` names
        what took too long), and ``error`` when no worker can be started at all.
        """
        with self._calling:
            return self._call(request, timeout_s, phase)

    def _call(self, request: Mapping[str, Any], timeout_s: float, phase: str) -> dict[str, Any]:
        live = self._live or self._start()
        try:
            live.requests.write(json.dumps(request).encode() + b"\n")
            live.requests.flush()
        except OSError:
            raise Died(self._reap(live)) from None
        answer = self._read(live, timeout_s)
        if answer is None:
            self.kill()
            raise Died(f"{phase} took longer than {timeout_s:.3g} s", timed_out=True)
        return answer

    def _start(self) -> _Live:
        if self._closed:
            raise self.error(f"the {self.name} is closed")
        stderr = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, **self._environment},
            process_group=0,
        )
        if process.stdin is None or process.stdout is None:
            raise self.error(f"the {self.name} has no pipes")
        self._live = live = _Live(process, process.stdin, process.stdout, stderr)
        self.starts += 1
        if self._closed:  # closed by another thread while the process was made
            self.kill()
            raise self.error(f"the {self.name} is closed")
        try:
            hello = self._read(live, self._start_s)
        except Died as death:
            raise self.error(f"cannot start the {self.name}: {death}") from death
        if hello is None:
            self.kill()
            raise self.error(f"the {self.name} did not get ready in {self._start_s:g} s")
        return live

    def _read(self, live: _Live, timeout_s: float) -> dict[str, Any] | None:
        """The next line, or None when time is up; raises Died at end of file."""
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(live.answers, selectors.EVENT_READ)
            while b"\n" not in live.pending:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return None
                chunk = os.read(live.answers.fileno(), 1 << 20)
                if not chunk:
                    raise Died(self._reap(live))
                live.pending += chunk
        line, live.pending = live.pending.split(b"\n", 1)
        try:
            answer = json.loads(line)
        except ValueError as error:
            self.kill()
            raise self.error(f"the {self.name} wrote no JSON: {line[:80]!r}") from error
        return dict(answer)

    def _reap(self, live: _Live) -> str:
        """How a process ended that died by itself, with its last words."""
        try:
            code: int | None = live.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = None
        words = live.last_words().strip().splitlines()[-1:]
        self.kill()
        how = signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
        return ": ".join([f"the worker died ({how})", *words])

    def kill(self) -> None:
        """End the process at once; the next call starts another."""
        live, self._live = self._live, None
        if live is not None:
            live.kill()

    def close(self) -> None:
        """End the process and refuse to start another; a call that waits in another thread ends too."""
        self._closed = True
        live = self._live
        if live is not None:
            live.process.kill()  # its caller reads the end of its answers: closing the pipe would wake nobody
        with self._calling:
            self.kill()


__all__ = ["Died", "WorkerProcess", "python_module"]
