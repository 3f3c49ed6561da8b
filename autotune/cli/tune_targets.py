"""``autotune tune --fleet`` for several targets: a searching process for each, on the seats of its target."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TextIO, cast

from autotune.cli.echo import echo
from autotune.errors import AutotuneError, MeasureError
from autotune.tuning.jobs.budget import Budget

_FAILED = 1


@dataclass(frozen=True)
class TargetsCall:
    """The call of ``tune`` that is made for each target, and its display."""

    models: Sequence[Any]
    budget: Budget
    search: Mapping[str, Any]
    options: Mapping[str, Any]
    as_json: bool
    quiet: bool
    verbose: bool


def tune_for_targets(call: TargetsCall, targets: Sequence[str]) -> bool:
    """Tune for all targets at a time, each with the whole budget; return whether one was stopped early.

    They share the database: schedules that were found for one are tried on the others, timings stay with their
    target. Raises MeasureError where one of them ends with an error.
    """
    spawn = multiprocessing.get_context("spawn")
    each = {target: spawn.Process(target=_tune, args=(call, target)) for target in targets}
    for process in each.values():
        process.start()
    stopped = _joined(list(each.values()))
    failed = [target for target, process in each.items() if process.exitcode]
    if failed:
        raise MeasureError(f"tuning for {', '.join(failed)} ended with an error, which stands above")
    return stopped


def _joined(processes: Sequence[Any]) -> bool:
    """Wait for processes. A terminal interrupts them by itself; other signals are passed on."""
    try:
        for process in processes:
            process.join()
    except KeyboardInterrupt as interrupt:
        for process in processes if interrupt.args else ():
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGINT)
        for process in processes:
            process.join()
        return True
    return False


def _tune(call: TargetsCall, target: str) -> None:
    """Tune for one target, in a process of its own."""
    from autotune.tuning.api import tune
    from autotune.tuning.report.progress import display

    out = sys.stdout if call.as_json else cast(TextIO, _Named(sys.stdout, target))
    shown = display(out, as_json=call.as_json, quiet=call.quiet, verbose=call.verbose)
    try:
        tune(
            call.models,
            budget=call.budget,
            progress=shown,
            **call.search,
            **{**call.options, "target": target},
        )
    except AutotuneError as error:
        echo(f"{target}: {error}", err=True)
        sys.exit(_FAILED)


class _Named(io.TextIOBase):
    """A stream whose lines begin with a name."""

    def __init__(self, out: TextIO, name: str) -> None:
        self._out, self._name, self._line = out, name, ""

    def write(self, text: str) -> int:
        """Write the lines that are complete."""
        *lines, self._line = (self._line + text).split("\n")
        self._out.writelines(f"{self._name}: {line}\n" for line in lines)
        self._out.flush()
        return len(text)


__all__ = ["TargetsCall", "tune_for_targets"]
