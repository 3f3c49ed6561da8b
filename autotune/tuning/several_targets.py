"""Compiling one model for several targets, as one artifact holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from autotune.errors import PlacementError, UsageError
from autotune.runtime.variants import label
from autotune.target import Target
from autotune.tuning.accuracy import checked
from autotune.tuning.api import compile_with_database
from autotune.tuning.placing import where_it_runs

if TYPE_CHECKING:
    from autotune.compiler.dividing import Model
    from autotune.compiler.driver import CompileOptions
    from autotune.compiler.explain import Compilation
    from autotune.database.opening import DatabaseLike


def compile_for_targets(
    model: Model,
    targets: Sequence[str],
    *,
    database: DatabaseLike | None,
    lock: str | Path | None = None,
    placement: Mapping[str, str] | None = None,
    require_hit: bool = False,
    verify: bool = False,
    **options: Unpack[CompileOptions],
) -> tuple[list[Compilation], str | None]:
    """Return the model for each target, and where its schedules come from; ``target`` of the options is of no account.

    Raises UsageError for targets that an artifact could not tell apart, for a lock and for devices that are named, and
    what :func:`autotune.compiler.driver.compile_in_detail` raises.
    """
    check_targets(targets, options["threads"])
    if lock is not None:
        raise UsageError(f"the lock {lock} pins code for one target: leave out the others")
    if where_it_runs(model, options["shapes"], placement) is not None:
        raise PlacementError(
            "a model on several devices is compiled for those that are named for it: leave out the targets"
        )
    found, where = list["Compilation"](), None
    for target in targets:
        options["target"] = target
        done, where = compile_with_database(
            model, database=database, require_hit=require_hit, verify=verify, **options
        )
        found.append(checked(done, model))
    return found, where


def check_targets(targets: Sequence[str], threads: int | None) -> None:
    """Raise UsageError for two targets whose code is called the same."""
    known: dict[str, str] = {}
    for target in targets:
        name = label(Target.parse(target, threads))
        if name in known:
            raise UsageError(
                f"the targets {known[name]} and {target} are both {name}: one artifact holds it once"
            )
        known[name] = target


__all__ = ["check_targets", "compile_for_targets"]
