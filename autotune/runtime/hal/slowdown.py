"""Devices that are made slower, for tests of what is chosen by how fast they are."""

from __future__ import annotations

import time
from collections.abc import Callable

from autotune.errors import UsageError
from autotune.settings import current, environment_name


def slowdown_of(name: str) -> float:
    """Return the factor by which a device is slowed, by the setting for tests. Raises UsageError for a
    wrong setting."""
    setting = current().slowdown
    for entry in filter(None, setting.split(",")):
        device, _, text = entry.rpartition("=")
        try:
            factor = float(text)
        except ValueError:
            factor = 0.0
        if not device or not 1.0 <= factor <= 1000.0:
            raise UsageError(
                f"{environment_name('slowdown')}={setting!r}: {entry!r} is not DEVICE=FACTOR, a factor from 1 to 1000"
            )
        if device == name:
            return factor
    return 1.0


def described(description: str, name: str) -> str:
    """Return a device's description, which says that it is slowed: what was measured of it is not of the
    device as it is."""
    factor = slowdown_of(name)
    return description if factor == 1.0 else f"{description}, slowed {factor:g} times for a test"


def slowed(factor: float, run: Callable[[], bool]) -> bool:
    """Run, and rest until it has taken ``factor`` times as long."""
    if factor == 1.0:
        return run()
    begin = time.perf_counter()
    complete = run()
    time.sleep((factor - 1.0) * (time.perf_counter() - begin))
    return complete


__all__ = ["described", "slowdown_of", "slowed"]
