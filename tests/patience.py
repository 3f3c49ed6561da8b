"""Waiting for what another thread or process does: no test depends on the time that it takes."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

STEP_S = 0.001
PATIENCE_S = 300.0
"""Seconds after which nothing is expected any more: a test that hangs must end."""


def wait_until(happened: Callable[[], object], what: str, step_s: float = STEP_S) -> None:
    """Return as soon as something has happened; ``happened`` may take a part in it."""
    for _ in range(round(PATIENCE_S / step_s)):
        if happened():
            return
        time.sleep(step_s)
    pytest.fail(f"{what}: not after {PATIENCE_S:g} s and more")


__all__ = ["PATIENCE_S", "wait_until"]
