"""Images as rows of pixels: what products of pixels by channels share, and what follows them.

A convolution computed as a product gives rows of pixels. Elementwise operations after it are computed on such rows,
too, so that they stay in its dispatch: a reshape between them would end it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from autotune.graph import ops
from autotune.graph.ir import ABSENT, Node
from autotune.passes.attributes import integer, is_channels_last
from autotune.passes.rewriter import Rewriter

_FLAT = "flat"
EXACT = ("float32", "float64")
"""Types in which the errors of these algorithms hold: results of the shorter ones are rounded by more."""
PRODUCTS: Mapping[str, str] = {"Conv": "MatMul", "ShortConv": "ShortMatMul"}
"""Convolutions, and products of the same operands."""


def is_one_product(rewriter: Rewriter, node: Node, of: str = "Conv") -> bool:
    """Return whether a node is a channels-last convolution ``of`` one group, without a bias, with exact sums."""
    if node.op != of or not is_channels_last(node) or integer(node, "group") != 1:
        return False
    if len(node.inputs) > 2 or ABSENT in node.inputs:
        return False
    return rewriter.graph.type_of(node.outputs[0]).dtype in EXACT and (
        of != "Conv" or rewriter.type_of(rewriter.current(node.inputs[1])).dtype in EXACT
    )


def product_of_rows(rewriter: Rewriter, node: Node, left: str, weights: str) -> None:
    """Define the result [n, spatial..., oc] of a convolution as rows [pixels, k] times weights [..., oc] of k * oc
    elements."""
    (output,) = node.outputs
    outer = rewriter.type_of(weights).shape[-1]
    right = rows_of(rewriter, weights, rewriter.type_of(left).shape[-1], outer)
    product = rewriter.emit(PRODUCTS[node.op], [left, right], name=f"{output}.{_FLAT}")
    rewriter.become(output, "Reshape", [product], {"shape": rewriter.graph.type_of(output).shape})


def rows_of(rewriter: Rewriter, value: str, *shape: int) -> str:
    """Return a value in another shape."""
    return rewriter.emit("Reshape", [value], {"shape": shape}, name=f"{value}.rows")


def follow_rows(rewriter: Rewriter, node: Node) -> bool:
    """Compute an elementwise operation on rows of pixels where an operand is such rows, reshaped."""
    if not ops.get(node.op).pointwise or len(node.outputs) != 1 or ABSENT in node.inputs:
        return False
    (output,) = node.outputs
    shape = rewriter.graph.type_of(output).shape
    operands = [rewriter.current(v) for v in node.inputs]
    if not any(_flat(rewriter, v) for v in operands):
        return False
    flat = []
    for value in operands:
        own = rewriter.type_of(value).shape
        if own == shape:
            rows = _flat(rewriter, value)
            flat.append(rows or rows_of(rewriter, value, math.prod(shape[:-1]), shape[-1]))
        elif math.prod(own[:-1]) == 1:
            flat.append(value if len(own) < 2 else rows_of(rewriter, value, own[-1]))
        else:
            return False
    result = rewriter.emit(node.op, flat, node.attrs, name=f"{output}.{_FLAT}")
    rewriter.become(output, "Reshape", [result], {"shape": shape})
    return True


def _flat(rewriter: Rewriter, value: str) -> str | None:
    """Return the rows of pixels that a value is a reshape of."""
    producer = rewriter.producer(value)
    if producer is None or producer.op != "Reshape" or rewriter.type_of(producer.inputs[0]).rank != 2:
        return None
    return producer.inputs[0]


__all__ = ["EXACT", "PRODUCTS", "follow_rows", "is_one_product", "product_of_rows", "rows_of"]
