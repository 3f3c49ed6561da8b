"""``autotune run``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click

from autotune.cli.common import EPILOG_DATABASE, announce, json_option, print_json, write_page
from autotune.cli.echo import echo
from autotune.cli.options import check_for_artifact, model_argument, request_flags, seed_option
from autotune.cli.verbosity import is_quiet, verbosity
from autotune.compiler.request import CompileOptions, CompileRequest
from autotune.errors import UsageError
from autotune.frontends.sizes import as_shape
from autotune.suggest import counted

if TYPE_CHECKING:
    from autotune.frontends.sizes import Given
    from autotune.runtime.image import TensorSpec
    from autotune.runtime.module import Module

_PROFILED = 20
"""Runs of a profile, where none are asked for."""


@click.command(epilog=f"Example: autotune run model.atm --random --repeat 100. {EPILOG_DATABASE}")
@model_argument
@click.option("--input", "inputs", multiple=True, metavar="NAME=X.npy", help="An input; once for each.")
@click.option("--random", is_flag=True, help="Random values for the inputs that are not given.")
@click.option(
    "--output",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder that receives NAME.npy for each output.",
)
@click.option("--repeat", type=click.IntRange(1), metavar="N", help="Time N runs; the profile is of as many.")
@click.option(
    "--profile",
    "profiled",
    is_flag=True,
    help="A line a dispatch: time, rates, distance to the roofline, how busy the workers were. [default: of 20 runs]",
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.html",
    help="Write the profile as one page that needs no network: time by layer, the roofline, every dispatch.",
)
@click.option(
    "--trace",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write what each device and worker did in one run, for Perfetto or chrome://tracing.",
)
@click.option(
    "--requests",
    type=click.IntRange(2),
    metavar="N",
    help="Show N requests in the trace, one more at a time than the model has devices.",
)
@request_flags(CompileOptions)
@seed_option
@verbosity("Print only the latency, and the profile.")
@json_option
def command(
    model: str,
    inputs: Sequence[str],
    random: bool,
    folder: Path | None,
    repeat: int | None,
    profiled: bool,
    html: Path | None,
    trace: Path | None,
    requests: int | None,
    seed: int,
    as_json: bool,
    **options: Unpack[CompileOptions],
) -> None:
    """Run MODEL, or an artifact that `autotune compile` wrote, and print its outputs and latency."""
    from autotune.runtime.request_files import array_facts, read_arrays, request_inputs, save_arrays, timed

    given = read_arrays(inputs)
    if requests is not None and trace is None:
        raise UsageError("--requests is for --trace, which is not given")
    if html is not None and not profiled:
        raise UsageError("--html is for --profile, which is not given")
    module, shapes = _module(CompileRequest(model, **options), options)
    arrays = request_inputs(_specs(module, shapes), given, random, seed)
    outputs = module.run(arrays)
    facts: dict[str, Any] = {
        "model": model,
        "threads": module.threads,
        "outputs": {name: array_facts(array) for name, array in outputs.items()},
    }
    if repeat is not None:
        facts["latency"] = timed(module, arrays, repeat)
    if folder is not None:
        save_arrays(outputs, folder)
    if trace is not None:
        _write(trace, json.dumps(_trace(module, arrays, requests)))
    if profiled:
        from autotune.profiling.profile import profile

        found = profile(module, arrays, runs=repeat or _PROFILED)
        if html is not None:
            from autotune.profiling.profile_page import profile_page

            write_page(profile_page(found), html)
    if as_json:
        print_json(facts | ({"profile": found.to_json()} if profiled else {}))
        return
    _show(facts)
    if profiled:
        from autotune.profiling.lines import lines_of
        from autotune.tuning.report.width import columns_of

        for line in lines_of(found, columns_of(sys.stdout)):
            echo(line)


def _module(request: CompileRequest, options: CompileOptions) -> tuple[Module, Given | None]:
    """Return the module, and sizes of the request to run where the module takes requests of several."""
    from autotune.runtime.artifacts.archive import is_archive

    model = str(request.model)
    if is_archive(model):
        from autotune.runtime.executable import load

        module = load(model, request.threads, allow_oversubscription=request.allow_oversubscription)
        sized = ("shapes",) if module.compiled.least else ()
        check_for_artifact(request, "threads", "allow_oversubscription", *sized)
        return module, request.shapes
    announce(f"compiling {model}")
    from autotune.tuning.api import compile

    return compile(model, **options), None


def _specs(module: Module, shapes: Given | None) -> tuple[TensorSpec, ...]:
    """Return the inputs of a request: of the sizes that were asked for, or the largest, where there are several."""
    from autotune.runtime.request_files import request_specs

    return request_specs(module, {name: _size(sizes) for name, sizes in (shapes or {}).items()})


def _size(given: Any) -> Any:
    """Return the number of a size; what is none, such as a range or a shape, as it is."""
    return given if isinstance(given, str) or len(as_shape(given)) != 1 else as_shape(given)[0]


def _trace(module: Module, arrays: dict[str, Any], requests: int | None) -> dict[str, Any]:
    """Return the trace of one run, or of requests that are in flight together."""
    from autotune.profiling.trace_events import trace_of

    if requests is None:
        return trace_of(module.recording(arrays))
    if module.in_flight == 1:
        raise UsageError("--requests is for models on several devices: name them with --place")
    recording = module.recording(arrays, requests, in_flight=module.in_flight)
    return trace_of(recording, range(requests))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error


def _show(facts: dict[str, Any]) -> None:
    from autotune.runtime.request_files import facts_line
    from autotune.tuning.report.units import nanoseconds

    for name, output in () if is_quiet() else facts["outputs"].items():
        echo(facts_line(name, output))
    if "latency" in facts:
        latency = facts["latency"]
        echo(
            f"latency: minimum {nanoseconds(latency['min_ns'])}, median {nanoseconds(latency['median_ns'])}, "
            f"{counted(latency['repeat'], 'run')}, {counted(facts['threads'], 'thread')}"
        )


__all__ = ["command"]
