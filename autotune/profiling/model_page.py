"""A compiled model as one page of HTML that needs nothing else: the graph of its dispatches, and the facts of each."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence

from autotune.profiling import graph_picture
from autotune.profiling.facts import DispatchFacts, ModelFacts, roof_text
from autotune.suggest import counted
from autotune.tuning.report.html import Markup, document, element
from autotune.tuning.report.page import STYLE
from autotune.tuning.report.units import nanoseconds


def model_page(facts: ModelFacts, about: Sequence[str]) -> str:
    """Return the page of a model; ``about`` are lines on its coverage, memory and schedules."""
    expected = facts.expected
    low, high = map(nanoseconds, expected.interval_ns)
    many = counted(len(facts.dispatches), "dispatch")
    sources = ", ".join(f"{count} {source}" for source, count in expected.sources.items())
    headline = f"Expected latency {nanoseconds(expected.latency_ns)} ({low} to {high})"
    panel = element(
        "div",
        "Choose a dispatch to see its facts.",
        id="facts",
        role="region",
        tabindex="0",
        aria_label="Facts",
    )
    body = [
        element("header", element("h1", expected.model), element("p", f"{many}: {sources}", class_="faint")),
        element("p", f"{headline} with {counted(expected.threads, 'thread')}", class_="headline"),
        *(element("p", line) for line in about),
        element("h2", "Dispatches and what they read"),
        graph_picture.tools(),
        element("div", graph_picture.picture(facts), panel, class_="panes"),
        element("h2", "All dispatches, in their order"),
        *(_details(number, each) for number, each in enumerate(facts.dispatches)),
    ]
    script = element("script", Markup(graph_picture.SCRIPT))
    style = STYLE + graph_picture.STYLE
    return document(
        f"{expected.model}: dispatches",
        style,
        element("main", *body),
        script,
        head=only(graph_picture.SCRIPT),
    )


def only(script: str) -> Markup:
    """Return the policy by which a page runs this script, and loads nothing."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return Markup(f'<meta http-equiv="Content-Security-Policy" content="{policy}">')


def _details(number: int, facts: DispatchFacts) -> Markup:
    said = f"{facts.name}: {nanoseconds(facts.latency_ns)}, {100 * facts.share:.1f} %"
    pairs = element(
        "dl", *(part for name, text in _facts(facts) for part in (element("dt", name), element("dd", text)))
    )
    schedule = element("pre", facts.trace, tabindex="0")
    return element("details", element("summary", said), pairs, schedule, id=f"d{number}")


def _facts(facts: DispatchFacts) -> Iterator[tuple[str, str]]:
    low, high = map(nanoseconds, facts.interval_ns)
    yield "time", f"{nanoseconds(facts.latency_ns)} ({low} to {high}), {facts.source}"
    yield "share", f"{100 * facts.share:.1f} % of the model"
    yield "roofline", roof_text(facts.of_roof, facts.bound)
    yield "evidence", facts.evidence
    yield "nodes", ", ".join(facts.nodes) or "none of the model's"
    yield "kind", facts.kind
    yield "fused", ", ".join(facts.operators)
    yield "reads", "; ".join(facts.reads) or "nothing"
    yield "writes", "; ".join(facts.writes)
    yield "schedule", facts.schedule


__all__ = ["model_page", "only"]
