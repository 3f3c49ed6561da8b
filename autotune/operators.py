"""Operators of one's own: what they compute, as tensor expressions; fused, tuned and compiled like those of ONNX.

A package offers them by an entry point of group ``autotune.operators`` that names the module which defines them;
``docs/your-own-operators.md`` has an example.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autotune import library
from autotune.errors import GraphError, UsageError
from autotune.graph.ir import Array, Attr, Attrs, TensorType
from autotune.graph.ops import Attribute, OpDef, define_custom, get
from autotune.graph.ops.definition import Arrays, Compute, InferRule, Kind, Reference, Types
from autotune.graph.ops.library_kernel import by_registered_kernel, numbers_of, operator_of


def define(
    name: str,
    *,
    kind: Kind = "elementwise",
    inputs: int | tuple[int, int] = 1,
    infer: InferRule | None = None,
    reference: Reference,
    compute: Compute | None = None,
    attributes: Mapping[str, Attribute] | None = None,
    **facts: Any,
) -> OpDef:
    """Define an operator. Its name is that of the ONNX node after the node's domain and a dot: ``com.example.Snake``.

    ``kind`` is what fusion goes by. An element of an "elementwise" result must be a function of the operands' elements
    at the same place: it joins any neighbour. "reduction", "softmax", "normalization" and "contraction" decide how
    their dispatch is scheduled, and take elementwise neighbours in; "movement" copies. ``inputs`` is how many there
    are, or the least and the most.

    - ``infer(types, attrs)`` gives the types of the results; without it there is one, of the first operand's type.
      It raises GraphError for operands that do not fit.
    - ``reference(arrays, attrs)`` gives the results by NumPy, in those dtypes. It is what every candidate is checked
      against, and folds constants.
    - ``compute(tensors, attrs, names)`` gives the results as tensor expressions; that of a result has its name. Without
      it the operator is computed by the first library kernel that is registered for it and can, and its kind must be
      "sequential".

    An operand that is absent is None. ``attributes`` are those that a node may have; ``facts`` are further fields of
    :class:`~autotune.graph.ops.definition.OpDef`. Schedules are stored under the operator's name: give it another one
    where its meaning changes. Raises UsageError for a name without a domain, and for another kind without ``compute``.
    """
    if compute is None and kind != "sequential":
        raise UsageError(
            f"operator {name!r} of kind {kind!r} needs compute; only a 'sequential' one is called"
        )
    infer = infer or _like_first
    rule = compute or by_registered_kernel(name, infer)
    least_and_most = (inputs, inputs) if isinstance(inputs, int) else inputs
    return define_custom(OpDef(name, kind, least_and_most, infer, reference, rule, attributes or {}, **facts))


def check(op: OpDef, *arrays: Array, tolerance: float = 1e-5, **attrs: Attr) -> list[Array]:
    """Hold what an operator says of itself against each other, and give its results.

    Its reference must give the types that ``infer`` says, and so must its tensor expressions by the interpreter and as
    machine code, the same numbers within ``tolerance`` (of each number, and of 1). So must library kernels that are
    registered for it and can compute these operands.
    Raises GraphError that says which of them differs, and where most; also for operands that do not fit.
    """
    import autotune
    from autotune import te
    from autotune.graph.build import GraphBuilder

    expected = op.reference(arrays, attrs)
    tensors = [te.placeholder(a.shape, str(a.dtype), name=f"x{i}") for i, a in enumerate(arrays)]
    names = [f"y{i}" for i in range(len(expected))]
    computed = op.compute(tensors, attrs, names)
    by_interpreter = te.evaluate(computed, dict(zip(tensors, arrays, strict=True)))
    builder = GraphBuilder("checked")
    inputs = {builder.input(f"x{i}", a.shape, str(a.dtype)): a for i, a in enumerate(arrays)}
    outputs = builder.nodes(op.name, tuple(inputs), names, **attrs)
    by_machine = autotune.compile(builder.graph(*outputs)).run(inputs)
    for index, (want, *found) in enumerate(
        zip(expected, by_interpreter, [by_machine[name] for name in outputs], strict=True)
    ):
        for how, got in zip(("interpreted", "as machine code"), found, strict=True):
            _compare(f"{op.name}: result {index} {how}", got, want, tolerance)
    for kernel in library.operator_kernels():
        _check_kernel(kernel, op, arrays, attrs, expected, tolerance)
    return expected


def _check_kernel(
    kernel: library.LibraryKernel,
    op: OpDef,
    arrays: Arrays,
    attrs: Attrs,
    expected: Sequence[Array],
    tolerance: float,
) -> None:
    from autotune import te

    types = [None if a is None else TensorType.of(a) for a in arrays]
    complete = op.canonical(types, attrs)
    if kernel.operation != op.name or numbers_of(kernel, types, complete) is None:
        return
    given = {
        te.placeholder(a.shape, str(a.dtype), name=f"x{i}"): a for i, a in enumerate(arrays) if a is not None
    }
    called = get(operator_of(kernel)).compute([*given], complete, [f"y{i}" for i in range(len(expected))])
    for index, (got, want) in enumerate(zip(te.evaluate(called, given), expected, strict=True)):
        _compare(f"{op.name}: result {index} by kernel {kernel.name}", got, want, tolerance)


def _compare(what: str, got: Array, want: Array, tolerance: float) -> None:
    if TensorType.of(got) != TensorType.of(want):
        raise GraphError(f"{what} is {TensorType.of(got)}; its reference gives {TensorType.of(want)}")
    wide_got, wide_want = got.astype(np.float64), want.astype(np.float64)
    wrong = ~np.isclose(wide_got, wide_want, tolerance, tolerance, equal_nan=True)
    if wrong.any():
        with np.errstate(invalid="ignore"):
            far = np.where(wrong, np.nan_to_num(np.abs(wide_got - wide_want), nan=np.inf), -1)
        at = tuple(int(i) for i in np.unravel_index(int(np.argmax(far)), far.shape))
        raise GraphError(
            f"{what} differs from its reference in {int(wrong.sum())} of {wrong.size} elements, most at "
            f"{at}: {got[at]!r} instead of {want[at]!r}"
        )


def _like_first(types: Types, _: Attrs) -> list[TensorType]:
    first = types[0]
    assert first is not None  # at least one operand, which was checked
    return [first.dense]


__all__ = ["Attribute", "OpDef", "TensorType", "check", "define"]
