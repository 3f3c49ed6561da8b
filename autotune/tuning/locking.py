"""Making the lock of a model, and what may be given beside one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from autotune.database.goal import MAX_SLOWDOWN
from autotune.errors import UsageError
from autotune.passes.preference import TOLERANCE

if TYPE_CHECKING:
    from autotune.compiler.dividing import Model
    from autotune.compiler.driver import Compilation, CompileOptions
    from autotune.compiler.lock import Lock
    from autotune.database.opening import DatabaseLike

_UNSAID: Mapping[str, Any] = {
    "database": None,
    "require_hit": False,
    "target": "host",
    "threads": None,
    "tolerance": TOLERANCE,
    "shapes": None,
    "objective": "latency",
    "max_slowdown": MAX_SLOWDOWN,
    "finite": False,
}
"""Arguments of a compilation that a lock has in itself, as they are where nothing is said of them."""


def check_alone(lock: str | Path, given: Mapping[str, Any]) -> None:
    """Raise UsageError for arguments that say what a lock says itself."""
    names = [name for name, value in given.items() if value != _UNSAID[name]]
    if names:
        raise UsageError(
            f"{', '.join(names)} given together with the lock {lock}\n"
            "  which pins what these choose: leave them out, or make another lock with them"
        )


def lock(
    model: Model,
    path: str | Path,
    *,
    database: DatabaseLike | None = None,
    require_hit: bool = False,
    **options: Unpack[CompileOptions],
) -> tuple[Lock, Compilation, str | None]:
    """Write the lock of a model: the options and schedules that :func:`autotune.compile` with these arguments uses.

    The lock, the compilation that it is of, and the database that the schedules came from, if there is one.
    Raises LockError where the file cannot be written, and what :func:`autotune.compile` raises.
    """
    from autotune.compiler.locked import lock_of
    from autotune.tuning.api import compile_with_database

    done, where = compile_with_database(model, database=database, require_hit=require_hit, **options)
    made = lock_of(done)
    made.write(Path(path))
    return made, done, where


__all__ = ["check_alone", "lock"]
