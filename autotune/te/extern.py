"""``te.extern``: tensors that a function outside of the program computes, a C function or one of ``numba.cfunc``.

The call is the statement of a sequential kernel (:mod:`autotune.te.sequential`): at the root, once, with pointers to
whole tensors. What the function does is not looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from autotune import library
from autotune.te.dtypes import dtype_named
from autotune.te.expr import Const, Expr, IterVar, as_expr, cast
from autotune.te.instructions import Argument, KernelCall, Number, Operand, OperandPointer
from autotune.te.operations import shape_of
from autotune.te.sequential import SequentialOp, results_of, sequential_op
from autotune.te.sizes import Closing, is_size, size_of, variables
from autotune.te.statements import External, Steps
from autotune.te.tags import tagged
from autotune.te.tensor import Tensor


@dataclass(frozen=True, eq=False)
class ExternBuffer:
    """A whole tensor as an argument of a call: the function gets a pointer to its first element."""

    number: int
    name: str
    shape: tuple[Any, ...]
    dtype: str

    @property
    def data(self) -> ExternBuffer:
        """The pointer, as programs for TVM write it."""
        return self

    def access_ptr(self, mode: str = "rw", *_: Any, **__: Any) -> ExternBuffer:
        """Return the pointer, as programs for TVM write it."""
        return self


@dataclass(frozen=True, eq=False)
class ExternCall:
    """A call of the function behind ``symbol``; arguments are buffers and numbers."""

    symbol: str
    arguments: tuple[ExternBuffer | Expr, ...]


class ExternOp(SequentialOp):
    """The operation of a call."""

    call: ExternCall
    result_sizes: tuple[Any, ...]

    @property
    def sizes(self) -> tuple[Any, ...]:
        return self.result_sizes if self.is_open else self.shape

    def renamed(self, name: str) -> ExternOp:
        names = tuple(name if n == 0 else f"{name}.v{n}" for n in range(len(self.names)))
        return _extern_op(self.result_sizes, self.dtypes, self.input_tensors, self.call, names)

    def closed(self, closing: Closing) -> ExternOp:
        """Return the call with numbers for its sizes."""
        arguments = tuple(
            a if isinstance(a, ExternBuffer) else closing.expression(a) for a in self.call.arguments
        )
        sizes = tuple(size_of(s, closing.sizes) for s in self.result_sizes)
        inputs = tuple(map(closing.tensor, self.input_tensors))
        return _extern_op(sizes, self.dtypes, inputs, ExternCall(self.call.symbol, arguments), self.names)


def call_extern(dtype: str, function: Any, *arguments: Any) -> ExternCall | KernelCall:
    """Return a call of a function, for ``te.extern`` or in place of the loops of a tensor intrinsic.

    What the function returns is dropped, so ``dtype`` says nothing.

    ``function`` is what ``numba.cfunc`` makes, a function of ``ctypes``, an address, or the name under which
    ``library.register(name, function, operation="extern")`` knows one: only that is found by other processes.
    Arguments are the buffers of ``te.extern``, which become pointers, and numbers: integers are ``int64_t``, floats
    ``double``; ``te.const`` gives another type. Those of an intrinsic are its operands and ``operand.stride(dim)``, in
    elements. Raises TypeError for other arguments, UsageError without an address.
    """
    symbol = library.extern_symbol(function)
    if any(isinstance(a, Operand | OperandPointer) for a in arguments):
        return KernelCall(symbol, tuple(map(_of_intrinsic, arguments)))
    return ExternCall(symbol, tuple(map(_argument, arguments)))


def _of_intrinsic(value: Any) -> Argument:
    """Return an argument of a call that stands for the loops of a tensor intrinsic."""
    if isinstance(value, Operand):
        return value.data
    if isinstance(value, OperandPointer | Number):
        return value
    number = _argument(value)
    if not isinstance(number, Const):
        raise TypeError(f"te.call_extern: an intrinsic passes operands, strides and numbers, got {value!r}")
    return Number(number.dtype, number.value)


def _argument(value: Any) -> ExternBuffer | Expr:
    if isinstance(value, ExternBuffer):
        return value
    number = as_expr(value, "float64" if isinstance(value, float) else None)
    if not (isinstance(number, Const) or is_size(number)) or number.dtype not in library.NUMBERS:
        raise TypeError(
            f"te.call_extern: an argument is a buffer or a number of {', '.join(library.NUMBERS)}, got {value!r}"
        )
    return number


def extern(
    shape: Any,
    inputs: Sequence[Tensor],
    fcompute: Callable[[list[ExternBuffer], list[ExternBuffer]], ExternCall],
    name: str = "extern",
    dtype: Any = None,
    in_buffers: Any = None,
    out_buffers: Any = None,
    tag: str = "",
    attrs: Any = None,
) -> Any:
    """Return tensors that a call of a function outside of the program stores.

    ``fcompute(ins, outs)`` gets buffers for ``inputs`` and results and returns :func:`call_extern` of some of them.
    ``shape`` is one shape, or a list of shapes, which must be equal, for several results; ``dtype`` one type or a list,
    by default that of the inputs. All tensors are dense. Returns a tensor, or a list of them. Raises TypeError for
    other arguments.
    """
    if in_buffers is not None or out_buffers is not None:
        raise TypeError(f"{name}: te.extern takes no buffers of one's own; tensors are dense")
    several = bool(shape) and isinstance(shape, list | tuple) and isinstance(shape[0], list | tuple)
    shapes = [shape_of(s) for s in shape] if several else [shape_of(shape)]
    dtypes = _dtypes(name, dtype, inputs, len(shapes))
    if any(len(s) != len(shapes[0]) or not all(map(_same, s, shapes[0])) for s in shapes):
        raise TypeError(
            f"{name}: the results of one te.extern have one shape, got {', '.join(map(str, shapes))}"
        )
    names = tuple(f"{name}.v{n}" if len(shapes) > 1 else name for n in range(len(shapes)))
    buffers = [
        ExternBuffer(n, *parts)
        for n, parts in enumerate(
            [*zip(names, shapes, dtypes, strict=True), *((t.name, t.shape, t.dtype) for t in inputs)]
        )
    ]
    call = fcompute(buffers[len(shapes) :], buffers[: len(shapes)])
    if not isinstance(call, ExternCall):
        raise TypeError(f"{name}: fcompute of te.extern returns te.call_extern(...), got {call!r}")
    op = _extern_op(shapes[0], dtypes, tuple(inputs), call, names)
    op.tag, op.attrs = tagged(name, tag), dict(attrs or {})
    outputs = [op.output(n) for n in range(len(shapes))]
    return outputs if several else outputs[0]


def _same(a: Any, b: Any) -> bool:
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


def _dtypes(name: str, dtype: Any, inputs: Sequence[Tensor], count: int) -> tuple[str, ...]:
    if dtype is None:
        known = {t.dtype for t in inputs}
        if len(known) != 1:
            raise TypeError(
                f"{name}: say the dtype of te.extern; its inputs have {', '.join(sorted(known)) or 'none'}"
            )
        return tuple(known) * count
    given = tuple(dtype) if isinstance(dtype, list | tuple) else (dtype,) * count
    if len(given) != count:
        raise TypeError(f"{name}: got {len(given)} dtypes for {count} results")
    return tuple(map(dtype_named, given))


def _extern_op(
    sizes: tuple[Any, ...],
    dtypes: tuple[str, ...],
    inputs: tuple[Tensor, ...],
    call: ExternCall,
    names: tuple[str, ...],
) -> ExternOp:
    def build(steps: Steps, _: Sequence[IterVar]) -> None:
        tensors = (*steps.results, *inputs)
        arguments = tuple(
            tensors[a.number] if isinstance(a, ExternBuffer) else _number(a) for a in call.arguments
        )
        steps.call(External(call.symbol, arguments, steps.results, inputs))

    shape = tuple(map(size_of, sizes))
    op = sequential_op(ExternOp, results_of(names, shape, dtypes), inputs, build)
    op.call, op.result_sizes = call, sizes
    arguments = [a for a in call.arguments if isinstance(a, Expr)]
    op.is_open = bool(variables([*sizes, *arguments]))
    return op


def _number(value: Expr) -> Const:
    """Return a number with its type; a size at its example where it is open."""
    found = value if isinstance(value, Const) else cast(size_of(value), value.dtype)
    assert isinstance(found, Const)
    return found


__all__ = ["ExternBuffer", "ExternCall", "ExternOp", "call_extern", "extern"]
