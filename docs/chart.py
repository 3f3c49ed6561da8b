"""Draw the README's chart of speed-ups from the committed tables of results/: ``python docs/chart.py``.

A dot is a model: the peer's latency divided by ours, minima over all rounds, ours tuned where the table has it. In the
panel of precisions ours is within the error that OpenVINO makes by its default, bfloat16; ONNX Runtime's is float32.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "docs" / "speedups.svg"
UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}

MODELS = {"ONNX Runtime": "ONNX Runtime", "OpenVINO": "OpenVINO"}
PANELS = (
    (
        "--accuracy, Xeon with AMX",
        "results/precisions.md",
        "Precisions, 2 threads",
        {"ONNX Runtime": "÷ ONNX Runtime", "OpenVINO": "÷ it"},
    ),
    ("float32, Cascade Lake (AVX-512)", "results/models.md", "Models, 2 threads", MODELS),
    (
        "torch.compile, Zen 5 (AVX-512)",
        "results/torch.md",
        "torch.compile, 2 threads",
        {"inductor": "inductor"},
    ),
)
OURS = ("tuned", "default", "autotune")
COLORS = {"ONNX Runtime": "#1f6fb4", "OpenVINO": "#d9730d", "inductor": "#7a4fb5"}

ROW, TOP, LABELS, PLOT, GAP = 20, 62, 112, 176, 14
LEAST, MOST, TICKS = 0.8, 8.0, (1.0, 2.0, 4.0)


def main() -> None:
    """Write the chart."""
    CHART.write_text(chart(), encoding="utf-8")


def chart() -> str:
    """Return the chart as the text of an SVG file."""
    panels = [(title, speedups(table(path, heading), peers)) for title, path, heading, peers in PANELS]
    height = TOP + ROW * max(len(rows) for _, rows in panels) + 34
    width = len(panels) * (LABELS + PLOT + GAP) + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11" fill="#222">',
        '<rect width="100%" height="100%" fill="white"/>',
        *legend(width),
    ]
    for number, (title, rows) in enumerate(panels):
        parts += panel(GAP + number * (LABELS + PLOT + GAP), title, rows)
    return "\n".join([*parts, "</svg>", ""])


def table(path: str, heading: str) -> list[dict[str, str]]:
    """Return the rows of the first table below a heading, each by the names of its columns."""
    text = (ROOT / path).read_text(encoding="utf-8").split(f"## {heading}\n", 1)[1]
    lines = re.findall(r"^\|(.*)\|$", text.split("\n## ", 1)[0], re.M)
    header, _, *rows = ([cell.strip() for cell in line.split("|")] for line in lines)
    return [dict(zip(header, row, strict=True)) for row in rows]


def speedups(rows: list[dict[str, str]], peers: dict[str, str]) -> list[tuple[str, dict[str, float]]]:
    """Return each model's speed-up over each peer, by the peer's column, and their geometric means in a last row."""
    found = [
        (row["model"], {peer: speedup(row, column) for peer, column in peers.items()})
        for row in rows
        if row["model"] != "geometric mean"
    ]
    means = {
        peer: math.exp(sum(math.log(values[peer]) for _, values in found) / len(found)) for peer in peers
    }
    return [*found, ("geometric mean", means)]


def speedup(row: dict[str, str], column: str) -> float:
    """Return the speed-up over a peer whose column has its latency, or our latency over its."""
    theirs = seconds(row[column])
    if theirs is None:
        return 1 / float(row[column])
    return theirs / next(value for name in OURS if (value := seconds(row.get(name, ""))) is not None)


def seconds(cell: str) -> float | None:
    """Return the seconds at the beginning of a cell such as ``3.49 ms (4.33 ms)``."""
    match = re.match(r"([\d.]+) (ns|µs|ms|s)\b", cell)
    return float(match[1]) * UNITS[match[2]] if match else None


def legend(width: int) -> list[str]:
    """Return the title and a dot of each peer's colour."""
    title = "Speed-up of autotune over its peers, two threads (1× is equal, right is faster)"
    parts = [f'<text x="{GAP}" y="18" font-size="13" font-weight="bold">{title}</text>']
    x = width - 300
    for peer, color in COLORS.items():
        parts.append(f'<circle cx="{x}" cy="14" r="4" fill="{color}"/><text x="{x + 8}" y="18">{peer}</text>')
        x += 105
    return parts


def panel(left: int, title: str, rows: list[tuple[str, dict[str, float]]]) -> list[str]:
    """Return one machine's dots, a line a model."""
    bottom = TOP + ROW * len(rows)
    parts = [f'<text x="{left + LABELS}" y="{TOP - 22}" font-weight="bold">{title}</text>']
    for tick in TICKS:
        x = position(left, tick)
        color, wide = ("#555", 1.2) if tick == 1 else ("#ddd", 1)
        parts.append(
            f'<line x1="{x}" x2="{x}" y1="{TOP - 8}" y2="{bottom}" stroke="{color}" stroke-width="{wide}"/>'
        )
        parts.append(f'<text x="{x}" y="{bottom + 14}" text-anchor="middle">{tick:g}×</text>')
    for number, (name, values) in enumerate(rows):
        y = TOP + ROW * number + 4
        bold = ' font-weight="bold"' if name == "geometric mean" else ""
        parts.append(f'<text x="{left + LABELS - 6}" y="{y + 4}" text-anchor="end"{bold}>{name}</text>')
        for peer, value in values.items():
            parts.append(
                f'<circle cx="{position(left, value)}" cy="{y}" r="4" fill="{COLORS[peer]}" fill-opacity="0.85">'
                f"<title>{name}: {value:.2f}× over {peer}</title></circle>"
            )
        if bold:
            shown = ", ".join(f"{value:.2f}×" for value in values.values())
            parts.append(
                f'<text x="{position(left, max(values.values())) + 8}" y="{y + 4}"{bold}>{shown}</text>'
            )
    return parts


def position(left: int, value: float) -> float:
    """Return the horizontal place of a speed-up, on a logarithmic axis."""
    assert LEAST <= value <= MOST, value
    return round(left + LABELS + PLOT * math.log(value / LEAST) / math.log(MOST / LEAST), 1)


if __name__ == "__main__":
    main()
