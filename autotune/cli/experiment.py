"""Commands of experiments: options, page and JSON from what an experiment declares."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from click.core import ParameterSource

from autotune.cli.common import json_option, print_json
from autotune.cli.echo import echo

if TYPE_CHECKING:
    from pandas import DataFrame

    from autotune.bench.experiment import Experiment
    from autotune.bench.tables import Document, Table

Command: TypeAlias = Callable[..., None]

_PRIVATE = ("peer_pythons", "peer_folder", "folder", "database")
"""Parameters whose folders are nobody else's business: pages show the file name only."""


def command_of(experiment: Experiment, name: str, called: str) -> click.Command:
    """Return the command of an experiment; ``called`` is what its user writes before its options."""

    @with_output
    def measuring(output: Output, **options: Any) -> None:
        from autotune.bench.experiment import frame_of, rows_of

        about = experiment.about if isinstance(experiment.about, str) else experiment.about(options)
        frame = frame_of(())
        for frame in experiment.frames(options, say):
            if output.path is not None:
                output.save(_page(experiment, about, output, frame))
        output.finish(_page(experiment, about, output, frame))
        experiment.check(rows_of(frame))

    return click.command(
        name,
        params=[*experiment.options],
        help=experiment.summary,
        epilog=f"Example: {called} {experiment.example}".rstrip(),
    )(measuring)


def _page(experiment: Experiment, about: str, output: Output, frame: DataFrame) -> Document:
    from autotune.bench import machine
    from autotune.bench.experiment import rows_of

    rows = rows_of(frame)
    versions = {row["label"]: row["version"] for row in rows if row.get("version")}
    facts = machine.with_peers(output.facts, versions)
    tables = experiment.tables(frame)
    page = Output(output.command, facts, output.path, output.as_json)
    data = [{column: _as_json(cell) for column, cell in row.items()} for row in rows]
    return page.document(experiment.title, about, tables, data, experiment.notes(rows))


def _as_json(cell: Any) -> Any:
    if is_dataclass(cell) and not isinstance(cell, type):
        return asdict(cell)
    return [_as_json(one) for one in cell] if isinstance(cell, (tuple, list)) else cell


@dataclass(frozen=True)
class Output:
    """The destination of a page, with its lines beside the tables: the command line and the machine."""

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
    """Add ``-o`` and ``--json``, which the command gets as :class:`Output`, its first argument."""

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


def say(text: str) -> None:
    """Print progress on standard error: standard output is for the result."""
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
        return [(parameter.opts if value else parameter.secondary_opts)[0]]
    if isinstance(value, (tuple, list)):
        return [parameter.opts[0], ",".join(map(str, value)) or "none"]
    text = Path(str(value)).name if parameter.name in _PRIVATE else str(value)
    return [parameter.opts[0], text]


__all__ = ["Output", "command_line", "command_of", "say", "with_output"]
