"""``autotune run``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click

from autotune.cli.echo import echo
from autotune.cli.options import (
    EPILOG_DATABASE,
    announce,
    check_for_artifact,
    json_option,
    model_argument,
    print_json,
    request_flags,
    seed_option,
)
from autotune.compiler.request import CompileOptions, CompileRequest
from autotune.errors import InputError, UsageError
from autotune.foreign import file_name
from autotune.frontends.sizes import as_shape
from autotune.suggest import listing

if TYPE_CHECKING:
    import numpy as np

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
@json_option
def command(
    model: str,
    inputs: Sequence[str],
    random: bool,
    folder: Path | None,
    repeat: int | None,
    profiled: bool,
    trace: Path | None,
    requests: int | None,
    seed: int,
    as_json: bool,
    **options: Unpack[CompileOptions],
) -> None:
    """Run MODEL, or an artifact that `autotune compile` wrote, and print its outputs and latency."""
    given = _given(inputs)
    if requests is not None and trace is None:
        raise UsageError("--requests is for --trace, which is not given")
    module, shapes = _module(CompileRequest(model, **options), options)
    arrays = _inputs(_specs(module, shapes), given, random, seed)
    outputs = module.run(arrays)
    facts: dict[str, Any] = {
        "model": model,
        "threads": module.threads,
        "outputs": {name: _facts(array) for name, array in outputs.items()},
    }
    if repeat is not None:
        times = module.time(arrays, warmup=min(10, repeat), repeat=repeat)
        percentiles = {"min_ns": float(times.min()), "median_ns": _median(times), "repeat": repeat}
        facts["latency"] = percentiles
    if folder is not None:
        _save(outputs, folder)
    if trace is not None:
        _write(trace, json.dumps(_trace(module, arrays, requests)))
    if profiled:
        from autotune.profiling.profile import profile

        found = profile(module, arrays, runs=repeat or _PROFILED)
    if as_json:
        print_json(facts | ({"profile": found.to_json()} if profiled else {}))
        return
    _show(facts)
    if profiled:
        echo(str(found))


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
    known_sizes = module.compiled.sizes
    for name, sizes in (shapes or {}).items():
        if name not in known_sizes or isinstance(sizes, str) or len(as_shape(sizes)) != 1:
            known = ", ".join(f"{symbol}={compiled[-1]}" for symbol, compiled in known_sizes.items())
            raise UsageError(f"--shape {name}: this artifact has sizes such as {known}")
    return module.specs({name: as_shape(sizes)[0] for name, sizes in (shapes or {}).items()})


def _inputs(specs: Sequence[TensorSpec], given: dict[str, Any], random: bool, seed: int) -> dict[str, Any]:
    """Return arrays for all inputs: given, else random; raises InputError for a missing one."""
    from autotune.tuning.measure.random_inputs import random_inputs

    names = [spec.name for spec in specs]
    unknown = [name for name in given if name not in names]
    if unknown:
        known = listing(unknown[0], names)
        raise InputError(f"the model has no input {unknown[0]!r}; its inputs are {known}")
    arrays = dict(given)
    missing = [spec for spec in specs if spec.name not in arrays]
    if missing and not random:
        needed = "; ".join(str(spec) for spec in missing)
        raise InputError(
            f"no value for the input {needed}; give --input {missing[0].name}=FILE.npy, or --random"
        )
    for spec in specs:
        array = arrays.get(spec.name)
        if spec.dtype == "bfloat16" and array is not None and array.dtype == "V2":
            arrays[spec.name] = array.view(spec.dtype)  # a file has no name for it
    return arrays | random_inputs(missing, seed)


def _trace(module: Module, arrays: dict[str, Any], requests: int | None) -> dict[str, Any]:
    """Return the trace of one run, or of requests that are in flight together."""
    from autotune.profiling.trace_events import trace_of

    if requests is None:
        return trace_of(module.recording(arrays))
    if module.in_flight == 1:
        raise UsageError("--requests is for models on several devices: name them with --place")
    recording = module.recording(arrays, requests, in_flight=module.in_flight)
    return trace_of(recording, range(requests))


def _given(texts: Sequence[str]) -> dict[str, Any]:
    """Return the inputs on the command line; raises UsageError for one that is given twice."""
    given: dict[str, Any] = {}
    for text in texts:
        name, array = _read(text)
        if name in given:
            raise UsageError(f"--input {name} is given twice")
        given[name] = array
    return given


def _read(text: str) -> tuple[str, np.ndarray]:
    import numpy as np

    name, equals, path = text.partition("=")
    if not equals or not name or not path:
        raise UsageError(f"--input {text!r} is not NAME=FILE.npy")
    try:
        return name, np.load(path, allow_pickle=False)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except (EOFError, MemoryError, ValueError) as error:
        raise UsageError(f"{path} is not a NumPy array file (.npy) of numbers, or it is damaged") from error


def _save(outputs: dict[str, Any], folder: Path) -> None:
    import numpy as np

    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = [file_name(name, "output") for name in outputs]
        for number, (file, array) in enumerate(zip(files, outputs.values(), strict=True)):
            again = files[:number].count(
                file
            )  # other names may be this one without what no file is called by
            np.save(folder / f"{file}{f'.{again}' if again else ''}.npy", array)
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror or error}") from error


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error


def _facts(array: Any) -> dict[str, Any]:
    return {
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "min": float(array.min()) if array.size else None,
        "max": float(array.max()) if array.size else None,
    }


def _median(times: Any) -> float:
    import numpy as np

    return float(np.median(times))


def _show(facts: dict[str, Any]) -> None:
    from autotune.tuning.report.units import nanoseconds

    for name, output in facts["outputs"].items():
        shape = "×".join(map(str, output["shape"])) or "scalar"
        span = "" if output["min"] is None else f", from {output['min']:.6g} to {output['max']:.6g}"
        echo(f"{name}: {output['dtype']} {shape}{span}")
    if "latency" in facts:
        latency = facts["latency"]
        echo(
            f"latency: minimum {nanoseconds(latency['min_ns'])}, median "
            f"{nanoseconds(latency['median_ns'])}, {latency['repeat']} runs, {facts['threads']} threads"
        )


__all__ = ["command"]
