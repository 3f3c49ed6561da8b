"""Devices behind one interface: memory, recorded commands, queues, and timelines that order them across devices.

After the hardware abstraction layer of IREE. From the bottom: ``semaphore`` (timelines), ``buffer`` and ``allocator``
(memory of a device), ``executable`` (loaded code), ``command_buffer`` (what is to run, recorded and checked once),
``queue`` (when it runs), ``engine`` (the few functions that a driver writes for its devices), ``device`` (all of these
together), ``driver`` (which devices there are). ``recording`` makes commands of a model image. A driver is a folder
beside these files and a line in ``driver.DRIVERS``; ``tests/runtime/hal/conformance.py`` holds what all must do.
"""

from __future__ import annotations

from typing import Any

__all__ = ["devices", "open_device"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from autotune.runtime.hal import driver

        return getattr(driver, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
