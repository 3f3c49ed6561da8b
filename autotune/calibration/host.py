"""This machine measured once, at the first job on it, and kept for every process that comes after."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from autotune import settings
from autotune.calibration import core, memory, tiles, workers
from autotune.calibration.probe import Probe, Times
from autotune.errors import MeasureError
from autotune.machine_lock import Measuring
from autotune.target import Target
from cost_models import analytic, calibrated
from cost_models.calibrated import Calibration

_LOCK = ".measuring"


def calibrate() -> Calibration:
    """Measure this machine: some seconds, in which it should have nothing else to do.

    Raises MeasureError where it counts as another processor, or is too busy.
    """
    begin = time.monotonic()
    target = Target.detect()
    if settings.current().host:
        raise MeasureError(f"{settings.environment_name('host')} says that it counts as {target.cpu}")
    probe = Probe(target)
    hertz, ticks = core.clock(probe)
    found: dict[str, tuple[float, Times]] = {"hertz": (hertz, ticks)}
    found |= core.measure(probe, hertz)
    found |= tiles.measure(probe, hertz)
    found |= memory.measure(probe, hertz)
    found |= workers.measure(probe)
    if not ticks.steady:
        raise MeasureError("others keep it too busy")
    disturbed = tuple(name for name, (_, reading) in found.items() if not reading.steady)
    values = {name: value for name, (value, _) in found.items()}
    return Calibration(values, disturbed, time.time(), time.monotonic() - begin)


def ensure(target: Target, say: Callable[[str], None]) -> None:
    """Measure this machine if a job for ``target`` is the first on it; ``say`` gets a line on what is done.

    Where it cannot be measured or kept, the table of processors is used, and the line says why.
    """
    asked = settings.current()
    if asked.host or asked.machine or target != Target.detect(target.threads) or calibrated.find(target):
        return
    path = calibrated.path_of(target)
    try:
        with _alone(path.parent):
            if calibrated.find(target, fresh=True) is None:
                say("measuring this machine, once: some seconds")
                with Measuring("measure the machine for the cost model", say):
                    calibrated.keep(target, calibrate())
                analytic.forget()
    except OSError as error:
        say(f"this machine is not measured, as {path.parent} cannot be written: {error.strerror}")
    except MeasureError as error:
        say(f"this machine is not measured: {error}")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Exclude other processes: their measurements would disturb, and their result is as good. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / _LOCK, "w", encoding="utf-8") as lock:
        with suppress(ImportError):
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


__all__ = ["calibrate", "ensure"]
