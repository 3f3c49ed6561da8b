"""Errors that are raised again, by everyone who waits for what failed: without holding what they were raised beside."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from typing import TypeVar

from autotune.errors import AutotuneError

_LOG = logging.getLogger("autotune.runtime.hal")
_Error = TypeVar("_Error", bound=BaseException)


def again(error: _Error) -> _Error:
    """Return a copy to raise: an error that is raised several times collects the frames of all who did,
    and keeps them."""
    try:
        copied = copy.copy(error)
    except Exception:  # noqa: BLE001 - the constructor of somebody else's error
        return error
    copied.__cause__ = error.__cause__
    return copied.with_traceback(error.__traceback__)


def without_frames(error: _Error) -> _Error:
    """Return the same error without its tracebacks, whose frames would keep buffers from being freed:
    they go to the log."""
    expected = all(isinstance(link, AutotuneError) for link in _links(error))
    _LOG.log(logging.DEBUG if expected else logging.ERROR, "%s", error, exc_info=error)
    for link in _links(error):
        link.__traceback__ = None
    return error


def _links(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that it comes from."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or link.__context__


__all__ = ["again", "without_frames"]
