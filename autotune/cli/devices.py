"""``autotune devices``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from autotune.cli.common import json_option, print_json
from autotune.cli.echo import echo

if TYPE_CHECKING:
    from autotune.target import Target
    from cost_models.calibrated import Calibration


@click.command(epilog="Example: autotune devices --calibrate")
@click.option(
    "--calibrate",
    is_flag=True,
    help="Measure this machine again, some seconds; it should have nothing else to do.",
)
@json_option
def command(calibrate: bool, as_json: bool) -> None:
    """List devices with cores, caches, memory and bandwidth, and this machine as measured for the cost model.

    The first `autotune tune` on a machine measures it. Measured numbers are kept beside the default database and
    change which schedules are the default ones.
    """
    from autotune.cli.calibration_lines import calibration_lines
    from autotune.cli.device_lines import device_table, device_values
    from autotune.runtime.hal.driver import absent, devices
    from autotune.target import Target
    from cost_models import calibrated

    target = Target.detect()
    if calibrate:
        _measure(target)
    found = calibrated.find(target)
    if as_json:
        machine = _data(target, found)
        print_json({"devices": list(map(device_values, devices())), "absent": absent(), "machine": machine})
        return
    for line in device_table(devices()):
        echo(line)
    for name, reason in absent().items():
        echo(f"no {name} device: {reason}")
    echo()
    for line in calibration_lines(target, found):
        echo(line)


def _measure(target: Target) -> None:
    from autotune.calibration.host import calibrate
    from autotune.errors import MeasureError
    from cost_models import calibrated

    try:
        calibrated.keep(target, calibrate())
    except OSError as error:
        raise MeasureError(f"cannot write {calibrated.path_of(target)}: {error.strerror}") from error


def _data(target: Target, found: Calibration | None) -> dict[str, Any]:
    from cost_models import calibrated

    return {
        "device": target.device,
        "target": repr(target),
        "key": target.key,
        "file": str(calibrated.path_of(target)),
        "calibration": None if found is None else found.to_json(),
    }


__all__ = ["command"]
