"""The frame of a served page: its navigation, its parts, and the script that replaces those that have changed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.tuning.report.html import Markup, Part, document, element, joined
from autotune.tuning.report.page import STYLE

TABS = {"/": "Jobs", "/workloads": "Workloads", "/models": "Cost models"}
_STYLE = """
:root { --good: #0a6b2d; --bad: #a3290b; }
@media (prefers-color-scheme: dark) { :root { --good: #6fd391; --bad: #ff9c80; } }
body { max-width: 80rem; }
a { color: var(--after); } :focus-visible { outline: 2px solid var(--after); outline-offset: 2px; }
.skip { position: absolute; left: -99rem; } .skip:focus { left: 1rem; top: .25rem; background: var(--paper); }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; align-items: baseline; margin-bottom: 1.5rem;
  padding-bottom: .5rem; border-bottom: 1px solid var(--line); }
nav a { padding: .25rem 0; text-decoration: none; }
nav a[aria-current] { color: inherit; font-weight: 600; border-bottom: 2px solid var(--after); }
nav .faint { margin-left: auto; font-size: .85rem; overflow-wrap: anywhere; }
#problem { background: var(--box); border-left: 4px solid var(--bad); padding: .5rem 1rem; margin: 0 0 1rem; }
form { display: flex; flex-wrap: wrap; gap: .5rem; align-items: center; margin: 1rem 0; }
input, button { font: inherit; padding: .3rem .6rem; color: inherit; background: var(--box);
  border: 1px solid var(--faint); border-radius: 4px; min-width: 0; }
input { flex: 0 1 24rem; }
td { vertical-align: top; }
td .faint { display: block; font-size: .85rem; white-space: normal; overflow-wrap: anywhere; }
.list td:nth-child(2) { white-space: normal; overflow-wrap: anywhere; width: 100%; }
.names { columns: 26rem; column-gap: 3rem; padding-left: 1.2rem; } .names li { break-inside: avoid; }
.state { font-weight: 600; } .good { color: var(--good); } .bad { color: var(--bad); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.25rem; margin: 1rem 0; }
dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; }
.plot { width: 100%; height: 12rem; background: var(--box); }
.plot path { fill: none; stroke: var(--after); stroke-width: 2; vector-effect: non-scaling-stroke; }
.plot .dots { stroke: var(--before); stroke-width: 5; stroke-linecap: round; }
summary { cursor: pointer; padding: .25rem 0; overflow-wrap: anywhere; }
@media (max-width: 40rem) { .less { display: none; } dl { grid-template-columns: 1fr; } dt { margin-top: .4rem; }
  nav .faint { margin-left: 0; width: 100%; } }
@media print { nav, form, .skip { display: none; } }
"""
SCRIPT = """
const note = document.getElementById("problem");
const say = text => { note.textContent = text; note.hidden = !text; };
let source;
function open() {
  source = new EventSource(location.href);
  source.onerror = () => say("The server does not answer: what is shown is old. Trying again …");
  source.onmessage = event => {
    const { problem, parts } = JSON.parse(event.data);
    say(problem);
    for (const [id, [key, html]] of Object.entries(parts)) show(document.getElementById(id), key, html);
  };
}
// Keeps the focus, what is opened and how far tables are scrolled.
function show(part, key, html) {
  if (!part || part.dataset.key === key) return;
  const all = query => [...part.querySelectorAll(query)];
  const focus = "a, input, summary, [tabindex]";
  const at = all(focus).indexOf(document.activeElement);
  const scrolled = all(".wide").map(each => each.scrollLeft), opened = all("details").map(each => each.open);
  part.innerHTML = html;
  part.dataset.key = key;
  all(".wide").forEach((each, number) => { each.scrollLeft = scrolled[number] || 0; });
  all("details").forEach((each, number) => { each.open = opened[number] ?? each.open; });
  if (at >= 0) all(focus)[at]?.focus({ preventScroll: true });
}
// A browser has six connections to a server: pages that nobody sees give theirs back.
document.addEventListener("visibilitychange", () => { source?.close(); if (!document.hidden) open(); });
if (!document.hidden) open();
"""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; "
    "img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Vary": "Accept",
}


@dataclass(frozen=True)
class Page:
    """A page of ``parts`` by their ids, in their order; where it is ``live`` those that change are replaced.

    ``tab`` is the path that the navigation marks as the present one.
    """

    title: str
    parts: Mapping[str, Markup]
    tab: str = ""
    live: bool = True

    def rendered(self, database: str) -> str:
        """Return the page as a document."""
        head = ['<link rel="icon" href="data:,">']  # without it browsers ask for one
        head += ['<script type="module" src="/live.js"></script>'] if self.live else []
        tabs = [
            link(path, text, **({"aria_current": "page"} if path == self.tab else {}))
            for path, text in TABS.items()
        ]
        parts = [
            element("section", part, id=name, data_key=key_of(part)) for name, part in self.parts.items()
        ]
        body = [
            link("#main", "Skip to the content", class_="skip"),
            element("nav", *tabs, element("span", database, class_="faint")),
            Markup('<p id="problem" role="status" hidden></p>'),
            element("main", *parts, id="main", tabindex="-1"),
        ]
        return document(f"{self.title} – autotune", STYLE + _STYLE, *body, head=Markup("".join(head)))


def key_of(part: Markup) -> str:
    """Return what tells a part from another state of it."""
    return hashlib.sha256(part.text.encode()).hexdigest()[:16]


def link(path: str, *parts: Part, **attributes: object) -> Markup:
    """Return a link within the pages."""
    return element("a", *parts, href=path, **attributes)


def described(facts: Sequence[tuple[str, Part]]) -> Markup:
    """Return a list of names and what is known of each."""
    return element("dl", *(joined([element("dt", name), element("dd", text)]) for name, text in facts))


__all__ = ["HEADERS", "SCRIPT", "TABS", "Page", "described", "key_of", "link"]
