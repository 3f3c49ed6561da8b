"""``autotune models``: versions of the cost model, their training data, and promotion and rollback."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from autotune.cli import model_lines, models_evaluate
from autotune.cli.common import json_option, print_json
from autotune.cli.echo import echo
from autotune.cli.groups import SuggestingGroup
from autotune.errors import CostModelError

if TYPE_CHECKING:
    from cost_models.registry import Registry


@click.group(cls=SuggestingGroup, epilog="Example: autotune models list")
def command() -> None:
    """Manage versions of the cost model: list, show, use, roll back, evaluate."""


command.add_command(models_evaluate.command)


def _registry() -> Registry:
    from autotune.tuning.api import cost_model_registry

    return cost_model_registry()


def _used(registry: Registry) -> str:
    name = model_lines.serving(registry)
    return f"{model_lines.title(registry, name)} is in use" if name else "the analytic model is used alone"


@command.command("list", epilog="Example: autotune models list --json")
@json_option
def list_versions(as_json: bool) -> None:
    """List the built-in models, the versions, oldest first, and which is in use on this machine."""
    registry = _registry()
    serving = model_lines.serving(registry)
    found = model_lines.known(registry)
    if as_json:
        versions = [{"version": name, "in_use": name == serving, **model_lines.facts(m)} for name, m in found]
        print_json({"folder": str(registry.folder), "in_use": serving, "versions": versions})
        return
    for name, manifest in found:
        mark = "*" if name == serving else " "
        line = manifest if isinstance(manifest, str) else model_lines.line(manifest)
        echo(f"{mark} {model_lines.title(registry, name)}  {line}")
    echo(f"{_used(registry)}; cost models in {registry.folder}")


@command.command(epilog="Example: autotune models show v0002")
@click.argument("version", required=False)
@json_option
def show(version: str | None, as_json: bool) -> None:
    """Show the training data and accuracy of VERSION, or of the one in use; x86-64-v3 is what is built in for that."""
    registry = _registry()
    serving = model_lines.serving(registry)
    name = version or serving
    if name is None:
        raise CostModelError(
            f"no cost model is in use in {registry.folder}: the analytic model is used alone"
        )
    manifest = model_lines.manifest_of(registry, name)
    if as_json:
        print_json({"version": name, "in_use": name == serving, **model_lines.facts(manifest)})
        return
    echo(
        f"{model_lines.title(registry, name)}{', in use' if name == serving else ''}: {model_lines.line(manifest)}"
    )
    for line in model_lines.details(manifest):
        echo(f"  {line}")


@command.command(epilog="Example: autotune models rollback")
@json_option
def rollback(as_json: bool) -> None:
    """Use what is in use instead of: an earlier version, then what is built in, then the analytic model alone."""
    _change(lambda registry: registry.rollback(), as_json)


@command.command(epilog="Example: autotune models use builtin")
@click.argument("name", metavar="VERSION|builtin|analytic")
@json_option
def use(name: str, as_json: bool) -> None:
    """Use a version, what is built in for this machine, or the analytic model alone, until the next promotion.

    What is built in can be used again after a rollback beyond it, and a version that was rolled back.
    """
    _change(lambda registry: registry.use(name), as_json)


def _change(do: Callable[[Registry], object], as_json: bool) -> None:
    """Put something else in use, and say what, and what it replaced."""
    registry = _registry()
    replaced = model_lines.serving(registry)
    before = model_lines.title(registry, replaced) if replaced else "the analytic model"
    do(registry)
    now = model_lines.serving(registry)
    if as_json:
        print_json({"version": now, "replaced": replaced, "folder": str(registry.folder)})
        return
    instead = f" instead of {before}" if now != replaced else ", as before"
    echo(f"{_used(registry)}{instead}; cost models in {registry.folder}")


__all__ = ["command"]
