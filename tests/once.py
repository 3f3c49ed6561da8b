"""Folders and machine code that several test processes need, made by the first of them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from autotune.codegen.llvm import objects
from autotune.target import Target


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


def compile_once(folder: Path) -> None:
    """Keep LLVM's object code in a folder by its whole input: many tests compile the same small models.

    Code that differs in a letter is compiled anew, and processes that a test starts compile for themselves.
    """
    compiled = objects._object

    def kept(ir: str, target: Target) -> bytes:
        path = folder / hashlib.sha256(f"{target.to_json()}\n{ir}".encode()).hexdigest()
        with suppress(FileNotFoundError):
            return path.read_bytes()
        code = compiled(ir, target)
        scratch = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        scratch.write_bytes(code)
        scratch.replace(path)
        return code

    objects._object = kept


__all__ = ["compile_once", "made_once"]
