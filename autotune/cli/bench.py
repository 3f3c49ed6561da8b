"""``autotune bench``: a command for each experiment that is declared."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import click

from autotune.bench.experiments import EXPERIMENTS
from autotune.cli.experiment import command_of
from autotune.cli.groups import SuggestingGroup


class BenchGroup(SuggestingGroup):
    """Makes commands of experiments, by the names of their modules, when they are asked for."""

    def __init__(self, *, experiments: Mapping[str, str], called: str, **rest: object) -> None:
        super().__init__(**rest)  # type: ignore[arg-type]
        self._experiments = experiments
        self._called = called

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names of all experiments."""
        return list(self._experiments)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import an experiment and return its command."""
        if name not in self._experiments:
            return None
        experiment = importlib.import_module(self._experiments[name]).EXPERIMENT
        return command_of(experiment, name, f"{self._called} {name}")


@click.group(
    cls=BenchGroup, experiments=EXPERIMENTS, called="autotune bench", epilog="Example: autotune bench models"
)
def command() -> None:
    """Benchmarks; they print tables, and compare with other systems side by side."""


__all__ = ["BenchGroup", "command"]
