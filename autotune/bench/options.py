"""The options that experiments share, as click's own objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import click

from autotune.errors import UsageError
from autotune.suggest import listing

N = TypeVar("N", int, float)


def words(name: str = "names") -> click.Argument:
    """Return the argument of any number of names."""
    return click.Argument([name], nargs=-1)


def number(name: str, default: int | None, help: str, least: int = 1) -> click.Option:
    """Return the option of a whole number that is ``least`` or more."""
    return click.Option(
        [name],
        type=click.IntRange(least),
        default=default,
        show_default=default is not None,
        metavar="N",
        help=help,
    )


def seconds(name: str, default: float, help: str, most: float | None = None) -> click.Option:
    """Return the option of a time above zero."""
    return click.Option(
        [name],
        type=click.FloatRange(0, most, min_open=True),
        default=default,
        show_default=True,
        metavar="SECONDS",
        help=help,
    )


def folder(name: str, help: str, default: Path | None = None) -> click.Option:
    """Return the option of a folder, which need not be there."""
    kind = click.Path(file_okay=False, path_type=Path)
    return click.Option(
        [name], type=kind, default=default, show_default=default is not None, metavar="FOLDER", help=help
    )


def folders(
    name: str, parameter: str, help: str, *, files: bool = False, required: bool = False
) -> click.Option:
    """Return the option of a folder that is there, or a file, which may be given several times."""
    kind = click.Path(exists=True, file_okay=files, path_type=Path)
    metavar = "FILE.json|FOLDER" if files else "FOLDER"
    return click.Option(
        [name, parameter], type=kind, multiple=True, required=required, metavar=metavar, help=help
    )


def numbers(
    name: str, default: str, help: str, kind: type[N], least: N, most: N | None = None, parameter: str = ""
) -> click.Option:
    """Return the option of a list with commas of numbers in a range, which arrives as ``parameter``."""
    example = "1,2" if kind is int else "1,2.5"

    def parse(_context: click.Context, _option: click.Parameter, text: str) -> tuple[N, ...]:
        try:
            found = tuple(dict.fromkeys(kind(part) for part in text.split(",")))
        except ValueError as error:
            raise UsageError(f"{name} {text!r} is no list of numbers such as {example}") from error
        if not all(least <= each and (most is None or each <= most) for each in found):
            limit = f"{least:g} or more" if most is None else f"{least:g} to {most:g}"
            raise UsageError(f"{name} {text}: each is {limit}")
        return found

    metavar = "N,N" if kind is int else "X,X"
    names = [name, *([parameter] if parameter else [])]
    return click.Option(names, default=default, show_default=True, metavar=metavar, callback=parse, help=help)


def threads(
    default: str, name: str = "--threads", help: str = "Numbers of threads, each measured by itself."
) -> click.Option:
    """Return the option of numbers of threads, such as ``--threads 1,2``."""

    def parse(_context: click.Context, _option: click.Parameter, text: str) -> tuple[int, ...]:
        from autotune.hardware import usable_cores

        try:
            found = tuple(dict.fromkeys(int(part) for part in text.split(",")))
        except ValueError as error:
            raise UsageError(f"{name} {text!r} is no list of numbers such as 1,2") from error
        cores = usable_cores()
        if not all(1 <= each <= cores for each in found):
            raise UsageError(f"{name} {text}: this machine has {cores} usable cores; give 1 to {cores}")
        return found

    return click.Option([name], default=default, show_default=True, metavar="N,N", callback=parse, help=help)


def workers(help: str = "Workers.", least: int = 1) -> click.Option:
    """Return the option of one number of threads, ``--threads``."""

    def check(_context: click.Context, _option: click.Parameter, value: int) -> int:
        from autotune.hardware import check_threads

        check_threads(value, allow_oversubscription=False)
        return value

    made = number("--threads", 2, help, least)
    made.callback = check
    return made


def listed(
    name: str, default: str, help: str, known: Callable[[], Iterable[str]] | None = None, what: str = "name"
) -> click.Option:
    """Return the option of a list with commas of names; unless ``known`` is None, each must be among those."""

    def parse(_context: click.Context, _option: click.Parameter, text: str) -> tuple[str, ...]:
        found = tuple(dict.fromkeys(part for part in map(str.strip, text.split(",")) if part))
        if known is not None:
            check_known(found, known(), what)
        return found

    return click.Option(
        [name], default=default, show_default=bool(default), metavar="NAME,NAME", callback=parse, help=help
    )


def seed() -> click.Option:
    """Return the option of a seed."""

    def check(_context: click.Context, _option: click.Parameter, value: int) -> int:
        from autotune.runtime.random_inputs import checked_seed

        return checked_seed(value)

    return click.Option(
        ["--seed"], type=int, default=0, show_default=True, callback=check, help="Seed of everything random."
    )


def peer_python() -> click.Option:
    """Return the option ``--peer-python``, which arrives as ``peer_pythons``."""
    return click.Option(
        ["--peer-python", "peer_pythons"],
        multiple=True,
        type=click.Path(dir_okay=False),
        metavar="PYTHON",
        help="Interpreter of an environment that has peers; may be given several times. "
        "This environment is looked into first.",
    )


def onnxruntime(default: str = "onnxruntime") -> tuple[click.Option, click.Option]:
    """Return the options of an experiment whose only peer is ONNX Runtime."""
    choice = click.Choice(["onnxruntime", "none"])
    return click.Option(["--peers"], type=choice, default=default, show_default=True), peer_python()


def side_by_side(
    threads_default: str, peers: str, rounds: int, of_what: str, trials: str = "--trials"
) -> tuple[click.Option, ...]:
    """Return the options of experiments with peers, as :func:`autotune.bench.compare.plan_of` takes them.

    ``trials`` is the option for tuning, ``of_what`` what each has so many trials.
    """
    return (
        threads(threads_default),
        click.Option(
            ["--db", "database"],
            metavar="FILE|URL",
            help="Also measure with the schedules that this tuning database knows.",
        ),
        click.Option(
            [trials, "trials"],
            type=click.IntRange(1),
            metavar="N",
            help=f"First tune until the database has N runs of each {of_what}, or nothing more is gained.",
        ),
        click.Option(
            ["--tune-minutes", "minutes"],
            type=click.FloatRange(0.0, min_open=True),
            metavar="M",
            help="Time for all tuning together, in equal shares; the table has what was reached.",
        ),
        click.Option(
            ["--peers"],
            default=peers,
            show_default=True,
            metavar="NAMES",
            callback=lambda _context, _option, text: _names(text),
            help="Systems to compare with: onnxruntime, openvino, torch, metaschedule (operators, tuned "
            "first), earlier (another version of autotune, untuned, of a --peer-python); or none.",
        ),
        peer_python(),
        number("--peer-trials", 64, "Trials that a peer that tunes gets for each operator."),
        click.Option(
            ["--peer-minutes"],
            type=click.FloatRange(0.0, min_open=True),
            default=30.0,
            show_default=True,
            metavar="M",
            help="After so many minutes its tuner is ended; what it has found by then counts.",
        ),
        folder("--peer-folder", "Where it keeps what it found, so that the next run need not tune it again."),
        number("--rounds", rounds, "Turns that each competitor gets."),
        number("--processes", 3, "Fresh processes of each competitor that share its turns."),
        click.Option(
            ["--turn"],
            type=click.FloatRange(0.001, 10.0),
            default=0.1,
            show_default=True,
            metavar="SECONDS",
            help="How long each competitor runs in a round.",
        ),
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name) if text != "none" else ()


def check_known(names: Iterable[str], known: Iterable[str], what: str) -> None:
    """Raise UsageError for the first of the names that is not known."""
    every = dict.fromkeys(known)
    for name in sorted(set(names) - set(every)):
        raise UsageError(f"unknown {what} {name!r}; there are: {listing(name, every)}")


__all__ = [
    "check_known",
    "folder",
    "folders",
    "listed",
    "number",
    "numbers",
    "onnxruntime",
    "peer_python",
    "seconds",
    "seed",
    "side_by_side",
    "threads",
    "words",
    "workers",
]
