"""Operators that a library kernel computes: what another operator means, by one call of a function.

``autotune.library.float32.fast_snake`` is the operator that kernel ``fast_snake`` for ``float32`` was registered for.
It has its types and its reference, which candidates are checked against as everywhere, and is a dispatch of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from autotune import library, settings, te
from autotune.errors import GraphError
from autotune.graph.ir import Attrs, TensorType
from autotune.graph.ops.common import Expr, named_axes, stage
from autotune.graph.ops.definition import Compute, InferRule, OpDef, Tensors, Types
from autotune.graph.ops.registry import LIBRARY, get
from autotune.library.registry import Arguments
from autotune.te.expr import Const, const
from autotune.te.sequential import sequential
from autotune.te.statements import External, Steps


def operator_of(kernel: library.LibraryKernel) -> str:
    """Return the name of the operator that a kernel computes."""
    return f"{LIBRARY}{kernel.dtype}.{kernel.name}"


def kernel_definition(name: str) -> OpDef:
    """Return the definition of such an operator; raises BuildError where the kernel is not registered here."""
    dtype, _, kernel = name.removeprefix(LIBRARY).partition(".")
    return _definition(library.kernel(kernel, dtype))


@cache
def _definition(kernel: library.LibraryKernel) -> OpDef:
    computed = get(kernel.operation)
    assert kernel.arguments is not None  # as that of every kernel of an operator
    return OpDef(
        operator_of(kernel),
        "sequential",
        computed.inputs,
        computed.infer_rule,
        computed.reference_rule,
        by_function(library.symbol(kernel.name, kernel.dtype), kernel.arguments, computed.infer_rule),
        computed.attributes,
        computed.complete,
        computed.flops_rule,
        in_onnx=False,
        index_input=computed.index_input,
        index_tuples=computed.index_tuples,
        sum_length=computed.sum_length,
        positive_inputs=computed.positive_inputs,
    )


def numbers_of(kernel: library.LibraryKernel, types: Types, attrs: Attrs) -> Sequence[int | float] | None:
    """Return the numbers that a kernel takes beside pointers; None where it cannot compute such a node."""
    if not types or any(one is None or one.strides is not None for one in types):
        return None
    first = types[0]
    assert first is not None
    assert kernel.arguments is not None  # as that of every kernel of an operator
    return kernel.arguments(types, attrs) if first.dtype == kernel.dtype else None


def by_registered_kernel(name: str, infer: InferRule) -> Compute:
    """Return the rule that computes operator ``name`` by the first kernel that is registered for it and can.

    It raises GraphError where there is none.
    """

    def compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
        types = [None if t is None else TensorType(t.shape, t.dtype) for t in tensors]
        for kernel in library.operator_kernels():
            if kernel.operation == name and numbers_of(kernel, types, attrs) is not None:
                assert kernel.arguments is not None
                called = by_function(library.symbol(kernel.name, kernel.dtype), kernel.arguments, infer)
                return called(tensors, attrs, names)
        raise GraphError(
            f"{name} has no tensor expressions, and no library kernel that is registered here computes "
            f"{', '.join(map(str, types))}\n  the module that registers one must be imported, or be named in "
            f"{settings.environment_name('kernels')}"
        )

    return compute


def by_function(symbol: str, arguments: Arguments, infer: InferRule) -> Compute:
    """Return the rule that computes all results by one call of the function behind a symbol.

    Results of several shapes lie in memory of one length at first, from which they are copied.
    """

    def compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
        inputs = [tensor for tensor in tensors if tensor is not None]
        types = [None if t is None else TensorType(t.shape, t.dtype) for t in tensors]
        results, numbers = infer(types, attrs), arguments(types, attrs)
        if numbers is None:
            raise GraphError(f"{symbol} does not compute {', '.join(map(str, types))} with {dict(attrs)}")
        given = tuple(_number(number) for number in numbers)

        def call(steps: Steps, _: object) -> None:
            steps.call(External(symbol, (*steps.results, *inputs, *given), steps.results, tuple(inputs)))

        shapes, dtypes = {tuple(r.shape) for r in results}, [r.dtype for r in results]
        every = [*names, *(f"{names[0]}.unused{n}" for n in range(len(names), len(results)))]
        if len(shapes) == 1:
            return sequential(shapes.pop(), dtypes, inputs, call, every)[: len(names)]
        length = max(r.size for r in results)
        flat = sequential((length,), dtypes, inputs, call, [f"{name}.flat" for name in every])
        return [_shaped(flat[n], results[n].shape, name) for n, name in enumerate(names)]

    return compute


def _number(value: int | float) -> Const:
    found = const(value, "float64" if isinstance(value, float) else "int64")
    assert isinstance(found, Const)
    return found


def _shaped(flat: te.Tensor, shape: tuple[int, ...], name: str) -> te.Tensor:
    """Return the first elements of ``flat`` in a shape."""

    def element(*index: Expr) -> Expr:
        steps = [math.prod(shape[n + 1 :]) for n in range(len(shape))]
        return flat(sum((i * step for i, step in zip(index, steps, strict=True)), const(0, "int64")))

    return stage(shape, named_axes([f"i{n}" for n in range(len(shape))], element), name)


__all__ = ["by_function", "by_registered_kernel", "kernel_definition", "numbers_of", "operator_of"]
