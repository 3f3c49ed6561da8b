"""Quantised models and operators with peers and float32."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autotune.bench import options
from autotune.bench.columns import latency_text, ours, own, rate, side_by_side
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView, over
from autotune.bench.tables import number, percent, plain, ratio
from autotune.errors import UsageError

ACCURACY = "accuracy"
"""The family of rows that say how far quantised models are from float32."""


def measure(say: Say, names: Sequence[str], **given: Any) -> Iterator[Sequence[Record]]:
    """Quantise models and judge them, then compare these and quantised operators with their float32 forms."""
    from autotune.bench.compare import compare, plan_of
    from results.bench.quantised import cases
    from results.bench.quantised import operators as quantised

    models = cases.chosen(names)
    operators = [c for c in quantised.cases() if not names or any(word in c.name for word in names)]
    if not models and not operators:
        known = [*cases.NAMES, *(c.name for c in quantised.cases() if c.family == quantised.INTEGER)]
        raise UsageError(
            f"no problem's name has {' or '.join(map(repr, names))}; there are: {', '.join(known)}"
        )
    plan = plan_of(given)
    peer = next((peer for peer in plan.peers if peer.name == "onnxruntime"), None)
    prepared = cases.prepare(models, peer, plan.threads[0], say)
    yield [{"family": ACCURACY, **each} for each in prepared.accuracies]
    floats: dict[tuple[int, str], Mapping[str, Any]] = {}
    for records in compare([*prepared.cases, *operators], plan, say):
        first = records[0]
        key = first["threads"], cases.model_of(first["case"])
        if first["family"] in (cases.FLOAT, quantised.FLOAT):
            mine = ours(FrameRows(records))
            floats[key] = {f"float_{name}": mine.get(name) for name in ("min_ns", "median_ns", "failure")}
        yield [{**record, **floats[key]} for record in records]


def _float(rows: FrameRows) -> tuple[float, float] | str | None:
    """Return the minimum and the median of the same in float32."""
    if rows.get("float_min_ns") is None:
        return "failed" if rows.get("float_failure") else None
    return rows.get("float_min_ns"), rows.get("float_median_ns")


def _beside_float(title: str, first: str, family: str) -> TableView:
    extras = (
        Column("Gop/s", rate(), number(1)),
        Column("float32", _float, latency_text),
        Column("÷ float32", over(own("min_ns"), "float_min_ns"), ratio),
    )
    return side_by_side(title, first, extras, lambda rows: rows.get("family") == family)


def _right(rows: FrameRows) -> str | None:
    right, before = rows.get("right"), rows.get("right_before")
    return None if right is None else f"{100 * right:.1f} % ({100 * before:.1f} %)"


_ACCURACIES = TableView(
    "Accuracy",
    ("model", "quantiser", "runtime"),
    (
        Column("model", "model"),
        Column("quantised by", "quantiser"),
        Column("run by", "runtime"),
        Column("error", "error", number(4)),
        Column("same first", "first", percent(1)),
        Column("same first, varying part", "varying", percent(1)),
        Column("labels right", _right, plain),
    ),
    where=lambda rows: rows.get("family") == ACCURACY,
    notes=(
        "16 inputs to calibrate by, 64 others to be judged by (digits: 64 and 600), logits; both quantisers with their "
        "defaults, weights by channel",
        "error: the norm of the difference to float32 over the norm of float32's logits",
        "same first: rows whose greatest logit is that of float32; varying part: after the mean of float32's logits "
        "over all inputs is taken off, because random weights give all images nearly the same logits",
        "labels right: in brackets by the float32 model",
    ),
)

EXPERIMENT = Experiment(
    title="Quantised models and operators",
    about="Models quantised by `autotune quantize` and by ONNX Runtime's static quantiser (QDQ, per channel), from the "
    "same samples: how far they are from float32, and how fast they are. Runtimes round in other places, so that their "
    "outputs are some steps apart. Then quantised matrix products (MatMulInteger) and convolutions (QLinearConv, "
    "channels first) with constant weights, as an ONNX model that everybody gets. `float32` is our time of the same "
    "in float32.",
    summary="Quantised models and operators beside peers and float32; NAMES choose those whose names have one of them.",
    example="mobilenetv2 matmul --threads 1,2 --peers onnxruntime -o results/int8.md",
    options=(options.words(), *options.side_by_side("1", "onnxruntime", 10, "problem")),
    measure=measure,
    views=(
        _ACCURACIES,
        _beside_float("Quantised models, {threads}", "model", "quantised model"),
        _beside_float("Quantised operators, {threads}", "problem", "int8"),
    ),
)

__all__ = ["EXPERIMENT"]
