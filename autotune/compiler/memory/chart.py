"""A memory plan as an SVG: time across, addresses up, one box a value, named as in the model's file.

Each box says more when it is pointed at: bytes, address, the dispatches that write and last read it, and the nodes of
the model in whose memory it lies. The line above is the most that lives at once, which no plan can go below.
"""

from __future__ import annotations

import html

from autotune.foreign import printable
from autotune.passes.memory.plan_memory import Lifetime, MemoryPlan
from autotune.passes.partition import Partition
from autotune.suggest import counted

_LEFT, _RIGHT, _ABOVE, _BELOW, _HEIGHT = 80, 20, 40, 40, 480
_WIDTHS = (640, 1600)  # of the boxes, at least and at most; a step takes 24 between
_COLOURS = ("#a6cee3", "#b2df8a", "#fdbf6f", "#cab2d6", "#fb9a99", "#ffff99", "#d9d9d9")
_LETTER = 6.0  # how wide one is, about


def escape(text: str) -> str:
    """Return a text that XML takes: it has no control characters at all."""
    return html.escape(printable(text))


def memory_svg(partition: Partition, plan: MemoryPlan) -> str:
    """Return the picture, a whole file; it needs nothing else."""
    steps = max(len(partition.dispatches), 1)
    width = min(max(24 * steps, _WIDTHS[0]), _WIDTHS[1])
    top = max(plan.arena_bytes, 1)
    across, up = width / steps, _HEIGHT / top

    def line(nbytes: int, text: str, colour: str) -> list[str]:
        y = _ABOVE + _HEIGHT - nbytes * up
        return [
            f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_LEFT + width}" y2="{y:.1f}" stroke="{colour}"/>',
            f'<text x="{_LEFT - 4}" y="{y + 4:.1f}" text-anchor="end" fill="{colour}">{escape(text)}</text>',
        ]

    parts = [
        f'<text x="{_LEFT}" y="16">{escape(_headline(partition, plan))}</text>',
        *line(0, "0", "#444"),
        *line(plan.arena_bytes, _size(plan.arena_bytes), "#444"),
    ]
    for number, value in enumerate(sorted(plan.lifetimes, key=lambda v: (v.first, plan.offsets[v.name]))):
        x, wide = _LEFT + value.first * across, (value.last - value.first + 1) * across
        high = value.nbytes * up
        y = _ABOVE + _HEIGHT - plan.offsets[value.name] * up - high
        shown = value.name if len(value.name) * _LETTER <= wide - 4 and high >= 11 else ""
        parts.append(
            f'<g><title>{escape(_about(partition, plan, value))}</title><rect x="{x:.1f}" y="{y:.2f}" '
            f'width="{wide:.1f}" height="{high:.2f}" fill="{_COLOURS[number % len(_COLOURS)]}" stroke="#555" '
            f'stroke-width="0.5"/><text x="{x + 3:.1f}" y="{y + high / 2 + 4:.1f}">{escape(shown)}</text></g>'
        )
    if plan.lower_bound < plan.arena_bytes:
        parts += line(plan.lower_bound, _size(plan.lower_bound), "#d62728")
    parts.append(
        f'<text x="{_LEFT}" y="{_ABOVE + _HEIGHT + 24}">dispatches 0 to {steps - 1}, in the order in which they '
        "begin</text>"
    )
    size = _LEFT + width + _RIGHT, _ABOVE + _HEIGHT + _BELOW
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]}" height="{size[1]}" '
        f'viewBox="0 0 {size[0]} {size[1]}" font-family="sans-serif" font-size="11">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _headline(partition: Partition, plan: MemoryPlan) -> str:
    ratio = plan.arena_bytes / plan.lower_bound if plan.lower_bound else 1.0
    most = f"at most {_size(plan.lower_bound)} live at once ({ratio:.2f}x)"
    return f"{partition.name}: arena of {_size(plan.arena_bytes)}, {most}; {counted(len(plan.lifetimes), 'value')}"


def _about(partition: Partition, plan: MemoryPlan, value: Lifetime) -> str:
    """Return the text of a box: all that lies in the value's memory, and between which dispatches."""
    inside = [
        v for v, placed in partition.placements.items() if placed.root == value.name and v != value.name
    ]
    first, last = partition.dispatches[value.first], partition.dispatches[value.last]
    writers = (
        d for d in partition.dispatches if any(partition.placements[v].root == value.name for v in d.outputs)
    )
    nodes = dict.fromkeys(origin for dispatch in writers for origin in dispatch.origins)
    return "\n".join(
        [
            f"{value.name}: {value.nbytes} bytes at {plan.offsets[value.name]}",
            *([f"in the memory of {plan.taken[value.name]}"] if value.name in plan.taken else []),
            f"from {first.name} to {last.name}",
            *([f"holds {', '.join(inside)}"] if inside else []),
            *([f"of {', '.join(nodes)}"] if nodes else []),
        ]
    )


def _size(nbytes: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= unit:
            return f"{nbytes / unit:.1f} {name}"
    return f"{nbytes} B"


__all__ = ["memory_svg"]
