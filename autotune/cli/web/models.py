"""The page of cost models: the versions, which is in use, and how well each ranks what it has not seen."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.cli import model_lines
from autotune.cli.web.frame import Page
from autotune.database import Database
from autotune.tuning.api import cost_model_registry
from autotune.tuning.report.html import Markup, element, joined, table
from cost_models.evaluate import MEASURES
from cost_models.manifest import RankerManifest
from cost_models.registry import Registry

_MEANINGS = (
    "pairwise: the share of pairs of candidates in the right order. top1 and top5: the best latency over the best of "
    "the first one or five that a job would try. regret: the latency of the first over the best, less 1. batch: the "
    "logarithm of the best latency over the best of the first eight, in the mean. Intervals: held-out workloads."
)


def models_page(_store: Database) -> Page:
    """Return the page of the cost models of this machine's user."""
    registry = cost_model_registry()
    used, found = model_lines.serving(registry), model_lines.known(registry)
    parts = {"about": _about(registry, used)}
    for number, (name, manifest) in enumerate(reversed(found)):
        parts[f"model{number}"] = joined(_model(registry, name, manifest, used=name == used))
    return Page("Cost models", parts, "/models", live=False)


def _about(registry: Registry, used: str | None) -> Markup:
    which = f"{model_lines.title(registry, used)} is in use" if used else "The analytic model is used alone"
    text = (
        f"{which} on this machine. All in {registry.folder}, the newest first; `autotune retrain` adds one."
    )
    return joined([element("h1", "Cost models"), element("p", text), element("p", _MEANINGS, class_="faint")])


def _model(registry: Registry, name: str, manifest: RankerManifest | str, *, used: bool) -> Iterator[Markup]:
    yield element("h2", model_lines.title(registry, name) + (", in use" if used else ""))
    if isinstance(manifest, str):
        yield element("p", f"It cannot be read: {manifest}.")
        return
    yield element("p", model_lines.line(manifest))
    rows = [
        [judged, *(_interval(found.get(name)) for name in MEASURES)]
        for judged, found in manifest.metrics.items()
    ]
    if rows:
        yield table(("judged", *MEASURES), rows, range(1, len(MEASURES) + 1))
    yield element("ul", *(element("li", text) for text in model_lines.details(manifest)))


def _interval(found: object) -> str:
    """Return a mean with its interval."""
    if not isinstance(found, list | tuple) or len(found) != 3:
        return "-"
    return "{:.3f} ({:.3f} to {:.3f})".format(*found)


__all__ = ["models_page"]
