"""Expression nodes of the tensor-expression language, and what builds them.

Nodes are immutable and compared by identity; Python's operators build new nodes, so ``i < n`` is an expression
and not a bool. Integer arithmetic on constants is folded while building.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, Union

from autotune.te.dtypes import INDEX_DTYPE, dtype_named, is_float, promote, wrapped
from autotune.te.folding import by_constant, folded, of_constant
from autotune.te.narrow import NARROW

if TYPE_CHECKING:
    from autotune.te.tensor import Tensor

ExprLike: TypeAlias = Union["Expr", int, float, bool]


class Expr:
    """Base of all expression nodes; ``dtype`` is a NumPy dtype name."""

    __slots__ = ("dtype",)
    dtype: str

    def __add__(self, other: ExprLike) -> Expr:
        return _arithmetic("+", self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return binary("+", other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return _arithmetic("-", self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return binary("-", other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return _arithmetic("*", self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return binary("*", other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return _arithmetic("/", self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return binary("/", other, self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return _arithmetic("//", self, other)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return binary("//", other, self)

    def __mod__(self, other: ExprLike) -> Expr:
        return _arithmetic("%", self, other)

    def __rmod__(self, other: ExprLike) -> Expr:
        return binary("%", other, self)

    def __neg__(self) -> Expr:
        return binary("-", const(0, self.dtype), self)

    def __lt__(self, other: ExprLike) -> Expr:
        return compare("<", self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return compare("<=", self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return compare(">", self, other)

    def __ge__(self, other: ExprLike) -> Expr:
        return compare(">=", self, other)

    def __eq__(self, other: object) -> Any:
        return compare("==", self, other) if isinstance(other, Expr | int | float) else False

    def __ne__(self, other: object) -> Any:
        return compare("!=", self, other) if isinstance(other, Expr | int | float) else True

    def equal(self, other: ExprLike) -> Expr:
        """Return ``self == other`` (TVM's name for it)."""
        return compare("==", self, other)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError(
            "an expression has no truth value while the program is built; "
            "use te.if_then_else, te.all or te.any"
        )

    def astype(self, dtype: str) -> Expr:
        """Return this expression converted to ``dtype``."""
        return cast(self, dtype)

    def __repr__(self) -> str:
        from autotune.te.printer import expr_text

        return expr_text(self)


def _arithmetic(op: str, a: Expr, b: ExprLike) -> Expr:
    """Return ``a op b``; a whole tensor answers for itself."""
    if hasattr(b, "value_index"):
        return NotImplemented  # type: ignore[no-any-return]
    return binary(op, a, b)


class Var(Expr):
    """A scalar variable."""

    __slots__ = ("name",)

    def __init__(self, name: str, dtype: str = INDEX_DTYPE) -> None:
        self.name = name
        self.dtype = dtype


class Range(NamedTuple):
    """``extent`` integers from ``min`` on; an extent that a call brings is an expression."""

    min: int
    extent: Any


class IterVar(Var):
    """A loop variable with its domain ``[0, extent)`` shifted by ``start``.

    ``kind`` is "data" (parallelisable), "reduce" or "thread". Where a call brings the extent, ``open_extent`` is
    its expression, and ``extent`` the number for an example.
    """

    __slots__ = ("extent", "kind", "open_extent", "start", "tag")

    def __init__(
        self,
        name: str,
        extent: int,
        kind: str,
        start: int = 0,
        tag: str = "",
        open_extent: Expr | None = None,
    ) -> None:
        super().__init__(name)
        self.extent = extent
        self.open_extent = open_extent
        self.kind = kind
        self.start = start
        self.tag = tag

    @property
    def dom(self) -> Range:
        """The domain: its first value and how many there are."""
        return Range(self.start, self.extent if self.open_extent is None else self.open_extent)

    @property
    def var(self) -> IterVar:
        """The variable itself (other systems keep two objects)."""
        return self


class Const(Expr):
    """A constant of type ``dtype``."""

    __slots__ = ("value",)

    def __init__(self, value: int | float | bool, dtype: str) -> None:
        self.value = value
        self.dtype = dtype


class Binary(Expr):
    """``a op b`` with op one of ``+ - * / // % min max max_number and or``.

    ``max_number`` is the larger of two floating-point values, ``a`` where ``b`` is NaN; ``a`` never is one: it is
    what a reduction has found so far.
    """

    __slots__ = ("a", "b", "op")

    def __init__(self, op: str, a: Expr, b: Expr, dtype: str) -> None:
        self.op = op
        self.a = a
        self.b = b
        self.dtype = dtype


class Compare(Expr):
    """``a op b`` with op one of ``< <= > >= == !=``; its dtype is bool."""

    __slots__ = ("a", "b", "op")

    def __init__(self, op: str, a: Expr, b: Expr) -> None:
        self.op = op
        self.a = a
        self.b = b
        self.dtype = "bool"

    def __bool__(self) -> bool:
        # Lets nodes be dictionary keys and list members: identity is equality there.
        if self.op == "==":
            return self.a is self.b
        if self.op == "!=":
            return self.a is not self.b
        return super().__bool__()


class Not(Expr):
    """Logical negation."""

    __slots__ = ("a",)

    def __init__(self, a: Expr) -> None:
        self.a = a
        self.dtype = "bool"


class Select(Expr):
    """``a if cond else b``; the side not taken is not evaluated, so it may read out of bounds."""

    __slots__ = ("a", "b", "cond")

    def __init__(self, cond: Expr, a: Expr, b: Expr) -> None:
        self.cond = cond
        self.a = a
        self.b = b
        self.dtype = a.dtype


class Cast(Expr):
    """``a`` converted to ``dtype``.

    Floating point to an integer truncates toward zero, stays within the type's limits, and takes NaN to 0; an integer
    to a narrower one wraps.
    """

    __slots__ = ("a",)

    def __init__(self, a: Expr, dtype: str) -> None:
        self.a = a
        self.dtype = dtype


class Call(Expr):
    """An elementary function of ``args``."""

    __slots__ = ("args", "name")

    def __init__(self, name: str, args: tuple[Expr, ...], dtype: str) -> None:
        self.name = name
        self.args = args
        self.dtype = dtype


class Read(Expr):
    """An element of a tensor."""

    __slots__ = ("indices", "tensor")

    def __init__(self, tensor: Tensor, indices: tuple[Expr, ...]) -> None:
        self.tensor = tensor
        self.indices = indices
        self.dtype = tensor.dtype


class Reducer:
    """A commutative reducer over tuples of values.

    ``combine(accumulators, values)`` builds the new accumulators; ``identity(dtypes)`` their start.
    """

    __slots__ = ("combine", "identity", "name")

    def __init__(
        self,
        name: str,
        combine: Callable[[tuple[Expr, ...], tuple[Expr, ...]], tuple[Expr, ...]],
        identity: Callable[[tuple[str, ...]], tuple[Expr, ...]],
    ) -> None:
        self.name = name
        self.combine = combine
        self.identity = identity


class Reduce(Expr):
    """A reduction of ``sources`` over ``axis``; this node is the component ``index`` of its result."""

    __slots__ = ("axis", "index", "reducer", "sources")

    def __init__(
        self, reducer: Reducer, sources: tuple[Expr, ...], axis: tuple[IterVar, ...], index: int
    ) -> None:
        self.reducer = reducer
        self.sources = sources
        self.axis = axis
        self.index = index
        self.dtype = sources[index].dtype


def const(value: int | float | bool, dtype: str | None = None) -> Expr:
    """Return a constant; the type defaults to int64, float32 or bool after the Python value. Integers
    wrap to their type."""
    if dtype is None:
        dtype = "bool" if isinstance(value, bool) else INDEX_DTYPE if isinstance(value, int) else "float32"
    else:
        dtype = dtype_named(dtype)
    if dtype in NARROW:
        raise TypeError(f"no constant has type {dtype}: te.cast one")
    if dtype == "bool":
        return Const(bool(value), dtype)
    return Const(float(value) if is_float(dtype) else wrapped(int(value), dtype), dtype)


def as_expr(value: ExprLike | Any, dtype: str | None = None) -> Expr:
    """Return ``value`` as an expression; Python numbers take ``dtype`` when it fits them."""
    if isinstance(value, Expr):
        return value
    if hasattr(value, "item"):  # a NumPy scalar
        value = value.item()
    if hasattr(value, "as_index"):  # the value of a knob
        found: Expr = value.as_index()
        return found
    if isinstance(value, bool | int | float):
        if dtype is None or (isinstance(value, float) and not is_float(dtype)):
            return const(value)
        return const(value, dtype)
    raise TypeError(f"not a scalar expression: {value!r} of type {type(value).__name__}")


def cast(value: ExprLike, dtype: str) -> Expr:
    """Return ``value`` converted to ``dtype``; no node when it has that type."""
    value, dtype = as_expr(value), dtype_named(dtype)
    if value.dtype == dtype:
        return value
    if (
        isinstance(value, Const)
        and dtype not in NARROW
        and not (is_float(value.dtype) and not is_float(dtype))
    ):
        return const(value.value, dtype)
    return Cast(value, dtype)


def operands(a: ExprLike, b: ExprLike) -> tuple[Expr, Expr, str]:
    """Return two operands brought to their common type, and that type; a Python number takes the other's
    type if it can."""
    if isinstance(a, Expr) and not isinstance(b, Expr):
        b = as_expr(b, a.dtype if a.dtype != "bool" else None)
    elif isinstance(b, Expr) and not isinstance(a, Expr):
        a = as_expr(a, b.dtype if b.dtype != "bool" else None)
    x, y = as_expr(a), as_expr(b)
    for value in (x, y):
        if value.dtype in NARROW:
            raise TypeError(f"{value.dtype} is for storage only: te.cast it to a type that is computed with")
    dtype = promote(x.dtype, y.dtype)
    return cast(x, dtype), cast(y, dtype), dtype


def binary(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """Return the node ``a op b`` with operands brought to their common type, integers folded."""
    x, y, dtype = operands(a, b)
    if op == "/" and not is_float(dtype):
        raise TypeError("'/' on integers is ambiguous; use // or te.cast to a float type first")
    if op == "//" and is_float(dtype):
        raise TypeError(f"'//' is integer arithmetic; got {dtype}: take te.floor of the quotient")
    if op == "%" and is_float(dtype):
        return _float_modulo(x, y, dtype)
    if not is_float(dtype):
        folded = _fold_integers(op, x, y, dtype)
        if folded is not None:
            return folded
    return Binary(op, x, y, dtype)


def _float_modulo(x: Expr, y: Expr, dtype: str) -> Expr:
    """Return ``x % y`` of floating-point numbers as in Python and NumPy: the exact remainder, moved to
    the divisor's sign."""
    rest = Call("fmod", (x, y), dtype)
    moved = select(compare("!=", rest < 0, y < 0), binary("+", rest, y), rest)
    zero = select(y < 0, const(-0.0, dtype), const(0.0, dtype))
    return select(compare("==", rest, const(0.0, dtype)), zero, moved)


def _fold_integers(op: str, x: Expr, y: Expr, dtype: str) -> Expr | None:
    """Return the integer identities worth having while building; None where there is nothing to fold."""
    if isinstance(x, Const) and isinstance(y, Const):
        return const(folded(op, int(x.value), int(y.value), dtype), dtype)
    if isinstance(y, Const):
        operand, constant, left = x, y, by_constant(op, int(y.value))
    elif isinstance(x, Const):
        operand, constant, left = y, x, of_constant(op, int(x.value))
    else:
        return None
    if left == "zero":
        return const(0, dtype)
    return operand if left == "operand" else constant if left == "constant" else None


def compare(op: str, a: ExprLike, b: ExprLike | Any) -> Expr:
    """Return the comparison ``a op b``."""
    if isinstance(a, Expr) and isinstance(b, Expr) and a.dtype == b.dtype and a.dtype not in NARROW:
        return Compare(op, a, b)
    x, y, _ = operands(a, b)
    return Compare(op, x, y)


def select(cond: ExprLike, a: ExprLike, b: ExprLike) -> Expr:
    """Return ``a if cond else b``, folded when the condition is a constant."""
    c = as_expr(cond)
    if c.dtype != "bool":
        raise TypeError(f"the condition of if_then_else must be a comparison, got {c.dtype}")
    x, y = as_expr(a), as_expr(b)
    if x.dtype != y.dtype or not (isinstance(a, Expr) and isinstance(b, Expr)):
        x, y, _ = operands(a, b)
    if isinstance(c, Const):
        return x if c.value else y
    return Select(c, x, y)


def negate(a: ExprLike) -> Expr:
    """Return the logical not, folded when the operand is a constant."""
    x = as_expr(a)
    return const(not x.value, "bool") if isinstance(x, Const) else Not(x)


__all__ = [
    "Binary",
    "Call",
    "Cast",
    "Compare",
    "Const",
    "Expr",
    "ExprLike",
    "IterVar",
    "Not",
    "Range",
    "Read",
    "Reduce",
    "Reducer",
    "Select",
    "Var",
    "as_expr",
    "binary",
    "cast",
    "compare",
    "const",
    "negate",
    "operands",
    "select",
]
