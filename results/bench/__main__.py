"""``python -m results.bench NAME``: each benchmark is a module ``results.bench.command_NAME`` with a ``command``."""

from __future__ import annotations

import importlib
from pathlib import Path

import click

from autotune.cli.groups import SuggestingGroup
from autotune.cli.main import main


class BenchGroup(SuggestingGroup):
    """Finds the benchmarks by their module names."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Names of all benchmarks."""
        found = Path(__file__).parent.glob("command_*.py")
        return sorted(path.stem.removeprefix("command_").replace("_", "-") for path in found)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import a benchmark."""
        if name not in self.list_commands(context):
            return None
        module = importlib.import_module(f"results.bench.command_{name.replace('-', '_')}")
        found: click.Command = module.command
        return found


@click.group(
    cls=BenchGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: python -m results.bench overhead",
)
def command() -> None:
    """Benchmarks; they print tables, and compare with other systems side by side."""


if __name__ == "__main__":
    main(None, command, "python -m results.bench")
