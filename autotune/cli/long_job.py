"""Robustness of a command of hours: any signal may end it, and nobody may read its output any more."""

from __future__ import annotations

import errno
import io
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from types import FrameType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

P = ParamSpec("P")
R = TypeVar("R")

_SIGNALS = ("SIGTERM", "SIGHUP")
_AGAIN_S = 5.0
"""A terminal that is closed, and a service that is stopped, send several signals within moments."""
_NOBODY_READS = (errno.EPIPE, errno.EIO, errno.ENXIO)
"""Of writing into a pipe without a reader, and to a terminal that is gone."""


def long_job(command: Callable[P, R]) -> Callable[P, R]:
    """Have a command end by SIGTERM and SIGHUP as by Ctrl-C, and go on when nobody reads its output any more."""

    @wraps(command)
    def borne(*arguments: P.args, **options: P.kwargs) -> R:
        with _ended_by_signals(), _lasting_output():
            return command(*arguments, **options)

    return borne


class _Interrupt:
    """A handler that raises KeyboardInterrupt, once for signals that follow each other at once."""

    def __init__(self) -> None:
        self._last = -_AGAIN_S

    def __call__(self, number: int, frame: FrameType | None) -> None:
        begin, self._last = self._last, time.monotonic()
        if self._last - begin >= _AGAIN_S:
            raise KeyboardInterrupt(signal.Signals(number).name)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Interrupt this process by the signals that end jobs; one that is ignored, as under nohup, stays so."""
    with ExitStack() as undo:
        if threading.current_thread() is threading.main_thread():
            interrupt = _Interrupt()
            for number in (getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)):
                if (before := signal.getsignal(number)) is not signal.SIG_IGN:
                    signal.signal(number, interrupt)
                    undo.callback(signal.signal, number, before)
        yield


class _Lasting(io.FileIO):
    """A stream that drops what nobody reads any more; ``lost`` is called when that begins."""

    def __init__(self, descriptor: int, lost: Callable[[], None]) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._tell_lost: Callable[[], None] | None = lost

    def write(self, data: Buffer) -> int:
        """Write, and drop what nobody reads any more."""
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in _NOBODY_READS:
                raise
        tell, self._tell_lost = self._tell_lost, None
        if tell is not None:
            tell()
        return memoryview(data).nbytes


@contextmanager
def _lasting_output() -> Iterator[None]:
    """Have standard output and error last; standard error hears that nobody reads the output."""
    with ExitStack() as undo:
        undo.enter_context(_lasting("stderr", lambda: None))
        undo.enter_context(_lasting("stdout", _say_lost))
        yield


def _say_lost() -> None:
    text = "nobody reads the output any more; the job goes on, and what it measures is in its database"
    print(text, file=sys.stderr, flush=True)


@contextmanager
def _lasting(name: str, lost: Callable[[], None]) -> Iterator[None]:
    before = getattr(sys, name)
    descriptor = _descriptor(before)
    if descriptor is None:
        yield
        return
    before.flush()
    made = io.TextIOWrapper(
        io.BufferedWriter(_Lasting(descriptor, lost)),
        before.encoding,
        before.errors,
        line_buffering=before.line_buffering,
    )
    setattr(sys, name, made)
    try:
        yield
    finally:
        setattr(sys, name, before)
        made.flush()


def _descriptor(stream: object) -> int | None:
    """Return the number of a stream's file; None for one that is no file, as in a notebook."""
    if not isinstance(stream, io.TextIOWrapper):
        return None
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None


__all__ = ["long_job"]
