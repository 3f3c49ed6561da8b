"""A profile as one page of HTML that needs nothing else: time by layer, the roofline, and every dispatch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from autotune.profiling.lines import COLUMNS, WORDS, cells, roofs_line, worker_line
from autotune.suggest import counted
from autotune.tuning.report.charts import MOST
from autotune.tuning.report.html import Markup, bars, document, element, table
from autotune.tuning.report.page import NOTHING_LOADED, STYLE
from autotune.tuning.report.plot import Dot, Plot, PlotAxis
from autotune.tuning.report.units import listed, nanoseconds

if TYPE_CHECKING:
    from autotune.profiling.profile import DeviceProfile, DispatchProfile, ModelProfile
    from autotune.profiling.roofline import Roofs


def profile_page(found: ModelProfile) -> str:
    """Return a profile as a document that needs nothing else."""
    runs = counted(found.runs, "run")
    body = [
        element("header", element("h1", found.model), element("p", f"Profile of {runs}", class_="faint")),
        element("p", f"Median latency {nanoseconds(found.latency_ns)}", class_="headline"),
        *(element("p", roofs_line(device)) for device in found.devices),
        *_by_layer(found),
        *(part for device in found.devices for part in _roofline(device, found)),
        *_every(found),
    ]
    title = f"{found.model}: profile"
    return document(title, STYLE, element("main", *body), head=NOTHING_LOADED)


def layers(found: ModelProfile) -> list[tuple[tuple[str, ...], list[DispatchProfile]]]:
    """Return the dispatches by the nodes of the model that they compute together, those with the most time first."""
    rows: dict[tuple[str, ...], list[DispatchProfile]] = {}
    for each in found.dispatches:
        rows.setdefault(each.nodes, []).append(each)
    return sorted(rows.items(), key=lambda row: -sum(each.time_ns for each in row[1]))


def _by_layer(found: ModelProfile) -> Iterator[Markup]:
    yield element("h2", "Time by layer of the model")
    rows = layers(found)
    shown = []
    for nodes, own in rows[:MOST]:
        taken, share = sum(each.time_ns for each in own), sum(each.share for each in own)
        names = listed([each.name for each in own], 2)
        text = f"{nanoseconds(taken)}, {100 * share:.1f} %: {names}"
        shown.append((listed(nodes) or own[0].name, (taken,), text))
    yield element("p", "Nodes that are computed together share a bar.", class_="faint")
    yield bars(shown)
    if len(rows) > MOST:
        yield element("p", f"… and {len(rows) - MOST} more, which the table has.", class_="faint")


def _roofline(device: DeviceProfile, found: ModelProfile) -> Iterator[Markup]:
    yield element("h2", f"Roofline of {device.name}")
    own = [each for each in found.dispatches if each.device == device.name and each.gflops and each.nbytes]
    if device.roofs is None or not own:
        yield element("p", "Its rates are not known." if own else "No dispatch has arithmetic and bytes.")
        return
    yield element(
        "p", "A dot a dispatch, the larger the more time; lines are what the machine can do.", class_="faint"
    )
    yield roofline(own, device.roofs).svg()


def roofline(own: list[DispatchProfile], roofs: Roofs) -> Plot:
    """Return rates over arithmetic intensity, below the roof of arithmetic and the slopes of each level of memory."""
    dots = [
        Dot(each.flops / each.nbytes, each.gflops, _said(each), radius=3 + 9 * each.share**0.5)
        for each in own
    ]
    low, high = min(dot.x for dot in dots), max(dot.x for dot in dots)
    peak = roofs.flops("float32") / 1e9
    lines, notes = [], []
    for name in ("l2", "l3", "memory"):
        rate = getattr(roofs, name) / 1e9
        ends = (min(low, peak / rate), peak / rate)
        lines.append(("roof", [(x, x * rate) for x in ends]))
        notes.append(((ends[0], ends[0] * rate), "memory" if name == "memory" else name.upper()))
    lines.append(
        ("roof", [(min(low, peak * 1e9 / roofs.l2), peak), (max(high, peak * 1e9 / roofs.memory), peak)])
    )
    about = f"roofline: {counted(len(own), 'dispatch')} below {peak:.0f} GFLOP/s; the table has their figures"
    across, up = PlotAxis("operations a byte", log=True), PlotAxis("GFLOP/s", log=True)
    return Plot(across, up, about, dots, lines, notes=notes)


def _said(each: DispatchProfile) -> str:
    roof = "" if each.of_roof is None else f", {100 * each.of_roof:.0f} % of its roofline ({each.bound})"
    return f"{each.name}: {each.gflops:.1f} GFLOP/s, {nanoseconds(each.time_ns)}{roof}"


def _every(found: ModelProfile) -> Iterator[Markup]:
    yield element("h2", "Every dispatch")
    several = len(found.devices) > 1
    kept = [n for n, name in enumerate(COLUMNS) if several or name != "device"]
    rows = [[cells(each)[n] for n in kept] for each in found.dispatches]
    yield table(
        [COLUMNS[n] for n in kept], rows, [at for at, n in enumerate(kept) if COLUMNS[n] not in WORDS]
    )
    for device in found.devices:
        text = f"{device.name}: {nanoseconds(device.time_ns)} in dispatches, {nanoseconds(device.rest_ns)} unaccounted."
        yield element("p", text)
    if found.workers:
        yield element("h2", "Workers")
        yield element("ul", *(element("li", worker_line(each)) for each in found.workers))


__all__ = ["layers", "profile_page", "roofline"]
