"""Searches among the elements of a tensor: the number of results is known only when it is computed.

Each result is as long as it can become. Places that nothing was found for hold -1, and a last output "count" [1] says
how many were found (int64).

NonZero (x) -> places [rank, n], count: the places of the elements that are not zero, in row-major order; n is the
number of elements. Unique (x [n, m]): sorted (default 1) -> unique rows [n, m], first places [n], number of the unique
row for each row [n], how often each comes [n], count; rows that were not found are 0, and how often they come. Rows
are in order, or as they come first where sorted is 0; all NaN are one number, the last one.
NonMaxSuppression (boxes [b, n, 4], scores [b, c, n]): max_output_boxes_per_class (default 0), iou_threshold,
score_threshold (absent: none), center_point_box (default 0) -> (batch, class, box) [rows, 3], count: of each class the
boxes in the order of their scores, without those that overlap one before by more than the threshold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attrs, TensorType
from autotune.graph.ops.common import Expr, at, delinear, float_attr, int_attr, stage
from autotune.graph.ops.definition import Arrays, Attribute, Tensors, Types
from autotune.graph.ops.registry import define
from autotune.graph.ops.sorting import Reversed, SortedRow, merge_sort, ordering, pop, sink
from autotune.graph.ops.topk import first_places
from autotune.te.sequential import sequential
from autotune.te.statements import Steps

_COUNT = TensorType((1,), "int64")


def _count_of(places: te.Tensor, name: str, index: Sequence[Expr], axis: int) -> te.Tensor:
    """Return the number of places that were found, by those along one axis."""
    rk = te.reduce_axis((0, places.shape[axis]), name="rk")
    read = (*index[:axis], rk, *index[axis + 1 :])
    return stage((1,), lambda i: te.sum(te.cast(places(*read) >= 0, "int64"), axis=rk), name)


# -- NonZero -------------------------------------------------------------------------------------------------


def _non_zero_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    x = at(types, 0)
    if not x.size:
        raise GraphError(f"NonZero of no elements: {x}")
    return [TensorType((max(x.rank, 1), x.size), "int64"), _COUNT]


def _non_zero_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x = np.atleast_1d(at(arrays, 0))
    found = np.array(np.nonzero(x), np.int64)
    places = np.full((x.ndim, x.size), -1, np.int64)
    places[:, : found.shape[1]] = found
    return [places, np.array([found.shape[1]], np.int64)]


def _non_zero_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x = at(tensors, 0)
    size, rank = math.prod(x.shape), max(x.ndim, 1)

    def build(steps: Steps, point: Sequence[Expr]) -> None:
        found = steps.cell(0, name="found")
        with steps.loop(size, "i") as i:
            value = x(*delinear(i, x.shape))
            with steps.when(value != te.const(0, x.dtype)):
                steps.store(steps.results[0], (found.get(),), i)
                found.add(1)
        with steps.repeat_while(found.get() < size):
            steps.store(steps.results[0], (found.get(),), -1)
            found.add(1)

    (flat,) = sequential(
        (size,), ("int64",), [x], build, [f"{names[0]}.flat"], length=size, keeps_inside=True
    )

    def place(dim: Expr, i: Expr) -> Expr:
        index = delinear(flat(i), x.shape) if x.ndim else [flat(i)]
        chosen = te.cast(index[-1], "int64")
        for number in reversed(range(rank - 1)):
            chosen = te.if_then_else(dim.equal(number), te.cast(index[number], "int64"), chosen)
        return te.if_then_else(flat(i) < 0, te.const(-1, "int64"), chosen)

    places = stage((rank, size), place, names[0])
    return [places, _count_of(flat, names[1], (0,), 0)]


# -- Unique --------------------------------------------------------------------------------------------------


def _unique_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    x = at(types, 0)
    if x.rank != 2 or x.dtype == "bool" or not x.size:
        raise GraphError(f"Unique takes rows of numbers, got {x}")
    place = TensorType(x.shape[:1], "int64")
    return [x.dense, place, place, place, _COUNT]


def _unique_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    x = at(arrays, 0)
    size = len(x)
    first, number, often = (np.full(size, fill, np.int64) for fill in (-1, 0, 0))
    wide = x.astype(np.float64) if x.dtype.kind not in "iu" else x
    nan = np.isnan(wide)
    # As rows of Python's numbers, which are compared exactly; every NaN comes after all numbers.
    keys = [
        [(bool(m), 0 if m else v) for v, m in zip(*row, strict=True)]
        for row in zip(wide.tolist(), nan, strict=True)
    ]
    groups: list[list[int]] = []
    for place in sorted(range(size), key=keys.__getitem__):
        if groups and keys[place] == keys[groups[-1][0]]:
            groups[-1].append(place)
        else:
            groups.append([place])
    if not int_attr(attrs, "sorted"):
        groups.sort(key=lambda group: group[0])
    values = np.zeros_like(x)
    for n, group in enumerate(groups):
        values[n], first[n], often[n] = x[group[0]], group[0], len(group)
        number[group] = n
    return [values, first, number, often, np.array([len(groups)], np.int64)]


def _unique_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, ordered = at(tensors, 0), bool(int_attr(attrs, "sorted"))
    size, columns = x.shape
    how = ordering(x.dtype, largest=False, nan_last=True)

    def build(steps: Steps, point: Sequence[Expr]) -> None:
        first, number, often = steps.results
        order, before = (steps.scratch((size,), name="order") for _ in range(2))
        with steps.loop(size, "i") as i:
            steps.store(first, (i,), -1)
            steps.store(often, (i,), 0)
            steps.store(order, (i,), i)
        # Sorted by the last column first: each sort leaves equal elements as they are.
        with steps.loop(columns, "column") as column:
            at_column = columns - 1 - column

            def fill(row: SortedRow) -> None:
                with steps.loop(size, "i") as i:
                    steps.store(before, (i,), order(i))
                    row.put(i, how.element(x(order(i), at_column), i))

            ranked = merge_sort(steps, how, size, fill)
            with steps.loop(size, "o") as o:
                place = steps.let(how.place(ranked.at(o)), "place")
                steps.store(order, (o,), before(place))

        found, leader = steps.cell(0, name="found"), steps.cell(0, name="leader")
        # The first place of each element's value, in `number` for now.
        with steps.loop(size, "o") as o:
            place = steps.let(order(o), "place")
            other = steps.let(order(te.maximum(o - 1, 0)), "other")
            new, walked = (
                steps.cell(te.if_then_else(o.equal(0), 1, 0), name="new"),
                steps.cell(0, name="walked"),
            )
            with steps.repeat_while(te.all(new.get().equal(0), walked.get() < columns)):
                at_column = steps.let(walked.get(), "column")
                mine, its = (how.element(x(p, at_column), 0) for p in (place, other))
                new.set(te.if_then_else(how.key(mine) != how.key(its), 1, 0))
                walked.add(1)
            with steps.when(new.get() > 0):
                leader.set(place)
                if ordered:
                    steps.store(first, (found.get(),), place)
                    found.add(1)
            if ordered:
                steps.store(number, (place,), found.get() - 1)
                steps.store(often, (found.get() - 1,), often(found.get() - 1) + 1)
            else:
                steps.store(number, (place,), leader.get())
        if ordered:
            return
        with steps.loop(size, "i") as i:  # a leader comes before its followers
            own = steps.let(number(i), "own")
            with steps.when(own.equal(i)):
                steps.store(first, (found.get(),), i)
                steps.store(number, (i,), found.get())
                found.add(1)
            with steps.otherwise():
                steps.store(number, (i,), number(own))
            group = steps.let(number(i), "group")
            steps.store(often, (group,), often(group) + 1)

    length = size * columns * max(size, 2).bit_length()
    first, number, often = sequential(
        (size,), ("int64",) * 3, [x], build, names[1:4], length=length, keeps_inside=True
    )

    def value(i: Expr, j: Expr) -> Expr:
        return te.if_then_else(first(i) >= 0, x(te.maximum(first(i), 0), j), te.const(0, x.dtype))

    values = stage(x.shape, value, names[0])
    return [values, first, number, often, _count_of(first, names[4], (0,), 0)]


# -- NonMaxSuppression ---------------------------------------------------------------------------------------


def _most(boxes: TensorType | te.Tensor, attrs: Attrs) -> int:
    """Return boxes of a class at most."""
    return max(0, min(int_attr(attrs, "max_output_boxes_per_class"), boxes.shape[1]))


def _suppression_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    boxes, scores = at(types, 0), at(types, 1)
    if boxes.dtype != "float32" or scores.dtype != "float32":
        raise GraphError(f"NonMaxSuppression takes float32, got boxes {boxes} and scores {scores}")
    fits = boxes.rank == 3 and boxes.shape[2] == 4 and scores.rank == 3
    if not fits or (scores.shape[0], scores.shape[2]) != boxes.shape[:2]:
        raise GraphError(f"NonMaxSuppression: boxes {boxes} are [b, n, 4], scores {scores} are [b, c, n]")
    rows = scores.shape[0] * scores.shape[1] * _most(boxes, attrs)
    if not rows:
        raise GraphError(f"NonMaxSuppression of boxes {boxes} and scores {scores} gives at most no box")
    return [TensorType((rows, 3), "int64"), _COUNT]


def _corners(box: Sequence[Expr], attrs: Attrs, least: object, most: object) -> list[Expr]:
    """Return the low and high corners of a box of two corners in any order, or of a centre and sizes."""
    if int_attr(attrs, "center_point_box"):
        x, y, width, height = box
        return [y - height / 2, x - width / 2, y + height / 2, x + width / 2]
    low = [least(box[0], box[2]), least(box[1], box[3])]  # type: ignore[operator]
    return [*low, most(box[0], box[2]), most(box[1], box[3])]  # type: ignore[operator]


def _overlap(a: Sequence[Expr], b: Sequence[Expr], least: object, most: object) -> tuple[Expr, Expr]:
    """Return areas of the intersection and of the union of two boxes."""
    sides = [least(a[d + 2], b[d + 2]) - most(a[d], b[d]) for d in (0, 1)]  # type: ignore[operator]
    common = most(sides[0], 0.0) * most(sides[1], 0.0)  # type: ignore[operator]
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    return common, areas[0] + areas[1] - common


def _suppression_reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
    boxes, scores = at(arrays, 0), at(arrays, 1)
    most, found = _most(TensorType.of(boxes), attrs), []
    limit = np.float32(float_attr(attrs, "iou_threshold"))
    for batch in range(scores.shape[0]):
        corners = [_corners(box, attrs, np.minimum, np.maximum) for box in boxes[batch]]
        for label in range(scores.shape[1]):
            kept: list[int] = []
            row = scores[batch, label]
            for place in first_places(row, 0, largest=True).tolist():
                if len(kept) == most:
                    break
                if "score_threshold" in attrs and not row[place] > np.float32(
                    float_attr(attrs, "score_threshold")
                ):
                    continue
                pairs = [_overlap(corners[place], corners[k], np.minimum, np.maximum) for k in kept]
                if not any(union and common / union > limit for common, union in pairs):
                    kept.append(place)
            found += [(batch, label, place) for place in kept]
    rows = np.full((scores.shape[0] * scores.shape[1] * most, 3), -1, np.int64)
    rows[: len(found)] = np.array(found, np.int64).reshape(-1, 3)
    return [rows, np.array([len(found)], np.int64)]


def _suppression_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    boxes, scores = at(tensors, 0), at(tensors, 1)
    batches, labels, size = scores.shape
    most, how = _most(boxes, attrs), ordering("float32", largest=True)
    limit = te.const(float_attr(attrs, "iou_threshold"), "float32")

    def build(steps: Steps, point: Sequence[Expr]) -> None:
        (kept,) = steps.results
        batch, label = point[:2]
        heap = SortedRow(steps, steps.scratch((1, 1, size), name="heap"), 0, 1)
        corners = steps.scratch((4, most), "float32", "corners")
        waiting, count = steps.cell(0, name="waiting"), steps.cell(0, name="count")
        with steps.loop(most, "k") as k:
            steps.store(kept, (batch, label, k), -1)
        with steps.loop(size, "i") as i:
            score = steps.let(scores(batch, label, i), "score")
            enough: Expr = te.const(True)
            if "score_threshold" in attrs:
                enough = score > te.const(float_attr(attrs, "score_threshold"), "float32")
            with steps.when(enough):
                heap.put(waiting.get(), how.element(score, i))
                waiting.add(1)
        start = steps.cell(waiting.get() // 2, name="start")
        with steps.repeat_while(start.get() > 0):
            start.add(-1)
            sink(steps, Reversed(how), heap, waiting.get(), start.get(), heap.at(start.get()))
        with steps.repeat_while(te.all(waiting.get() > 0, count.get() < most)):
            place = steps.let(how.place(pop(steps, Reversed(how), heap, waiting)), "place")
            box = _corners([boxes(batch, place, c) for c in range(4)], attrs, te.minimum, te.maximum)
            own = [steps.let(part, "corner") for part in box]
            other, apart = steps.cell(0, name="other"), steps.cell(1, name="apart")
            with steps.repeat_while(te.all(apart.get() > 0, other.get() < count.get())):
                k = steps.let(other.get(), "k")
                its = [steps.let(corners(c, k), "its") for c in range(4)]
                common, union = _overlap(own, its, te.minimum, te.maximum)
                apart.set(te.if_then_else(common / union > limit, 0, 1))
                other.add(1)
            with steps.when(apart.get() > 0):
                k = steps.let(count.get(), "k")
                for c, part in enumerate(own):
                    steps.store(corners, (c, k), part)
                steps.store(kept, (batch, label, k), place)
                count.add(1)

    apart = {0: batches, 1: labels}
    shape = (batches, labels, most)
    (kept,) = sequential(
        shape,
        ("int64",),
        [boxes, scores],
        build,
        [f"{names[0]}.kept"],
        apart=apart,
        length=size,
        keeps_inside=True,
    )

    def join(steps: Steps, point: Sequence[Expr]) -> None:
        (rows,) = steps.results
        found = steps.cell(0, name="found")
        with steps.loop(math.prod(shape), "i") as i:
            batch, label, k = delinear(i, (batches, labels, most))
            place = steps.let(kept(batch, label, k), "place")
            with steps.when(place >= 0):
                for column, part in enumerate((batch, label, place)):
                    steps.store(rows, (found.get(), column), part)
                found.add(1)
        with steps.repeat_while(found.get() < math.prod(shape)):
            for column in range(3):
                steps.store(rows, (found.get(), column), -1)
            found.add(1)

    (rows,) = sequential(
        (math.prod(shape), 3), ("int64",), [kept], join, names[:1], length=math.prod(shape), keeps_inside=True
    )
    return [rows, _count_of(rows, names[1], (0, 0), 0)]


define("NonZero", "sequential", (1, 1), _non_zero_infer, _non_zero_reference, _non_zero_compute)
define(
    "Unique",
    "sequential",
    (1, 1),
    _unique_infer,
    _unique_reference,
    _unique_compute,
    {"sorted": Attribute("int", 1)},
)
define(
    "NonMaxSuppression",
    "sequential",
    (2, 2),
    _suppression_infer,
    _suppression_reference,
    _suppression_compute,
    {
        "center_point_box": Attribute("int", 0),
        "iou_threshold": Attribute("float", 0.0),
        "max_output_boxes_per_class": Attribute("int", 0),
        "score_threshold": Attribute("float"),
    },
)
