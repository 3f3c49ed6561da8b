"""Options that the benchmarks share, and how they say what they do and write what they found."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click
from click.core import ParameterSource

from autotune.cli.echo import echo
from autotune.cli.options import json_option, print_json
from autotune.errors import UsageError
from autotune.suggest import listing

if TYPE_CHECKING:
    from autotune.bench.tables import Document, Table

Command: TypeAlias = Callable[..., None]
F = TypeVar("F", bound=Callable[..., Any])

_PRIVATE = ("peer_pythons", "peer_folder", "folder", "database")
"""Parameters whose folders are nobody else's business: pages show the file name only."""


@dataclass(frozen=True)
class Output:
    """The destination of a benchmark's page, with its lines beside the tables: the command line and the machine."""

    command: str
    facts: Mapping[str, str]
    path: Path | None
    as_json: bool

    def document(
        self,
        title: str,
        about: str,
        tables: Iterable[Table] = (),
        data: Any = None,
        notes: Iterable[str] = (),
    ) -> Document:
        """Return the page."""
        from autotune.bench.tables import Document

        return Document(title, self.command, self.facts, tuple(tables), data, about, tuple(notes))

    def save(self, document: Document) -> None:
        """Write the page so far if asked: what was measured stays, whatever stops the command."""
        if self.path is not None:
            document.write(self.path)

    def finish(self, document: Document) -> None:
        """Write the page if asked, and print the tables or JSON."""
        self.save(document)
        if self.as_json:
            print_json(document.to_json())
        else:
            document.show()


def with_output(command: Command) -> Command:
    """Return ``-o`` and ``--json``, which the command gets as :class:`Output`, its first argument."""

    @functools.wraps(command)
    def writing(output: Path | None, as_json: bool, **values: Any) -> None:
        from autotune.bench import machine

        line = command_line(click.get_current_context())
        command(Output(line, machine.facts(), output, as_json), **values)

    page = click.option(
        "-o",
        "--output",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE.md",
        help="Write the tables as Markdown, with the command, machine and date.",
    )
    made: Command = page(json_option(writing))
    return made


def number_option(name: str, default: int, help: str, least: int = 1) -> Callable[[F], F]:
    """Return a whole number that is ``least`` or more."""
    return click.option(
        name, type=click.IntRange(least), default=default, show_default=True, metavar="N", help=help
    )


def threads_option(
    default: str, name: str = "--threads", help: str = "Numbers of threads, each measured by itself."
) -> Callable[[F], F]:
    """Return ``--threads 1,2``."""
    return click.option(
        name,
        default=default,
        show_default=True,
        metavar="N,N",
        callback=lambda _context, _parameter, value: _numbers(value),
        help=help,
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
    echo(text, err=True)


def command_line(context: click.Context) -> str:
    """Return the command as it was given, without folders of this machine."""
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
    if isinstance(parameter, click.Option) and parameter.multiple:
        return [word for one in value for word in (parameter.opts[0], str(one))]
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return [parameter.opts[0]]
    if isinstance(value, (tuple, list)):
        return [parameter.opts[0], ",".join(map(str, value)) or "none"]
    text = Path(str(value)).name if parameter.name in _PRIVATE else str(value)
    return [parameter.opts[0], text]


def check_known(names: Iterable[str], known: Iterable[str], what: str) -> None:
    """Raise UsageError for the first of the names that is not known."""
    listed = dict.fromkeys(known)
    for name in sorted(set(names) - set(listed)):
        raise UsageError(f"unknown {what} {name!r}; there are: {listing(name, listed)}")


__all__ = [
    "Command",
    "Output",
    "check_known",
    "command_line",
    "number_option",
    "say",
    "threads_option",
    "with_output",
]
