"""``autotune explain``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click

from autotune.cli.common import EPILOG_DATABASE, announce, json_option, print_json, write_page
from autotune.cli.echo import echo
from autotune.cli.options import (
    NO_DATABASE,
    check_for_artifact,
    compilation_json,
    memory_line,
    model_argument,
    print_compilation,
    request_flags,
)
from autotune.compiler.request import CompileOptions, CompileRequest
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.compiler.explain import Compilation
    from autotune.graph.ir import Graph
    from autotune.passes.partition import InPlace
    from autotune.passes.pipeline import PassRecord
    from autotune.profiling.facts import ModelFacts


@click.command(epilog=f"Example: autotune explain zoo:squeezenet --db tuning.db. {EPILOG_DATABASE}")
@model_argument
@request_flags(CompileOptions)
@click.option(
    "--predict",
    "only_predicted",
    is_flag=True,
    help="Only say what the model would take: no machine code is made.",
)
@click.option(
    "--affinity",
    "only_affinity",
    is_flag=True,
    help="Only say where each operation runs, where else it could, and why: nothing is compiled.",
)
@click.option(
    "--text",
    type=click.Path(dir_okay=False),
    metavar="FILE.txt",
    help="Only write the model as text, as it is before any pass, and its constants beside it: every command takes it. "
    "Sizes that no --shape fixes stay open.",
)
@click.option(
    "--memory",
    "picture",
    type=click.Path(dir_okay=False),
    metavar="FILE.svg",
    help="Draw the memory plan into a file: time across, addresses up, values by their names in the model.",
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.html",
    help="Write one page that needs no network: the graph of dispatches with fusion, layouts, times and schedules.",
)
@click.option(
    "--onnx",
    "onnx_path",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.onnx",
    help="Write the ONNX model again, with the dispatch, time, roofline and schedule of each node in its metadata, "
    "which Netron shows.",
)
@json_option
def command(
    model: str,
    only_predicted: bool,
    only_affinity: bool,
    text: str | None,
    picture: str | None,
    html: Path | None,
    onnx_path: Path | None,
    as_json: bool,
    **options: Unpack[CompileOptions],
) -> None:
    """Show each pass, dispatch, schedule and the memory plan; what was tuned and what was not, and why.

    Of an artifact: what it is for, what it holds, whether all of it is whole, and what would run here.

    What a run of the model will take comes first, before anything is compiled: its latency with a 95 % interval, by
    dispatch, and its memory.
    """
    from autotune.cli.affinity_lines import affinity_json, affinity_lines
    from autotune.cli.artifact_lines import artifact_json, artifact_lines, examined
    from autotune.cli.prediction_lines import lines_of
    from autotune.compiler.dividing import imported
    from autotune.compiler.explain import beside
    from autotune.profiling.facts import facts_of
    from autotune.runtime.artifacts.archive import is_archive
    from autotune.tuning.api import predicted
    from autotune.tuning.compiling import compile_request
    from autotune.tuning.measure.accuracy import checked
    from autotune.tuning.placement.placing import by_database, placed_by, where_it_runs
    from autotune.tuning.report.width import columns_of

    records: list[PassRecord] = []
    request = CompileRequest(model, **options, observer=lambda record, graph: records.append(record))
    drawn = {"--memory": picture, "--html": html, "--onnx": onnx_path}
    asked = " and ".join(name for name, path in drawn.items() if path is not None)
    other = only_predicted or only_affinity or asked or request.devices
    if text is not None and (is_archive(model) or other):
        raise UsageError(
            "--text only writes a model as text; it was given with something else, or for an artifact"
        )
    if asked and (is_archive(model) or only_predicted or only_affinity):
        raise UsageError(f"{asked} shows a model that is compiled for it; it was given for something else")
    if is_archive(model):
        check_for_artifact(request, "observer")
        held = examined(model)
        if as_json:
            print_json(artifact_json(model, held))
        else:
            echo("\n".join(artifact_lines(model, held)))
        return
    if text is not None and request.lock is None and _write_open_text(request, text):
        return
    request = request.checked()
    graph = None if request.lock is not None else imported(request.model, request.shapes)
    if text is not None and graph is not None:
        _write_text(graph, text)
        return
    if request.devices:
        graph, searched = by_database(request)
        request = placed_by(request, searched)
        if not as_json:
            echo(str(searched))
    placed = None if graph is None else where_it_runs(graph, request.placement)
    if only_affinity:
        if as_json:
            print_json(None if placed is None else affinity_json(placed))
        elif placed is None:
            echo(f"{model} names no devices, and no --place does: all of it runs on one")
        else:
            echo("\n".join(affinity_lines(placed)))
        return
    if placed is not None:
        if asked:
            raise UsageError(f"{asked} shows a model on one device; this one runs on several")
        assert graph is not None  # it was asked
        _explain_placed(request, graph, records, as_json=as_json)
        return
    announce(f"predicting {model}")
    prediction = predicted(replace(request, observer=None), graph)
    if only_predicted:
        if as_json:
            print_json(prediction.to_json())
        else:
            echo("\n".join(lines_of(prediction)))
        return
    announce(f"compiling {model}")
    made = compile_request(request, graph=graph)
    done, where = checked(made.cases[0].done, model), made.where
    if picture is not None:
        _draw(done, picture)
    found = facts_of(done.only) if html or onnx_path or as_json else None
    if found is not None and onnx_path is not None:
        _annotate(request, found, onnx_path)
    if found is not None and html is not None:
        _write_page(done, where, found, html)
    if found is not None and as_json:
        print_json(
            {
                "passes": [asdict(record) for record in records],
                **compilation_json(done, where),
                "in_place": [_in_place_json(item) for item in done.partition.in_place],
                "arena_bytes": done.image.arena_bytes,
                "beside": beside(done.image),
                "prediction": prediction.to_json(),
                "facts": [each.to_json() for each in found.dispatches],
            }
        )
        return
    echo("\n".join(lines_of(prediction)))
    for record in records:
        echo(str(record))
    echo(str(done.partition))
    for name, others in beside(done.image).items():
        echo(f"{name} may run beside {', '.join(others)}")
    print_compilation(done, where, request)
    columns = columns_of(sys.stdout)
    echo(done.memory_plan.render() if columns is None else done.memory_plan.render(max(16, columns - 60)))


def _write_open_text(request: CompileRequest, path: str) -> bool:
    """Write the text of a model of which sizes are left open, all or those given as ranges; False for others."""
    from autotune.compiler.dynamic.open_text import write_open_text
    from autotune.frontends.models import open_shapes, read_model
    from autotune.graph.ir import Graph
    from autotune.tuning.compiling import split

    if isinstance(request.model, Graph):
        return False
    model = read_model(request.model)
    if not open_shapes(model):
        return False
    ranges, sums = split(model, request.shapes or {})
    names = {name for shape in open_shapes(model).values() for name in shape if isinstance(name, str)}
    if all(name in sums or (name in ranges and ranges[name].least == ranges[name].most) for name in names):
        return False
    try:
        write_open_text(model, Path(path), ranges, sums)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    announce(f"wrote {path}")
    return True


def _write_text(graph: Graph, path: str) -> None:
    """Write the model as text."""
    from autotune.graph.text_file import write_file

    try:
        write_file(graph, Path(path))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    announce(f"wrote {path}")


def _draw(done: Compilation, path: str) -> None:
    """Write the picture of the memory plan."""
    from autotune.compiler.memory.chart import memory_svg

    try:
        Path(path).write_text(memory_svg(done.partition, done.memory_plan), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    announce(f"wrote {path}")


def _annotate(request: CompileRequest, facts: ModelFacts, path: Path) -> None:
    """Write the model again, with facts on its nodes."""
    from autotune.frontends.models import read_model
    from autotune.frontends.onnx.read import LoadedModel
    from autotune.graph.ir import Graph
    from autotune.profiling.onnx_facts import annotated, write_annotated

    source = None if isinstance(request.model, Graph) else read_model(request.model)
    if not isinstance(source, LoadedModel):
        raise UsageError(f"--onnx writes an ONNX model again, and {request.model} is none")
    write_annotated(source, annotated(source, facts), path)
    announce(f"wrote {path}")


def _write_page(done: Compilation, where: str | None, facts: ModelFacts, path: Path) -> None:
    """Write the page of a model."""
    from autotune.profiling.model_page import model_page

    about = [*str(done.coverage).splitlines(), memory_line(done), f"schedules from {where or NO_DATABASE}"]
    write_page(model_page(facts, about), path)


def _explain_placed(
    request: CompileRequest, graph: Graph, records: Sequence[PassRecord], *, as_json: bool
) -> None:
    """Explain a model on several devices: passes, devices, steps, the dispatches of every part, and the
    makespan that runs of its parts promise."""
    from autotune.cli.affinity_lines import (
        affinity_lines,
        expected_json,
        expected_lines,
        placed_json,
        placed_lines,
    )
    from autotune.runtime.hal.driver import open_device
    from autotune.tuning.compiling import compile_request
    from autotune.tuning.placement.device_times import expected_of

    announce(f"compiling {request.model}")
    made = compile_request(request, graph=graph)
    done, where = made.cases[0].done, made.where
    assert done.affinities is not None  # devices are named
    expected = expected_of(done.program, {name: open_device(name) for name in done.program.devices})
    if as_json:
        print_json(
            {
                "passes": [asdict(record) for record in records],
                **placed_json(done, where),
                "makespan": expected_json(expected),
            }
        )
        return
    for record in records:
        echo(str(record))
    echo("\n".join(affinity_lines(done.affinities)))
    for segment in done.segments:
        echo(str(segment.partition))
    echo("\n".join([*placed_lines(done, where), *expected_lines(expected)]))


def _in_place_json(item: InPlace) -> dict[str, Any]:
    return {
        "operator": item.node.op,
        "outputs": item.node.present_outputs,
        "copied": item.copied,
        "bytes_not_moved": item.nbytes,
    }


__all__ = ["command"]
