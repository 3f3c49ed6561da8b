"""Cost models as text: versions, their training data, and how well they rank what they have not seen."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from autotune.errors import CostModelError
from autotune.suggest import counted

if TYPE_CHECKING:
    from cost_models.manifest import RankerManifest
    from cost_models.registry import Registry


def known(registry: Registry) -> list[tuple[str, RankerManifest | str]]:
    """Return the built-in models and the versions, oldest first, each with its manifest or why it cannot be read."""
    names = [*registry.defaults.levels(), *registry.versions()]
    return [(name, _read(registry, name)) for name in names]


def serving(registry: Registry) -> str | None:
    """Return the version in use, or the level of the model that is built in for this machine; None for
    the analytic one."""
    from autotune.target import Target

    return registry.current() or registry.default(Target.detect())


def title(registry: Registry, name: str) -> str:
    """Return the name of a model that people know."""
    from cost_models import builtin

    return name if name in registry.versions() else builtin.title(name)


def manifest_of(registry: Registry, name: str) -> RankerManifest:
    """Return the manifest of a version or of what is built in; raises CostModelError for an unknown one."""
    return registry.defaults.manifest(name) if name in registry.defaults.levels() else registry.manifest(name)


def _read(registry: Registry, version: str) -> RankerManifest | str:
    """Return the manifest, or why it cannot be read."""
    try:
        return manifest_of(registry, version)
    except CostModelError as error:
        return str(error)


def facts(manifest: RankerManifest | str) -> dict[str, Any]:
    """Return all of a manifest, or why there is none, as JSON values."""
    return {"error": manifest} if isinstance(manifest, str) else asdict(manifest)


def line(manifest: RankerManifest) -> str:
    """Return a model in a line."""
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


def details(manifest: RankerManifest) -> list[str]:
    """Return all else that is known of a model, a line each."""
    lines = [f"promoted: {manifest.reason}"] if manifest.reason else []
    for judged, found in manifest.metrics.items():
        about = f" over {counted(found['workloads'], 'held-out workload')}" if "workloads" in found else ""
        lines.append(f"{judged}: {', '.join(_measures(manifest, judged))}{about}")
    for source in manifest.sources:
        lines.append(
            f"learnt from {source.name}: {counted(source.runs, 'run')}, {source.first} to {source.last}"
        )
    lines.append(
        f"latencies over the default's: {manifest.latency_range[0]:.3g} to {manifest.latency_range[1]:.3g}"
    )
    lines += [f"target {target[:12]}" for target in manifest.targets]
    lines.append(f"features {manifest.schema[:12]}, objective {manifest.objective}")
    lines.append("made by " + ", ".join(f"{name} {version}" for name, version in manifest.versions.items()))
    return lines


__all__ = ["details", "facts", "known", "line", "manifest_of", "serving", "title"]
