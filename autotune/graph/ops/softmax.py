"""Softmax(x) and LogSoftmax(x) over one axis (attribute axis, default -1).

te stages: "<out>.max" (reduce rk), "<out>.exp" = e^(x - max), "<out>.sum" (reduce rk), then
"<out>.rcp" = 1 / sum (one division a row) and the output exp * rcp, or (x - max) - log(sum).
The maximum passes over NaN: its exponential is NaN, and with it the sum and the row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune import te
from autotune.graph.ir import Array, Attrs, TensorType
from autotune.graph.ops.common import Expr, at, complete_axis, int_attr, require_float, stage
from autotune.graph.ops.definition import Arrays, Attribute, OpDef, Tensors, Types
from autotune.graph.ops.wide import define_in_float32


def _softmax(name: str, log: bool) -> OpDef:
    def infer(types: Types, attrs: Attrs) -> list[TensorType]:
        require_float(name, types)
        return [at(types, 0).dense]

    def reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
        x, axis = at(arrays, 0), int_attr(attrs, "axis")
        shifted = x - x.max(axis=axis, keepdims=True)
        exps = np.exp(shifted)
        total = exps.sum(axis=axis, keepdims=True)
        return [shifted - np.log(total) if log else exps / total]

    def compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
        x, axis, out = at(tensors, 0), int_attr(attrs, "axis"), names[0]
        outer = (*x.shape[:axis], *x.shape[axis + 1 :])

        def without(index: Sequence[Expr]) -> tuple[Expr, ...]:
            return (*index[:axis], *index[axis + 1 :])

        def fold(source: te.Tensor, reducer: Expr, suffix: str) -> te.Tensor:
            rk = te.reduce_axis((0, x.shape[axis]), name="rk")

            def element(*index: Expr) -> Expr:
                return reducer(source(*index[:axis], rk, *index[axis:]), axis=rk)

            return stage(outer, element, f"{out}.{suffix}")

        top = fold(x, te.max_number, "max")
        exps = stage(x.shape, lambda *i: te.exp_nonpositive(x(*i) - top(*without(i))), f"{out}.exp")
        total = fold(exps, te.sum, "sum")
        inverse = total if log else stage(outer, lambda *row: 1.0 / total(*row), f"{out}.rcp")

        def normalised(*index: Expr) -> Expr:
            if log:
                return x(*index) - top(*without(index)) - te.log(total(*without(index)))
            return exps(*index) * inverse(*without(index))

        return [stage(x.shape, normalised, out)]

    def flops(types: Types, results: Sequence[TensorType], attrs: Attrs) -> int:
        return 5 * results[0].size  # max, subtract, exp, add, divide

    return define_in_float32(
        name,
        "softmax",
        (1, 1),
        infer,
        reference,
        compute,
        {"axis": Attribute("int", -1)},
        complete_axis,
        flops,
        permutable="axis",
    )


_softmax("Softmax", log=False)
_softmax("LogSoftmax", log=True)
