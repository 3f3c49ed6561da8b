"""Arguments and options of commands that take a model, and how they print a compilation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from autotune.cli import completion
from autotune.cli.advice import advising, asked_models, pasted
from autotune.cli.common import database_option
from autotune.cli.echo import echo
from autotune.compiler.request import CompileRequest
from autotune.errors import UsageError
from autotune.passes.preference import TOLERANCE
from autotune.suggest import counted

if TYPE_CHECKING:
    from autotune.compiler.explain import Compilation

F = TypeVar("F", bound=Callable[..., Any])

NO_DATABASE = "the cost model: there is no database"
"""The source of schedules without one."""

model_argument = click.argument("model", shell_complete=completion.models)
models_argument = click.argument(
    "models", metavar="MODEL...", nargs=-1, required=True, shell_complete=completion.models
)


def _checked_seed(_context: click.Context, _option: click.Parameter, seed: int) -> int:
    from autotune.runtime.random_inputs import checked_seed

    return checked_seed(seed)


seed_option = click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    callback=_checked_seed,
    help="Seed of everything random.",
)


def runs_options(command: F) -> F:
    """Return ``--db`` and ``--recordings`` of what learns from measured runs: arrive as ``databases``
    and ``recordings``."""
    command = click.option(
        "--recordings",
        multiple=True,
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        metavar="FOLDER",
        help="Of `autotune replay candidates`, beside or instead of databases, once or several times.",
    )(command)
    return click.option(
        "--db",
        "databases",
        multiple=True,
        metavar="FILE|URL",
        shell_complete=completion.databases,
        help="A tuning database, once or several times. [default: tuning.db in AUTOTUNE_HOME, or the user's data "
        "folder]",
    )(command)


def _one_or_several(_context: click.Context, _option: click.Parameter, names: Sequence[str]) -> Any:
    return names[0] if len(names) == 1 else tuple(names)


def _shapes(_context: click.Context, _option: click.Parameter, texts: Sequence[str]) -> dict[str, Any] | None:
    return parse_shapes(texts)


def _values(_context: click.Context, _option: click.Parameter, texts: Sequence[str]) -> dict[str, Any] | None:
    return parse_values(texts)


def _devices(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[str, ...]:
    return parse_devices(text)


def _placement(
    _context: click.Context, _option: click.Parameter, texts: Sequence[str]
) -> dict[str, str] | None:
    from autotune.tuning.placement.placing import parse_placement

    return parse_placement(tuple(texts))


FLAGS: dict[str, Callable[[Any], Any]] = {
    "database": database_option,
    "target": click.option(
        "--target",
        multiple=True,
        default=("host",),
        show_default=True,
        metavar="NAME",
        callback=_one_or_several,
        shell_complete=completion.targets,
        help="host, a level such as x86-64-v3, or a device such as cuda:sm_90; `autotune compile` takes several: an "
        "artifact for all of them; so does `autotune tune --fleet`. AUTOTUNE_HOST=x86-64-v3 makes the host "
        "count as that level.",
    ),
    "threads": click.option(
        "--threads",
        type=int,
        metavar="N",
        help="Workers a model uses. [default: all usable cores; those that an artifact is for]",
    ),
    "tolerance": click.option(
        "--tolerance",
        type=click.FloatRange(min=0),
        default=TOLERANCE,
        show_default=True,
        metavar="X",
        help="Largest declared error of an algorithm, relative to the largest result; 0: exact ones only. 1e-3 allows "
        "weights stored as float16, 1e-2 as bfloat16, 5e-2 as int8; the error from end to end is then shown.",
    ),
    "finite": click.option(
        "--finite",
        is_flag=True,
        help="Leave out algorithms that overflow before the result does, or spread NaN and infinities to other "
        "results: Winograd's and Strassen's.",
    ),
    "shapes": click.option(
        "--shape",
        "shapes",
        multiple=True,
        metavar="NAME=1x3x224x224",
        callback=_shapes,
        help="A size that the model leaves open, by the name of the dimension (batch=1; x.0 for the first of input x "
        "where it has no name), or the shape of an input; compile, run and tune take a range of a dimension, too, for "
        "requests of many shapes: batch=1..32, with its buckets seq=1..512:64,512, in steps height=320..1280:+32. Once "
        "for each.",
    ),
    "values": click.option(
        "--value",
        "values",
        multiple=True,
        metavar="NAME=NUMBER,...",
        callback=_values,
        help="An input that is constant from here on, because what is compiled depends on it: a number, or several "
        "for a vector. The compiled model has no such input. Once for each.",
    ),
    "traffic": click.option(
        "--traffic",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help='How often requests have which sizes, JSON lines such as {"sizes": {"seq": 17}, "count": 120}: chooses '
        "the buckets of ranges that name none, and weighs them in tuning.",
    ),
    "most_buckets": click.option(
        "--buckets",
        "most_buckets",
        type=click.IntRange(min=1),
        default=CompileRequest.most_buckets,
        show_default=True,
        metavar="N",
        help="The most buckets that --traffic chooses for a range without named ones.",
    ),
    "objective": click.option(
        "--objective",
        default=CompileRequest.objective,
        show_default=True,
        metavar="NAME",
        help="What schedules are chosen for: latency, memory, or size (of the artifact).",
    ),
    "max_slowdown": click.option(
        "--max-slowdown",
        type=click.FloatRange(min=1),
        default=CompileRequest.max_slowdown,
        show_default=True,
        metavar="X",
        help="How much longer than its fastest a dispatch may take for memory or size.",
    ),
    "allow_oversubscription": click.option(
        "--allow-oversubscription",
        is_flag=True,
        help="Do not refuse more --threads than the cores that this process may use.",
    ),
    "require_hit": click.option(
        "--require-hit", is_flag=True, help="Fail unless candidates were measured alongside every default."
    ),
    "lock": click.option(
        "--lock",
        type=click.Path(path_type=Path),
        help="Make exactly the code that a lock pins, for its target; no database is read.",
    ),
    "placement": click.option(
        "--place",
        "placement",
        multiple=True,
        metavar="PATTERN=DEVICE",
        callback=_placement,
        shell_complete=completion.placements,
        help="Put values, nodes or operators on a device, such as Conv=cpu:1 or 'layer1*=cpu:0'; any number of times; "
        "or @FILE that `autotune place` wrote. `autotune devices` lists the devices.",
    ),
    "devices": click.option(
        "--devices",
        metavar="A,B,...",
        callback=_devices,
        shell_complete=completion.devices,
        help="Use the placement on these devices that the database has (`autotune place`, `autotune tune --devices`); "
        "without one all of the model is on the first.",
    ),
    "verify": click.option(
        "--verify",
        is_flag=True,
        help="Prove by isl that the schedules used compute what the model says, and that the memory plan keeps every "
        "value until it is read (extra 'verify').",
    ),
}
"""The flag of each keyword of :class:`autotune.compiler.request.CompileRequest`, in the order of a command's help."""


def accuracy_options(*names: str, multiple: bool = False) -> Callable[[F], F]:
    """Give a command ``--accuracy``, once or ``multiple`` times, and ``--data``, which may have other ``names``."""

    def decorate(command: F) -> F:
        command = click.option(
            "--accuracy",
            metavar="BUDGET",
            multiple=multiple,
            help="The largest error: 1e-2 of outputs (relative), cosine=0.999, or top1=0.5% of labels lost. Layers "
            "become more exact until half of the inputs are within it; the other half is checked.",
        )(command)
        return click.option(
            "--data",
            *names,
            "data",
            type=click.Path(path_type=Path),
            metavar="FILE.npz|FOLDER",
            help="An array an input, by its name: one sample, or several along the first axis; with --accuracy "
            "`labels`, too. A folder's files follow one another. Without it random inputs stand in for --accuracy.",
        )(command)

    return decorate


def request_flags(options: type, without: Collection[str] = ()) -> Callable[[F], F]:
    """Give a command the flags of the options that a typed dictionary names; what its errors advise has them, too."""

    def decorate(command: F) -> F:
        command = advising(command)
        for name in reversed(FLAGS):
            if name in options.__annotations__ and name not in without:
                command = FLAGS[name](command)
        return command

    return decorate


def check_for_artifact(request: CompileRequest, *besides: str) -> None:
    """Raise UsageError for options that say how to compile what is an artifact."""
    names = [name for name in request.given() if name not in ("database", *besides)]
    if names:
        raise UsageError(
            f"{', '.join(names)} given for {request.model}, which is compiled already; such options are for models"
        )


def parse_devices(text: str | None) -> tuple[str, ...]:
    """Return names of devices that commas separate; none for None."""
    return tuple(name for name in (text or "").split(",") if name)


def parse_shapes(texts: Sequence[str]) -> dict[str, Any] | None:
    """Return sizes by name: tuples of numbers, and ranges (``1..32``) or sums of other sizes (``past+1``) as texts.

    Raises UsageError for a text that is none of these, and for a name given twice.
    """
    shapes: dict[str, Any] = {}
    for text in texts:
        name, _, extents = text.rpartition("=")
        sizes = extents.split("x")
        is_text = ".." in extents or extents[:1].isalpha() or extents[:1] == "_"
        if not name or not (is_text or all(size.isdecimal() and int(size) > 0 for size in sizes)):
            raise UsageError(
                f"--shape {text!r} is not NAME=SIZES\n  sizes are whole numbers such as 1x3x224x224, or 8 of a "
                "dimension"
            )
        if name in shapes:
            raise UsageError(f"--shape {name} is given twice")
        shapes[name] = extents if is_text else tuple(map(int, sizes))
    return shapes or None


def parse_values(texts: Sequence[str]) -> dict[str, Any] | None:
    """Return inputs that are constant: numbers, and lists of them, by name.

    Raises UsageError for a text that is none of these, and for a name given twice.

    >>> parse_values(["k=5", "scales=0.5,2"])
    {'k': 5, 'scales': [0.5, 2]}
    """
    values: dict[str, Any] = {}
    for text in texts:
        name, _, numbers = text.rpartition("=")
        try:
            found = [int(each) if _is_whole(each) else float(each) for each in numbers.split(",")]
        except ValueError:
            found = []
        if not name or not found:
            raise UsageError(f"--value {text!r} is not NAME=NUMBER, or NAME=NUMBER,NUMBER for a vector")
        if name in values:
            raise UsageError(f"--value {name} is given twice")
        values[name] = found if "," in numbers else found[0]
    return values or None


def _is_whole(text: str) -> bool:
    return text.strip().removeprefix("-").isdecimal()


def compilation_json(done: Compilation, where: str | None) -> dict[str, Any]:
    """Return the choices of a compilation, for a JSON document; ``where`` the schedules come from, None
    without a database."""
    return {
        "database": where,
        "coverage": str(done.coverage),
        "dispatches": [dispatch.to_json() for dispatch in done.coverage.dispatches],
        "decisions": [decision.to_json() for decision in done.coverage.decisions],
        "rankings": [ranking.to_json() for ranking in done.coverage.rankings],
        "memory": memory_json(done),
        "proofs": proofs_json(done),
        "growth": done.growth,
        "error": done.error,
    }


def print_compilation(
    done: Compilation, where: str | None, request: CompileRequest, *, details: bool = True
) -> None:
    """Print the choices of a compilation: a line a dispatch or, without ``details``, one line."""
    echo(
        pasted(done.coverage.details(), asked_models(vars(request)), vars(request))
        if details
        else str(done.coverage)
    )
    for line in proofs_lines(done, details=details):
        echo(line)
    echo(memory_line(done))
    if done.range_line:
        echo(done.range_line)
    if done.error is not None:
        from autotune.tuning.report.units import error_in_words

        echo(error_in_words(done.error))
    echo(f"schedules from {where or NO_DATABASE}")


def memory_json(done: Compilation) -> dict[str, int]:
    """Return bytes that a compiled model takes: beside inputs and outputs, with the threads of its
    target, and on disk."""
    image = done.image
    scratch = image.scratch_bytes(image.target.threads)
    return {
        "arena_bytes": image.arena_bytes,
        "scratch_bytes": scratch,
        "peak_bytes": image.arena_bytes + scratch,
        "code_bytes": sum(map(len, image.objects)),
        "constant_bytes": sum(constant.nbytes for constant in image.constants),
    }


def memory_line(done: Compilation) -> str:
    """Return the same in a line."""
    from autotune.tuning.report.units import size

    found, threads = memory_json(done), counted(done.image.target.threads, "thread")
    texts = {name.removesuffix("_bytes"): size(nbytes) for name, nbytes in found.items()}
    return (
        "peak memory {peak}: {arena} between dispatches, {scratch} of {threads}; "
        "artifact: {code} of code, {constant} of constants"
    ).format(**texts, threads=threads)


def proofs_json(done: Compilation) -> list[dict[str, Any]] | None:
    """Return the proofs of ``--verify`` for a JSON document; None without it."""
    if not done.proofs:
        return None
    return [
        {"dispatches": proof.names, "kind": proof.kind, **asdict(proof.verdict)}
        for report in done.proofs
        for proof in report.proofs
    ]


def proofs_lines(done: Compilation, *, details: bool = True) -> list[str]:
    """Return the results of ``--verify``: of each workload or, without ``details``, in a line; nothing without it."""
    return [
        *(report.details() if details else str(report) for report in done.proofs),
        *(str(segment.memory_proof) for segment in done.segments if segment.memory_proof is not None),
    ]


__all__ = [
    "FLAGS",
    "NO_DATABASE",
    "accuracy_options",
    "check_for_artifact",
    "compilation_json",
    "memory_json",
    "memory_line",
    "model_argument",
    "models_argument",
    "parse_devices",
    "parse_shapes",
    "print_compilation",
    "proofs_json",
    "proofs_lines",
    "request_flags",
    "runs_options",
    "seed_option",
]
