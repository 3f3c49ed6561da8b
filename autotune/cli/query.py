"""``autotune query``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click

from autotune.cli import completion
from autotune.cli.advice import asked_models, tune_options
from autotune.cli.common import EPILOG_DATABASE, announce, json_option, print_json, write_page
from autotune.cli.echo import echo
from autotune.cli.options import FLAGS, request_flags
from autotune.cli.verbosity import is_quiet, is_verbose, verbosity
from autotune.compiler.request import ChoiceOptions, CompileRequest
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.quantization.front import PrecisionPoint
    from autotune.target import Target
    from autotune.tuning.api import Answer
    from autotune.tuning.report.html import Markup


@click.command(epilog=f"Example: autotune query zoo:squeezenet --db tuning.db. {EPILOG_DATABASE}")
@click.argument("what", metavar="MODEL|WORKLOAD", shell_complete=completion.models)
@request_flags(ChoiceOptions)
@click.option(
    "--top",
    type=click.IntRange(1),
    default=1,
    metavar="K",
    help="The K fastest runs of each, those measured in a model first.",
)
@click.option(
    "--front",
    "with_front",
    is_flag=True,
    help="The Pareto front of each: the runs that none beats in latency, memory and bytes of the artifact; of MODEL "
    "also that of latency and error, by precisions.",
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.html",
    help="Write the Pareto fronts of --front as one page of plots that needs no network.",
)
@click.option("--only", metavar="TEXT", help="Only what has the text in the name of a dispatch or node.")
@click.option(
    "--explain",
    is_flag=True,
    help="Show the workload, its search space, what is near where nothing was measured, and the schedule.",
)
@click.option(
    "--check-code",
    is_flag=True,
    help="Generate the code of each schedule: what was measured with other code is stale, and no exact answer.",
)
@FLAGS["devices"]
@verbosity(
    "Print only the table.",
    "Print of each all that is known: configuration, provenance, what is near where nothing is.",
)
@json_option
def command(
    what: str,
    top: int,
    with_front: bool,
    html: Path | None,
    only: str | None,
    explain: bool,
    check_code: bool,
    devices: tuple[str, ...],
    as_json: bool,
    **options: Unpack[ChoiceOptions],
) -> None:
    """Show the best schedule for each workload of a MODEL, or for a WORKLOAD by its key.

    A line a dispatch says what runs, how fast, how sure that is, and what is possible. Where nothing was measured it
    is what was found for another target or for other sizes, or the default. A key may be shortened to its first digits:
    of one workload all is shown that is known, or why nothing is, and what to run. With --devices it is the placement
    of MODEL on them, and those that were searched.
    """
    if html is not None and not with_front:
        raise UsageError("--html is for --front, which is not given")
    announce(f"looking up {what}")
    from autotune.cli import answer_lines
    from autotune.cli.answer_json import to_json
    from autotune.tuning.api import decided_request, is_key, query
    from autotune.tuning.report.width import columns_of

    request = CompileRequest(what, devices=devices, **options).checked()
    if devices:
        _placement(request, as_json=as_json)
        return
    details = explain or with_front or top > 1 or is_key(what) or is_verbose()
    found = query(
        what, top=top, with_front=with_front, with_near=details, only=only, check_code=check_code, **options
    )
    decided, decisions = (request, ()) if is_key(what) else decided_request(request)
    chosen = decided.one_target()
    answers = [_advised(answer, chosen, request) for answer in found]
    points = _points(request) if with_front and not is_key(what) else []
    if html is not None:
        from autotune.tuning.report.front_page import front_page

        write_page(front_page(what, answers, _drawn(points)), html)
    if as_json:
        documents = [to_json(answer, explain=explain) for answer in answers]
        print_json({"answers": documents, "precisions": _points_json(points)} if with_front else documents)
        return
    for line in () if is_quiet() else map(str, decisions):
        echo(line)
    if not is_key(what):
        head, *rows = answer_lines.table(answers, chosen, columns_of(sys.stdout))
        echo(head)
        for line in rows:
            echo(line, indent=answer_lines.NAMES)
        for line in () if is_quiet() else _notes(answers, request, details=details):
            echo(line)
    for line in _precisions(points):
        echo(line)
    for answer in answers if details else ():
        for line in answer_lines.lines_of(answer, top):
            echo(line)
        for line in answer_lines.front_lines(answer) if with_front else ():
            echo(f"  {line}")
        for line in answer_lines.explained(answer, chosen) if explain else ():
            echo(f"    {line}", whole=True)


def _points(request: CompileRequest) -> list[PrecisionPoint]:
    """Return the points of latency and error that jobs have measured of a model in several precisions."""
    from autotune.frontends.models import read_model
    from autotune.frontends.onnx.read import LoadedModel
    from autotune.quantization.compiling import with_sizes
    from autotune.quantization.front import stored_points

    is_onnx = isinstance(read_model(request.model), LoadedModel)
    return stored_points(with_sizes(request)) if is_onnx else []


def _precisions(points: Sequence[PrecisionPoint]) -> list[str]:
    """Return a line for each point that none beats."""
    from autotune.quantization.front import HEADING, front

    found = front(points)
    return [*([HEADING] if found else []), *(f"  {each}" for each in found)]


def _drawn(points: Sequence[PrecisionPoint]) -> list[Markup]:
    from autotune.quantization.front_chart import sections

    return [*sections(points)]


def _points_json(points: Sequence[PrecisionPoint]) -> list[dict[str, Any]]:
    from autotune.quantization.front import front

    best = front(points)
    return [point.to_json() | {"front": point in best} for point in points]


def _placement(request: CompileRequest, *, as_json: bool) -> None:
    """Print the placement of a model on devices, and the searches beside it."""
    from autotune.tuning.placement.placing import by_database

    _, answer = by_database(request)
    if as_json:
        print_json(answer.to_json())
        return
    echo(str(answer))
    for line in answer.lines():
        echo(f"  {line}")


def _notes(answers: Sequence[Answer], request: CompileRequest, *, details: bool) -> list[str]:
    """Return how much was not measured here, the command that measures it, and what was not checked."""
    found = _missing(answers, request, details=details)
    if any(answer.code == "not checked" for answer in answers):
        found.append("not checked: whether the code that was measured is generated today (--check-code)")
    return found


def _missing(answers: Sequence[Answer], request: CompileRequest, *, details: bool) -> list[str]:
    from autotune.database import Miss
    from autotune.suggest import counted
    from autotune.tuning.api import NEAREST

    missing = [(a, a.answer) for a in answers if isinstance(a.answer, Miss) and not a.divided]
    if not missing:
        return []
    advice = missing[0][1].advice
    number = sum(len(answer.names) for answer, _ in missing)
    more = "" if details else f"; --explain has the {NEAREST} nearest of each"
    return [f"{counted(number, 'dispatch')} not measured for this target: {advice}{more}"]


def _advised(answer: Answer, chosen: Target, request: CompileRequest) -> Answer:
    """Advise of a miss the command that tunes this model as it was asked for; of a workload no model is known."""
    from autotune.database import Miss
    from autotune.tuning.api import is_key, runnable

    miss = answer.answer
    if not isinstance(miss, Miss):
        return answer
    model = "MODEL" if is_key(str(request.model)) else asked_models(vars(request))
    advice = miss.advice.replace(" with this model and this --db", "")
    advice = advice.replace("`autotune tune`", f"`autotune tune {model}{tune_options(vars(request))}`")
    try:
        runnable(chosen)
    except UsageError:
        advice = advice.removesuffix(" on this machine") + f", on a machine that runs code for {chosen.cpu}"
    return replace(answer, answer=replace(miss, advice=advice))


__all__ = ["command"]
