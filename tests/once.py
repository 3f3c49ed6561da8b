"""Folders that several test processes need, made by the first of them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder of that name that ``make`` has filled, in this process or in another worker of this run."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with open(f"{folder}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (done := folder / "done").exists():
            folder.mkdir(exist_ok=True)
            make(folder)
            done.touch()
    return folder


__all__ = ["made_once"]
