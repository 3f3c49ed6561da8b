"""Arguments and options that several commands share, and how a command prints JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from autotune.cli.echo import echo
from autotune.database.goal import MAX_SLOWDOWN, Objective
from autotune.errors import UsageError
from autotune.passes.preference import TOLERANCE
from autotune.suggest import counted

if TYPE_CHECKING:
    from autotune.compiler.dividing import Shapes
    from autotune.compiler.explain import Compilation
    from autotune.compiler.proof import ProofReport

F = TypeVar("F", bound=Callable[..., Any])

EPILOG_DATABASE = "Without --db the database is tuning.db in the folder AUTOTUNE_HOME."

model_argument = click.argument("model")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


def _checked_seed(_context: click.Context, _option: click.Parameter, seed: int) -> int:
    from autotune.tuning.random_inputs import checked_seed

    return checked_seed(seed)


seed_option = click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    callback=_checked_seed,
    help="Seed of everything random.",
)


def database_option(command: F) -> F:
    """Return ``--db``: a file or a URL."""
    return click.option(
        "--db",
        "database",
        metavar="FILE|URL",
        help="The tuning database. [default: tuning.db in AUTOTUNE_HOME, or the user's data folder]",
    )(command)


def runs_options(command: F) -> F:
    """Return ``--db`` and ``--recordings`` of what learns from measured runs: arrive as ``databases``
    and ``recordings``."""
    command = click.option(
        "--recordings",
        multiple=True,
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        metavar="FOLDER",
        help="Of `autotune replay record`, beside or instead of databases, once or several times.",
    )(command)
    return click.option(
        "--db",
        "databases",
        multiple=True,
        metavar="FILE|URL",
        help="A tuning database, once or several times. [default: tuning.db in AUTOTUNE_HOME, or the user's data "
        "folder]",
    )(command)


def machine_options(command: F) -> F:
    """Return ``--target`` and ``--threads``."""
    return click.option(
        "--target",
        default="host",
        show_default=True,
        metavar="NAME",
        help="host, or a level such as x86-64-v3. AUTOTUNE_HOST=x86-64-v3 makes the host count as that level.",
    )(threads_option(command))


threads_option = click.option(
    "--threads", type=int, metavar="N", help="Workers a model uses. [default: all usable cores]"
)


def targets_option(command: F) -> F:
    """Return ``--target``, any number of times: arrives as ``targets``."""
    return click.option(
        "--target",
        "targets",
        multiple=True,
        default=("host",),
        show_default=True,
        metavar="NAME",
        help="host, a level such as x86-64-v3, or a device such as cuda:sm_90; once for each that the artifact is for: "
        "loading takes the one that fits best.",
    )(command)


oversubscription_option = click.option(
    "--allow-oversubscription",
    is_flag=True,
    help="Do not refuse more --threads than the cores that this process may use.",
)


def tolerance_option(command: F) -> F:
    """Return ``--tolerance``."""
    return click.option(
        "--tolerance",
        type=click.FloatRange(min=0),
        default=TOLERANCE,
        show_default=True,
        metavar="X",
        help="Largest declared error of an algorithm, relative to the largest result; 0: exact ones only. 1e-3 allows "
        "weights stored as float16, 1e-2 as bfloat16, 5e-2 as int8; the error from end to end is then shown.",
    )(command)


def finite_option(command: F) -> F:
    """Return ``--finite``."""
    return click.option(
        "--finite",
        is_flag=True,
        help="Leave out algorithms that overflow before the result does, or spread NaN and infinities to other "
        "results: Winograd's and Strassen's.",
    )(command)


def ranges_option(command: F) -> F:
    """Return ``--shape`` that takes ranges too: arrives as ``shapes``; None without any."""
    return _shapes(
        command,
        f"{_SHAPES}; or for requests of many sizes a range of a dimension: batch=1..32, or with its buckets "
        "seq=1..512:64,512. Once for each.",
    )


def traffic_options(command: F) -> F:
    """Return ``--traffic`` and ``--buckets``: arrive as ``traffic``, a path or None, and ``most_buckets``."""
    command = click.option(
        "--buckets",
        "most_buckets",
        type=click.IntRange(min=1),
        default=4,
        show_default=True,
        metavar="N",
        help="The most buckets that --traffic chooses for a range without named ones.",
    )(command)
    return click.option(
        "--traffic",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help='How often requests have which sizes, JSON lines such as {"sizes": {"seq": 17}, "count": 120}: chooses '
        "the buckets of ranges that name none, and weighs them in tuning.",
    )(command)


def shape_option(command: F) -> F:
    """Return ``--shape``: arrives as ``shapes``, sizes by the name of a dimension or an input; None without any."""
    return _shapes(command, f"{_SHAPES}. Once for each.")


_SHAPES = (
    "A size that the model leaves open, by the name of the dimension (batch=1; x.0 for the first of input x where it "
    "has no name), or the shape of an input"
)


def _shapes(command: F, text: str) -> F:
    return click.option(
        "--shape",
        "shapes",
        multiple=True,
        metavar="NAME=1x3x224x224",
        callback=lambda context, parameter, texts: parse_shapes(texts),
        help=text,
    )(command)


def placement_option(command: F) -> F:
    """Return ``--place``: arrives as ``placement``, devices by pattern; None without any."""
    return click.option(
        "--place",
        "placement",
        multiple=True,
        metavar="PATTERN=DEVICE",
        callback=lambda context, parameter, texts: _placement(texts),
        help="Put values, nodes or operators on a device, such as Conv=cpu:1 or 'layer1*=cpu:0'; any number of times; "
        "or @FILE that `autotune place` wrote. `autotune devices` lists the devices.",
    )(command)


def devices_option(command: F) -> F:
    """Return ``--devices``: arrives as ``devices``, a tuple of names; empty without it."""
    return click.option(
        "--devices",
        metavar="A,B,...",
        callback=lambda context, parameter, text: parse_devices(text),
        help="Use the placement on these devices that the database has (`autotune place`, `autotune tune --devices`); "
        "without one all of the model is on the first.",
    )(command)


def parse_devices(text: str | None) -> tuple[str, ...]:
    """Return names of devices that commas separate; none for None."""
    return tuple(name for name in (text or "").split(",") if name)


def _placement(texts: Sequence[str]) -> dict[str, str] | None:
    from autotune.tuning.placing import parse_placement

    return parse_placement(tuple(texts))


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


def shape_options(shapes: Shapes | None) -> str:
    """Return the same as options of a command that is advised, each with a space before it.

    >>> shape_options({"batch": (1,), "past + 1": (4,), "x": (1, 3)})
    " --shape batch=1 --shape 'past + 1=4' --shape x=1x3"
    """
    from autotune.frontends.sizes import as_shape, option

    return "".join(f" {option(name, 'x'.join(map(str, as_shape(s))))}" for name, s in (shapes or {}).items())


def compile_options(command: F) -> F:
    """Return ``--target``, ``--threads``, ``--tolerance``, ``--finite`` and ``--shape``, as
    ``autotune.compiler.driver.CompileOptions`` has them."""
    return machine_options(tolerance_option(finite_option(shape_option(command))))


def objective_options(command: F) -> F:
    """Return ``--objective`` and ``--max-slowdown`` of what chooses schedules."""
    command = click.option(
        "--max-slowdown",
        type=click.FloatRange(min=1),
        default=MAX_SLOWDOWN,
        show_default=True,
        metavar="X",
        help="How much longer than its fastest a dispatch may take for memory or size.",
    )(command)
    return click.option(
        "--objective",
        default=Objective.LATENCY.value,
        show_default=True,
        metavar="NAME",
        help="What schedules are chosen for: latency, memory, or size (of the artifact).",
    )(command)


verify_option = click.option(
    "--verify",
    is_flag=True,
    help="Prove by isl that the schedules used compute what the model says, and that the memory plan keeps every "
    "value until it is read (extra 'verify').",
)


def announce(text: str) -> None:
    """Say on a terminal what is going on, before imports and the work itself keep silent for seconds."""
    if sys.stderr.isatty():
        echo(text, err=True)


def print_json(value: Any) -> None:
    """Print one JSON document on standard output."""
    echo(json.dumps(value, indent=2, default=str))


def compilation_json(done: Compilation, where: str | None) -> dict[str, Any]:
    """Return the choices of a compilation, for a JSON document; ``where`` the schedules come from, None
    without a database."""
    return {
        "database": where,
        "coverage": str(done.coverage),
        "dispatches": [dispatch.to_json() for dispatch in done.coverage.dispatches],
        "rankings": [ranking.to_json() for ranking in done.coverage.rankings],
        "memory": memory_json(done),
        "proofs": proofs_json(done.proofs),
        "growth": float(done.image.metadata["growth"]),
        "error": done.error,
    }


def print_compilation(done: Compilation, where: str | None, *, details: bool = True) -> None:
    """Print the choices of a compilation: a line a dispatch or, without ``details``, one line."""
    echo(done.coverage.details() if details else str(done.coverage))
    print_proofs(done, details=details)
    echo(memory_line(done))
    if done.range_line:
        echo(done.range_line)
    if done.error is not None:
        from autotune.tuning.accuracy import in_words

        echo(in_words(done.error))
    echo(f"schedules from {where or 'the cost model: there is no database'}")


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
    from autotune.tuning.units import size

    found, threads = memory_json(done), counted(done.image.target.threads, "thread")
    texts = {name.removesuffix("_bytes"): size(nbytes) for name, nbytes in found.items()}
    return (
        "peak memory {peak}: {arena} between dispatches, {scratch} of {threads}; "
        "artifact: {code} of code, {constant} of constants"
    ).format(**texts, threads=threads)


def proofs_json(report: ProofReport | None) -> list[dict[str, Any]] | None:
    """Return the proofs of ``--verify`` for a JSON document; None without it."""
    if report is None:
        return None
    return [
        {"dispatches": proof.names, "kind": proof.kind, **asdict(proof.verdict)} for proof in report.proofs
    ]


def print_proofs(done: Compilation, *, details: bool = True) -> None:
    """Print the results of ``--verify``: of each workload or, without ``details``, in a line; nothing without it."""
    if done.proofs is not None:
        echo(done.proofs.details() if details else str(done.proofs))
    if done.memory_proof is not None:
        echo(str(done.memory_proof))


__all__ = [
    "EPILOG_DATABASE",
    "announce",
    "compilation_json",
    "compile_options",
    "database_option",
    "devices_option",
    "finite_option",
    "json_option",
    "machine_options",
    "memory_json",
    "memory_line",
    "model_argument",
    "objective_options",
    "oversubscription_option",
    "parse_devices",
    "parse_shapes",
    "placement_option",
    "print_compilation",
    "print_json",
    "print_proofs",
    "proofs_json",
    "ranges_option",
    "runs_options",
    "seed_option",
    "shape_option",
    "shape_options",
    "targets_option",
    "threads_option",
    "tolerance_option",
    "traffic_options",
    "verify_option",
]
