"""``python -m results.bench requests``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from autotune.cli import options_bench as shared
from autotune.cli.options_peers import with_onnxruntime
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.bench.systems import System

ABOUT = (
    "A model that clients ask who keep several requests on their way, beside ONNX Runtime with as many threads and "
    "with one: requests per second, latency as a client sees it, processor time of the whole process, answers that "
    "differ from those of the same input when nothing else ran, and memory. Systems take turns, each in a process of "
    "its own."
)
_MODELS = ("tiny_cnn", "mlp", "encoder", "squeezenet", "mobilenetv2")


def _numbers(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        found = tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise UsageError(f"--in-flight {text!r} is no list of numbers such as 1,8")
    return found


def _ways(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[str, ...]:
    from results.bench.requests import WAYS

    found = tuple(dict.fromkeys(text.split(",")))
    shared.check_known(found, WAYS, "way to ask")
    return found


@click.command(
    epilog="Example: python -m results.bench requests squeezenet --in-flight 1,8 -o results/requests.md"
)
@click.argument("names", nargs=-1)
@shared.number_option("--threads", 2, "Workers.")
@click.option(
    "--in-flight",
    default="1,8",
    show_default=True,
    metavar="N,N",
    callback=_numbers,
    help="Numbers of requests on their way, each measured by itself.",
)
@click.option(
    "--ways",
    default="call,submit",
    show_default=True,
    metavar="WAY,WAY",
    callback=_ways,
    help="How ours is asked: call (threads), submit, submit_all (batches), await (coroutines).",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="For each system, way and number, in four parts.",
)
@with_onnxruntime()
@shared.with_output
def command(
    output: shared.Output,
    names: Sequence[str],
    threads: int,
    in_flight: Sequence[int],
    ways: Sequence[str],
    seconds: float,
    peers: Sequence[System],
) -> None:
    """Several requests on their way beside one at a time; NAMES are zoo models or ONNX files."""
    from autotune.bench.suites import models
    from autotune.hardware import check_threads
    from autotune.suggest import counted
    from results.bench import requests

    check_threads(threads, allow_oversubscription=False)
    cases = models.models(names or _MODELS)
    found = requests.measure(cases, peers, threads, in_flight, ways, seconds, shared.say)
    made = requests.tables(found, counted(threads, "thread"))
    output.finish(output.document("Several requests at once", ABOUT, made, [asdict(each) for each in found]))


__all__ = ["command"]
