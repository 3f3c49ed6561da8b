"""Options that the benchmarks share, and how they say what they do and write what they found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from autotune.cli.options import print_json
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.bench.tables import Document

F = TypeVar("F", bound=Callable[..., Any])

_PRIVATE = ("peer_pythons", "peer_folder", "database")
"""Parameters whose folders are nobody else's business: pages show the file name only."""


def output_option(command: F) -> F:
    """``-o``: where the page goes."""
    return click.option(
        "-o",
        "--output",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE.md",
        help="Write the tables as Markdown, with the command, machine and date.",
    )(command)


def threads_option(default: str) -> Callable[[F], F]:
    """``--threads 1,2``."""
    return click.option(
        "--threads",
        default=default,
        show_default=True,
        metavar="N,N",
        callback=lambda _context, _parameter, value: _numbers(value),
        help="Numbers of threads, each measured by itself.",
    )


def _numbers(text: str) -> tuple[int, ...]:
    from autotune.hardware import usable_cores

    try:
        found = tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError as error:
        raise UsageError(f"--threads {text!r} is no list of numbers such as 1,2") from error
    cores = usable_cores()
    if not all(1 <= number <= cores for number in found):
        raise UsageError(f"--threads {text}: this machine has {cores} usable cores; give 1 to {cores}")
    return found


def say(text: str) -> None:
    """Progress, on standard error: standard output is for the result."""
    click.echo(text, err=True)


def command_line(context: click.Context) -> str:
    """The command as it was given, without folders of this machine."""
    words = [context.command_path]
    for parameter in context.command.params:
        if context.get_parameter_source(parameter.name or "") is not ParameterSource.COMMANDLINE:
            continue
        words += _words(parameter, context.params[parameter.name or ""])
    return " ".join(words)


def _words(parameter: click.Parameter, value: Any) -> list[str]:
    if parameter.name == "peer_pythons":
        return [word for _ in value for word in (parameter.opts[0], "PYTHON")]
    if isinstance(parameter, click.Argument):
        return [str(item) for item in value] if isinstance(value, tuple) else [str(value)]
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return [parameter.opts[0]]
    if isinstance(value, tuple):
        return [parameter.opts[0], ",".join(map(str, value)) or "none"]
    text = Path(str(value)).name if parameter.name in _PRIVATE else str(value)
    return [parameter.opts[0], text]


def saver(output: Path | None) -> Callable[[Document], None] | None:
    """Writes the page so far: what was measured stays, whatever stops the command."""
    if output is None:
        return None
    where = output
    return lambda document: document.write(where)


def finish(document: Document, output: Path | None, as_json: bool) -> None:
    """Write the page if asked, and print the tables or JSON."""
    if output is not None:
        document.write(output)
    if as_json:
        print_json(document.to_json())
    else:
        document.show()


__all__ = ["command_line", "finish", "output_option", "saver", "say", "threads_option"]
