"""``autotune devices``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from autotune.cli.options import json_option, print_json

if TYPE_CHECKING:
    from autotune.target import Target
    from cost_models.calibrated import Calibration

_ROWS = (
    ("clock under multiply-adds", "hertz", 1e-9, "GHz"),
    ("multiply-adds", "arithmetic_ports", 1.0, "vectors a cycle"),
    ("latency of one", "latency", 1.0, "cycles"),
    ("loads", "load_ports", 1.0, "vectors a cycle"),
    ("loads of single elements", "scalar_load_ports", 1.0, "a cycle"),
    ("stores", "store_ports", 1.0, "vectors a cycle"),
    ("instructions", "issue_width", 1.0, "a cycle"),
    ("load across cache lines", "line_split_cycles", 1.0, "cycles more"),
    ("load from a forgotten page", "page_cycles", 1.0, "cycles more"),
    ("line that others evict", "conflict_cycles", 1.0, "cycles more"),
    ("sum of a vector's lanes", "fold_cycles", 1.0, "cycles"),
    ("from the L2 cache", "l2_bytes_per_cycle", 1.0, "bytes a cycle, one core"),
    ("from the L3 cache", "l3_bytes_per_cycle", 1.0, "bytes a cycle, one core"),
    ("from memory", "core_stream", 1.0, "bytes a cycle, one core"),
    ("from memory", "all_streams", 1.0, "bytes a cycle, all cores"),
    ("short piece of a row", "short_run", 1.0, "bytes more"),
    ("byte of pieces pages apart", "scattered", 1.0, "bytes more"),
    ("the same in the L3 cache", "l3_lost", 1.0, "of that"),
    ("writing a byte", "write_cost", 1.0, "times as long as reading one"),
    ("latency of the L2 cache", "l2_latency", 1.0, "cycles"),
    ("latency of the L3 cache", "l3_latency", 1.0, "cycles"),
    ("latency of memory", "memory_latency", 1.0, "cycles"),
    ("the same in small pages", "huge_page_gain", 1.0, "times as long"),
    ("barrier between kernels", "barrier_seconds", 1e6, "µs"),
    ("tile", "tile_seconds", 1e9, "ns"),
    ("waking all workers", "fork_seconds", 1e6, "µs"),
)
"""What is shown of a calibration: name, field, factor to the unit."""


@click.command(epilog="Example: autotune devices --calibrate")
@click.option(
    "--calibrate",
    is_flag=True,
    help="Measure this machine again, some seconds; it should have nothing else to do.",
)
@json_option
def command(calibrate: bool, as_json: bool) -> None:
    """The devices there are, with cores, caches, memory and bandwidth, and this machine as measured for the cost model.

    The first `autotune tune` on a machine measures it. Measured numbers are kept beside the default database and
    change which schedules are the default ones.
    """
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
        click.echo(line)
    for name, reason in absent().items():
        click.echo(f"no {name} device: {reason}")
    click.echo()
    _show(target, found)


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


def _show(target: Target, found: Calibration | None) -> None:
    import time

    from cost_models.machine import Machine

    click.echo(repr(target).strip("<>"))
    if found is None:
        click.echo(f"not measured: the table says of {target.cpu} (autotune devices --calibrate measures)")
    else:
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(found.created))
        click.echo(f"measured {when} in {found.seconds:.1f} s")
    machine = Machine.of(target)
    for label, name, factor, unit in _ROWS:
        value = found.values.get(name) if found else getattr(machine, name, None)
        if value is None:
            continue
        note = "  (not steady: the table's is used)" if found and name not in found.trusted else ""
        click.echo(f"  {label:<28} {value * factor:>8.4g} {unit}{note}")


__all__ = ["command"]
