"""Groups of commands: what each does in a whole sentence, and what a misspelt one was meant to be."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.cli.defaults import with_defaults
from autotune.suggest import did_you_mean

_WHOLE = 1000
"""Letters of a sentence that are shown: all of them."""


class SuggestingGroup(click.Group):
    """Says which command comes nearest to one that there is not."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with the first sentence of each, in lines as long as the terminal has them."""
        found = ((name, self.get_command(context, name)) for name in self.list_commands(context))
        rows = [(name, command.get_short_help_str(_WHOLE)) for name, command in found if command is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the first argument; raises UsageError."""
        name = arguments[0]
        if not name.startswith("-") and self.get_command(context, name) is None:
            raise click.UsageError(f"No such command {name!r}{self._advice(context, name)}", context)
        found, command, rest = super().resolve_command(context, arguments)
        return found, None if command is None else with_defaults(command), rest

    def _advice(self, context: click.Context, name: str) -> str:
        if context.parent is None and (name.startswith("zoo:") or Path(name).suffix in (".onnx", ".atm")):
            return f"; a model comes after a command, for example: autotune run {name} --random"
        known = self.list_commands(context)
        return did_you_mean(name, known) or f"; there are: {', '.join(known)}"


__all__ = ["SuggestingGroup"]
