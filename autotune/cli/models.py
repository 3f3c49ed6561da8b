"""``autotune models``: versions of the cost model, their training data, and promotion and rollback."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from autotune.cli import models_evaluate
from autotune.cli.echo import echo
from autotune.cli.groups import SuggestingGroup
from autotune.cli.options import json_option, print_json
from autotune.errors import CostModelError
from autotune.suggest import counted

if TYPE_CHECKING:
    from cost_models.manifest import RankerManifest
    from cost_models.registry import Registry


@click.group(cls=SuggestingGroup, epilog="Example: autotune models list")
def command() -> None:
    """Manage versions of the cost model: list, show, use, roll back, evaluate."""


command.add_command(models_evaluate.command)


def _registry() -> Registry:
    from autotune.tuning.api import cost_model_registry

    return cost_model_registry()


def _serving(registry: Registry) -> str | None:
    """Return the version in use, or the level of the model that is built in for this machine; None for
    the analytic one."""
    from autotune.target import Target

    return registry.current() or registry.default(Target.detect())


def _used(registry: Registry) -> str:
    name = _serving(registry)
    return f"{_title(registry, name)} is in use" if name else "the analytic model is used alone"


def _title(registry: Registry, name: str) -> str:
    from cost_models import builtin

    return name if name in registry.versions() else builtin.title(name)


@command.command("list", epilog="Example: autotune models list --json")
@json_option
def list_versions(as_json: bool) -> None:
    """List the built-in models, the versions, oldest first, and which is in use on this machine."""
    registry = _registry()
    serving = _serving(registry)
    names = [*registry.defaults.levels(), *registry.versions()]
    found = [(name, _read(registry, name)) for name in names]
    if as_json:
        versions = [{"version": name, "in_use": name == serving, **_facts(m)} for name, m in found]
        print_json({"folder": str(registry.folder), "in_use": serving, "versions": versions})
        return
    for name, manifest in found:
        mark = "*" if name == serving else " "
        line = manifest if isinstance(manifest, str) else _line(manifest)
        echo(f"{mark} {_title(registry, name)}  {line}")
    echo(f"{_used(registry)}; cost models in {registry.folder}")


@command.command(epilog="Example: autotune models show v0002")
@click.argument("version", required=False)
@json_option
def show(version: str | None, as_json: bool) -> None:
    """Show the training data and accuracy of VERSION, or of the one in use; x86-64-v3 is what is built in for that."""
    registry = _registry()
    serving = _serving(registry)
    name = version or serving
    if name is None:
        raise CostModelError(
            f"no cost model is in use in {registry.folder}: the analytic model is used alone"
        )
    manifest = _manifest(registry, name)
    if as_json:
        print_json({"version": name, "in_use": name == serving, **_facts(manifest)})
        return
    echo(f"{_title(registry, name)}{', in use' if name == serving else ''}: {_line(manifest)}")
    for line in _details(manifest):
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
    replaced = _serving(registry)
    before = _title(registry, replaced) if replaced else "the analytic model"
    do(registry)
    now = _serving(registry)
    if as_json:
        print_json({"version": now, "replaced": replaced, "folder": str(registry.folder)})
        return
    instead = f" instead of {before}" if now != replaced else ", as before"
    echo(f"{_used(registry)}{instead}; cost models in {registry.folder}")


def _manifest(registry: Registry, name: str) -> RankerManifest:
    return registry.defaults.manifest(name) if name in registry.defaults.levels() else registry.manifest(name)


def _read(registry: Registry, version: str) -> RankerManifest | str:
    """Return the manifest, or why it cannot be read."""
    try:
        return _manifest(registry, version)
    except CostModelError as error:
        return str(error)


def _facts(manifest: RankerManifest | str) -> dict[str, Any]:
    return {"error": manifest} if isinstance(manifest, str) else asdict(manifest)


def _line(manifest: RankerManifest) -> str:
    parts = [
        f"made {manifest.created}" if manifest.created else "",
        f"{counted(manifest.rows, 'run')} of {counted(len(manifest.folds), 'workload')}",
        f"replaced {manifest.parent or 'no other version'}",
        *_measures(manifest, "new"),
    ]
    return ", ".join(filter(None, parts))


def _measures(manifest: RankerManifest, judged: str) -> list[str]:
    found = manifest.metrics.get(judged, {})
    names = {"pairwise": "pairwise", "top1": "top-1", "top5": "top-5"}
    return [f"{text} {found[name][0]:.3f}" for name, text in names.items() if name in found]


def _details(manifest: RankerManifest) -> list[str]:
    lines = [f"promoted: {manifest.reason}"] if manifest.reason else []
    for judged, found in manifest.metrics.items():
        about = f" over {found['workloads']} held-out workloads" if "workloads" in found else ""
        lines.append(f"{judged}: {', '.join(_measures(manifest, judged))}{about}")
    for source in manifest.sources:
        lines.append(f"learnt from {source.name}: {source.runs} runs, {source.first} to {source.last}")
    lines.append(
        f"latencies over the default's: {manifest.latency_range[0]:.3g} to {manifest.latency_range[1]:.3g}"
    )
    lines += [f"target {target[:12]}" for target in manifest.targets]
    lines.append(f"features {manifest.schema[:12]}, objective {manifest.objective}")
    lines.append("made by " + ", ".join(f"{name} {version}" for name, version in manifest.versions.items()))
    return lines


__all__ = ["command"]
