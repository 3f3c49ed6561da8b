"""The graph of a model's dispatches as an SVG that scrolls and zooms, and the script that shows what is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from autotune.profiling.facts import DispatchFacts, ModelFacts
from autotune.profiling.layers import Drawing, Point, bulge, drawn
from autotune.tuning.report.html import Markup, element, joined
from autotune.tuning.report.units import cut, nanoseconds

_SIZE, _SMALL = (216.0, 62.0), (216.0, 30.0)
"""Of a dispatch, and of an input or output of the model."""
_LETTERS, _BOLD = 33, 25
"""Characters that a line of a box has room for."""
_HEAT = 0.5
"""The most opaque fill, that of the largest share: texts stay readable on it."""

STYLE = """
body { max-width: 100rem; }
.tools { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: center; margin: .5rem 0; }
button { font: inherit; min-width: 2.5rem; min-height: 2.25rem; color: inherit; background: var(--box);
  border: 1px solid var(--faint); border-radius: 4px; }
.panes { display: grid; grid-template-columns: minmax(0, 1fr) 26rem; gap: 1rem; }
#graph { overflow: auto; height: 76vh; border: 1px solid var(--line); background: var(--box); cursor: grab; }
#graph svg { display: block; margin: auto; font: 12px system-ui, sans-serif; }
#graph text { fill: var(--ink); } #graph g:not([data-at]) .faint { fill: var(--faint); }
#graph rect { fill: var(--paper); stroke: var(--faint); }
#graph .guess rect { stroke-dasharray: 4 3; }
#graph rect.heat { fill: var(--after); stroke: none; }
#graph path { fill: none; stroke: var(--faint); stroke-width: 1.2; } #graph path.arc { opacity: .3; }
#graph path.near { stroke: var(--after); stroke-width: 2.5; opacity: 1; }
#graph [data-at] { cursor: pointer; outline: none; }
#graph [aria-current] rect:first-child, #graph [data-at]:focus-visible rect:first-child {
  stroke: var(--after); stroke-width: 3; stroke-dasharray: none; }
#facts { overflow: auto; max-height: 76vh; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .2rem 1rem;
  margin: .5rem 0; font-size: .9rem; }
dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; }
summary { cursor: pointer; padding: .3rem 0; overflow-wrap: anywhere; }
details { border-bottom: 1px solid var(--line); }
details pre, #facts pre { font-size: .8rem; }
@media (max-width: 60rem) { .panes { grid-template-columns: minmax(0, 1fr); } #graph { height: 60vh; }
  #facts { max-height: none; } }
@media print { .tools, #facts { display: none; } .panes { display: block; }
  #graph { height: auto; overflow: visible; border: 0; } #graph svg { width: 100%; height: 24cm; } }
"""

SCRIPT = r"""
const box = document.getElementById("graph"), svg = box.querySelector("svg"), panel = document.getElementById("facts");
const nodes = [...svg.querySelectorAll("[data-at]")], paths = [...svg.querySelectorAll("path")];
const { width, height } = svg.viewBox.baseVal;
let scale = 1, at = 0;
function zoom(to, x = box.clientWidth / 2, y = box.clientHeight / 2) {
  to = Math.min(4, Math.max(.05, to));
  const left = (box.scrollLeft + x) * to / scale - x, top = (box.scrollTop + y) * to / scale - y;
  scale = to; svg.setAttribute("width", width * to); svg.setAttribute("height", height * to); box.scrollTo(left, top);
}
function choose(to, focus) {
  if (!nodes[to]) return;
  nodes[at].tabIndex = -1; nodes[at].removeAttribute("aria-current");
  at = to; nodes[at].tabIndex = 0; nodes[at].setAttribute("aria-current", "true");
  const name = nodes[at].dataset.at, node = nodes[at].getBoundingClientRect(), here = box.getBoundingClientRect();
  for (const path of paths) path.classList.toggle("near", [path.dataset.from, path.dataset.to].includes(name));
  panel.innerHTML = document.getElementById("d" + name).innerHTML.replace(/(<\/?)summary/g, "$1h2");
  if (focus) {
    nodes[at].focus({ preventScroll: true });
    if (node.top < here.top || node.bottom > here.bottom || node.left < here.left || node.right > here.right)
      box.scrollBy(node.left - here.left - box.clientWidth / 2 + node.width / 2,
        node.top - here.top - box.clientHeight / 2 + node.height / 2);
  }
}
const follow = (own, other, find) => {
  const near = paths.filter(each => each.dataset[own] === nodes[at].dataset.at).map(each => each.dataset[other]);
  return nodes[find](each => near.includes(each.dataset.at));
};
const whole = () => zoom(Math.min(box.clientWidth / width, box.clientHeight / height));
const keys = { ArrowDown: () => choose(follow("from", "to", "findIndex"), true),
  ArrowUp: () => choose(follow("to", "from", "findLastIndex"), true),
  ArrowRight: () => choose(at + 1, true), ArrowLeft: () => choose(at - 1, true), Home: () => choose(0, true),
  End: () => choose(nodes.length - 1, true), "+": () => zoom(scale * 1.25), "-": () => zoom(scale / 1.25), 0: whole };
box.addEventListener("keydown", event => {
  if (keys[event.key] && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    keys[event.key]();
  }
});
nodes.forEach((node, number) => {
  node.addEventListener("click", () => { if (!moved) choose(number, true); });
  node.addEventListener("focus", () => { if (at !== number) choose(number); });
});
for (const button of document.querySelectorAll("[data-key]"))
  button.addEventListener("click", () => keys[button.dataset.key]());
box.addEventListener("wheel", event => {
  if (!event.ctrlKey && !event.metaKey) return;
  event.preventDefault();
  const here = box.getBoundingClientRect();
  zoom(scale * Math.exp(-event.deltaY / 400), event.clientX - here.left, event.clientY - here.top);
}, { passive: false });
let held = null, moved = false;
box.addEventListener("pointerdown", event => {
  moved = false;
  if (event.pointerType === "mouse" && event.button === 0) held = [event.clientX, event.clientY];
});
addEventListener("pointermove", event => {
  if (!held) return;
  moved ||= Math.hypot(event.clientX - held[0], event.clientY - held[1]) > 4;
  if (moved) { box.scrollBy(held[0] - event.clientX, held[1] - event.clientY); held = [event.clientX, event.clientY]; }
});
addEventListener("pointerup", () => { held = null; });
zoom(Math.min(1, Math.max(.6, box.clientWidth / width)));
box.scrollLeft = (width * scale - box.clientWidth) / 2;
choose(0);
"""


def picture(facts: ModelFacts) -> Markup:
    """Return the graph: boxes of dispatches, the more filled the more time they take, and what reads what."""
    names = {each.name: str(number) for number, each in enumerate(facts.dispatches)}
    ends = {f"in{n}": text for n, text in enumerate(facts.inputs)}
    outs = {f"out{n}": text for n, text in enumerate(facts.outputs)}
    sizes = {
        **dict.fromkeys(ends, _SMALL),
        **dict.fromkeys(names.values(), _SIZE),
        **dict.fromkeys(outs, _SMALL),
    }
    edges = [(names[before], names[each.name]) for each in facts.dispatches for before in each.after]
    edges += [(f"in{n}", names[name]) for n, name in facts.from_inputs if name in names]
    edges += [(names[name], f"out{n}") for n, name in facts.to_outputs if name in names]
    placed = drawn(sizes, edges)
    most = max((each.share for each in facts.dispatches), default=0.0) or 1.0
    parts = [
        *_edges(placed),
        *(_end(placed.places[key], text) for key, text in (ends | outs).items()),
        *(_node(placed.places[names[each.name]], names[each.name], each, most) for each in facts.dispatches),
    ]
    size = {"width": f"{placed.width:.0f}", "height": f"{placed.height:.0f}"}
    box = f"0 0 {size['width']} {size['height']}"
    label = "dispatches of the model; arrow keys go from one to another"
    svg = element("svg", *parts, viewBox=box, role="group", aria_label=label, **size)
    return element("div", svg, id="graph")


def _edges(placed: Drawing) -> list[Markup]:
    lines = [_line(edge, _curve(points), "") for edge, points in placed.edges.items()]
    return [*(_line(edge, _arc(*ends), "arc") for edge, ends in placed.arcs.items()), *lines]


def _line(edge: tuple[str, str], shape: str, kind: str) -> Markup:
    return element("path", d=shape, class_=kind, data_from=edge[0], data_to=edge[1])


def _curve(points: Sequence[Point]) -> str:
    """Return a path through points that is vertical in each."""
    made = f"M{points[0][0]:.0f} {points[0][1]:.0f}"
    for (x, y), (u, v) in pairwise(points):
        made += f"C{x:.0f} {(y + v) / 2:.0f} {u:.0f} {(y + v) / 2:.0f} {u:.0f} {v:.0f}"
    return made


def _arc(begin: Point, end: Point) -> str:
    right = max(begin[0], end[0]) + bulge(begin, end)
    (x, y), (u, v) = begin, end
    return f"M{x:.0f} {y:.0f}C{right:.0f} {y:.0f} {right:.0f} {v:.0f} {u:.0f} {v:.0f}"


def _box(middle: Point, size: Point, **attributes: object) -> Markup:
    corner = {"x": f"{middle[0] - size[0] / 2:.1f}", "y": f"{middle[1] - size[1] / 2:.1f}"}
    return element("rect", width=size[0], height=size[1], rx=6, **corner, **attributes)


def _text(middle: Point, down: float, text: str, most: int = _LETTERS, **attributes: object) -> Markup:
    place = {"x": f"{middle[0]:.1f}", "y": f"{middle[1] + down:.1f}", "text-anchor": "middle"}
    return element("text", cut(text, most), **place, **attributes)


def _end(middle: Point, text: str) -> Markup:
    return element("g", _box(middle, _SMALL), _text(middle, 4, text, class_="faint"))


def _node(middle: Point, number: str, facts: DispatchFacts, most: float) -> Markup:
    guess = "" if facts.source.startswith("measured") else "guess"
    heat = _box(middle, _SIZE, class_="heat", fill_opacity=f"{_HEAT * facts.share / most:.3f}")
    figures = f"{nanoseconds(facts.latency_ns)} · {100 * facts.share:.1f} %"
    roof = "" if facts.of_roof is None else f" · {100 * facts.of_roof:.0f} % of roof"
    texts = [
        _text(middle, -14, facts.name, _BOLD, font_weight="600"),
        _text(middle, 5, figures + roof),
        _text(middle, 22, "; ".join(facts.types), class_="faint"),
    ]
    said = {
        "role": "button",
        "tabindex": 0 if number == "0" else -1,
        "aria_label": f"{facts.name}: {figures}",
    }
    return element("g", _box(middle, _SIZE), heat, *texts, data_at=number, class_=guess, **said)


def tools() -> Markup:
    """Return the buttons beside the graph, and what its boxes mean."""
    buttons = [("+", "Zoom in", "+"), ("-", "Zoom out", "−"), ("0", "Show the whole graph", "Whole")]
    made = [
        element("button", text, type="button", data_key=key, aria_label=label) for key, label, text in buttons
    ]
    about = (
        "The more filled, the more time; dashed: expected, not measured. Drag, scroll, or Ctrl and the wheel; arrow "
        "keys go along the graph."
    )
    return joined([element("div", *made, element("span", about, class_="faint"), class_="tools")])


__all__ = ["SCRIPT", "STYLE", "picture", "tools"]
