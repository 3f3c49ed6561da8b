"""``autotune bench``: each benchmark is a module ``autotune.cli.bench_NAME`` with a ``command``."""

from __future__ import annotations

import importlib
import pkgutil

import click

import autotune.cli
from autotune.cli.groups import SuggestingGroup

_PREFIX = "bench_"


class BenchGroup(SuggestingGroup):
    """Finds the benchmarks by their module names."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Return names of all benchmarks."""
        modules = (module.name for module in pkgutil.iter_modules(autotune.cli.__path__))
        found = (name.removeprefix(_PREFIX) for name in modules if name.startswith(_PREFIX))
        return sorted(name.replace("_", "-") for name in found)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import a benchmark."""
        if name not in self.list_commands(context):
            return None
        found: click.Command = importlib.import_module(_module(name)).command
        return found


def _module(name: str) -> str:
    return f"autotune.cli.{_PREFIX}{name.replace('-', '_')}"


@click.group(cls=BenchGroup, epilog="Example: autotune bench models")
def command() -> None:
    """Benchmarks; they print tables, and compare with other systems side by side."""


__all__ = ["BenchGroup", "command"]
