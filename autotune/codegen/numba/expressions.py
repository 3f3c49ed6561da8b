"""Expressions to Python for numba, one element at a time.

A value inside of many brackets and a long one are large. The side of a choice that is not taken is not evaluated: it is
a conditional expression, or a branch where names are given inside.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.codegen.numba.narrow import narrowed, widened
from autotune.codegen.numba.types import Level, Value, constant, typed
from autotune.codegen.numba.writer import Writer
from autotune.codegen.source_text import SourceExpressions
from autotune.errors import BuildError
from autotune.lower.ir import Buffer, Load
from autotune.te.dtypes import HALVES, is_float, is_unsigned
from autotune.te.expr import Binary, Call, Cast, Compare, Const, Expr, IterVar, Not, Select, Var
from autotune.te.narrow import NARROW

MOST_BRACKETS = 12
"""Inside of each other."""
MOST_CHARACTERS = 90
"""Of an expression without a name."""

_READ = {"float16": "half_to_float", "bfloat16": "brain_to_float"}
_ROUNDED = {"float16": "round_to_half", "bfloat16": "round_to_brain"}
WRITTEN = {"float16": "float_to_half", "bfloat16": "float_to_brain"}
_BITS = {
    "bitwise_and": ("&", Level.BIT_AND),
    "bitwise_or": ("|", Level.BIT_OR),
    "bitwise_xor": ("^", Level.BIT_XOR),
}
_LEVELS = {
    "+": Level.SUM,
    "-": Level.SUM,
    "*": Level.PRODUCT,
    "/": Level.PRODUCT,
    "//": Level.PRODUCT,
    "%": Level.PRODUCT,
}
_EXTREMES = {"min": "minimum", "max": "maximum", "max_number": "max_number"}
FUNCTIONS = {
    **{
        name: f"np.{name}"
        for name in ("exp", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "sinh", "cosh")
    },
    **{name: f"np.{name}" for name in ("sqrt", "tanh", "fmod", "trunc", "floor", "ceil")},
    "exp_nonpositive": "np.exp",
    "atan": "np.arctan",
    "pow": "np.power",
    "round": "np.rint",
    "erf": "math.erf",
    "abs": "abs",
}
"""Elementary functions by their names in Python; they give the type of their argument."""


class Expressions(SourceExpressions[Value]):
    """Writes expressions of Python; ``arrays`` are the names of buffers.

    The same part of another backend is :class:`autotune.codegen.opencl.expressions.Expressions`.
    """

    code: Writer

    def __init__(self, code: Writer, arrays: dict[Buffer, str]) -> None:
        super().__init__(code)
        self.arrays = arrays
        self.variables: dict[Buffer, str] = {}
        """Names of local memory of one element, which holds a value as it is computed with."""

    def place(self, buffer: Buffer, indices: Sequence[Expr]) -> str:
        """Return the text of an element of a buffer."""
        if buffer in self.variables:
            return self.variables[buffer]
        return f"{self.arrays[buffer]}[{', '.join(self.value(index).text for index in indices) or '()'}]"

    def _is_plain(self, node: Expr, value: Value) -> bool:
        return isinstance(node, Var | Const)

    def _is_large(self, value: Value) -> bool:
        return value.depth > MOST_BRACKETS or len(value.text) > MOST_CHARACTERS

    # -- nodes -----------------------------------------------------------------------------------------------

    def _load(self, node: Load) -> Value:
        value = Value(self.place(node.buffer, node.indices), node.dtype, Level.ATOM, 1)
        if node.dtype not in _READ or node.buffer in self.variables:
            return value
        return self._applied(_READ[node.dtype], value)

    def _applied(self, helper: str, value: Value, dtype: str = "") -> Value:
        """Return a helper function of a value; it gives exactly ``dtype``, by default the value's."""
        text = f"{self.code.function(helper)}({value.text})"
        return Value(text, dtype or value.dtype, Level.ATOM, value.depth + 1)

    def _constant(self, node: Const) -> Value:
        return constant(node)

    def _not(self, node: Not) -> Value:
        a = self.value(node.a)
        return Value(f"not {a.at(Level.NOT)}", "bool", Level.NOT, a.depth + 1)

    def _binary(self, node: Binary) -> Value:
        if node.op in ("and", "or"):
            return self._logical(node)
        a, b = self.value(node.a), self.value(node.b)
        if is_float(node.dtype):
            return self._float(node.op, node.dtype, a, b)
        if node.dtype == "bool":
            return self._of_truth(node.op, a, b)
        return self._integer(node, a, b)

    def _infix(self, sign: str, level: Level, a: Value, b: Value, dtype: str) -> Value:
        text = f"{a.at(level)} {sign} {b.at(Level(level + 1))}"
        return Value(text, dtype, level, max(a.depth, b.depth) + 1)

    def _float(self, op: str, dtype: str, a: Value, b: Value) -> Value:
        if op in _EXTREMES:
            text = f"{self.code.function(_EXTREMES[op])}({a.text}, {b.text})"
            return Value(text, dtype, Level.ATOM, max(a.depth, b.depth) + 1)
        if op not in _LEVELS:
            raise BuildError(f"no floating-point operation {op}")
        return self._rounded(self._infix(op, _LEVELS[op], a, b, dtype))

    def _rounded(self, value: Value) -> Value:
        """Round what was computed in float32 to a number of a shorter type."""
        return self._applied(_ROUNDED[value.dtype], value) if value.dtype in HALVES else value

    def _of_truth(self, op: str, a: Value, b: Value) -> Value:
        if op in ("*", "min"):
            return self._infix("and", Level.AND, a, b, "bool")
        if op in ("+", "max"):
            return self._infix("or", Level.OR, a, b, "bool")
        raise BuildError(f"no operation {op} of truth values")

    def _integer(self, node: Binary, a: Value, b: Value) -> Value:
        """Return integer arithmetic on any operands: it wraps, and nothing is divided by zero."""
        op, dtype = node.op, node.dtype
        depth = max(a.depth, b.depth) + 1
        if op in ("min", "max"):
            return Value(f"{op}({a.text}, {b.text})", dtype, Level.ATOM, depth)
        if op not in _LEVELS or op == "/":
            raise BuildError(f"no integer operation {op}")
        safe = isinstance(node.b, Const) and node.b.value not in (0, -1)
        if op in ("//", "%") and not safe:
            kind = "unsigned" if is_unsigned(dtype) else "floor"
            helper = self.code.function(f"{kind}_{'divide' if op == '//' else 'modulo'}")
            value = Value(f"{helper}({a.text}, {b.text})", dtype, Level.ATOM, depth)
        else:
            value = self._infix(op, _LEVELS[op], a, b, dtype)
        return value if dtype in ("int64", "uint64") else typed(dtype, value.text, depth)

    def _logical(self, node: Binary) -> Value:
        """Return the work the second operand out where the first does not decide."""
        level = Level.AND if node.op == "and" else Level.OR
        a = self.value(node.a)
        b, lines = self._aside(node.b)
        if not lines:
            return self._infix(node.op, level, a, b, "bool")
        name = self.code.named(a, "c").text
        self._branch(f"if {name}" if node.op == "and" else f"if not {name}", lines, f"{name} = {b.text}")
        return Value(name, "bool")

    def _aside(self, node: Expr) -> tuple[Value, list[str]]:
        """Return a value that is needed on one side of a choice only, and the lines that name parts of it."""
        with self.code.aside() as lines:
            return self.value(node), lines

    def _branch(self, head: str, lines: Sequence[str], last: str) -> None:
        with self.code.block(head):
            for line in lines:
                self.code.further(line)
            self.code.line(last)

    def _compare(self, node: Compare) -> Value:
        a, b = self.value(node.a), self.value(node.b)
        above = Level(Level.COMPARE + 1)
        text = f"{a.at(above)} {node.op} {b.at(above)}"
        return Value(text, "bool", Level.COMPARE, max(a.depth, b.depth) + 1)

    def _select(self, node: Select) -> Value:
        cond = self.value(node.cond)
        (a, before_a), (b, before_b) = self._aside(node.a), self._aside(node.b)
        if not before_a and not before_b:
            text = f"{a.at(Level.OR)} if {cond.at(Level.OR)} else {b.at(Level.CONDITION)}"
            return Value(text, node.dtype, Level.CONDITION, max(cond.depth, a.depth, b.depth) + 1)
        name = self.code.names.fresh("s")
        self._branch(f"if {cond.text}", before_a, f"{name} = {a.text}")
        self._branch("else", before_b, f"{name} = {b.text}")
        return Value(name, node.dtype)

    def _call(self, node: Call) -> Value:
        args = [self.value(a) for a in node.args]
        depth = max(a.depth for a in args) + 1
        if node.name == "order_key":
            return self._applied(f"order_key_{node.args[0].dtype}", args[0], node.dtype)
        if node.name == "overwritten":
            return Value("False", node.dtype, Level.ATOM, 1)
        if node.name.startswith("bitcast_"):
            return self._bitcast(args[0], node.dtype)
        if node.name in _BITS:
            sign, level = _BITS[node.name]
            value = self._infix(sign, level, args[0], args[1], node.dtype)
            return value if node.dtype in ("int64", "uint64") else typed(node.dtype, value.text, depth)
        text = ", ".join(a.text for a in args)
        if node.name in ("left_shift", "right_shift"):
            helper = self.code.function(f"{node.name}_{node.dtype}")
            return Value(f"{helper}({text})", node.dtype, Level.ATOM, depth)
        if node.name == "sigmoid":
            return self._rounded(typed(node.dtype, self._applied("sigmoid", args[0]).text, depth))
        if node.name == "rsqrt":
            return self._rounded(typed(node.dtype, f"1.0 / np.sqrt({text})", depth))
        if node.name not in FUNCTIONS:
            raise BuildError(f"no function {node.name} in code for numba")
        return self._rounded(Value(f"{FUNCTIONS[node.name]}({text})", node.dtype, Level.ATOM, depth))

    def _bitcast(self, value: Value, dtype: str) -> Value:
        """Return the same bits as another type: those of halves are what lies in memory."""
        if "bool" in (value.dtype, dtype):
            raise BuildError(f"code for numba cannot take the bits of {value.dtype} for {dtype}")
        if value.dtype in HALVES:
            value = self._applied(WRITTEN[value.dtype], value, "uint16")
        between = "uint16" if dtype in HALVES else dtype
        if (
            value.dtype != between
        ):  # numba has a view of what is converted on the spot, and of no other scalar
            text = f"np.{value.dtype}({value.text}).view(np.{between})"
            value = Value(text, between, Level.ATOM, value.depth + 1)
        return self._applied(_READ[dtype], value, dtype) if dtype in HALVES else value

    def _cast(self, node: Cast) -> Value:
        return self._converted(self.value(node.a), node.dtype)

    def _converted(self, value: Value, dtype: str) -> Value:
        old, depth = value.dtype, value.depth + 1
        if old == dtype:
            return value
        if old in NARROW:
            helper, wide = widened(old)
            return self._converted(self._applied(helper, value, wide), dtype)
        if dtype in NARROW:
            return self._narrowed(value, dtype)
        if dtype == "bool":
            zero = constant(Const(0, old))
            return self._infix("!=", Level.COMPARE, value._replace(text=value.at(Level.BIT_OR)), zero, "bool")
        if is_float(dtype):
            if dtype == "float16" and old == "float64":
                value = self._applied("odd_single", value, dtype)
            elif old not in HALVES or dtype == "float64":
                value = typed(dtype, value.text, depth)
            return self._rounded(value._replace(dtype=dtype))
        if is_float(old):
            return self._applied(f"float_to_{dtype}", value, dtype)
        return typed(dtype, value.text, depth)

    def _narrowed(self, value: Value, dtype: str) -> Value:
        helper, wide = narrowed(dtype)
        if is_float(value.dtype) and wide != "float32":  # within the limits of the type
            value = self._applied(f"float_to_{dtype}", value, wide)
        return self._applied(helper, self._converted(value, wide), dtype)


Expressions.emitters = {
    Load: Expressions._load,
    Const: Expressions._constant,
    Binary: Expressions._binary,
    Var: Expressions._variable,
    IterVar: Expressions._variable,
    Select: Expressions._select,
    Compare: Expressions._compare,
    Call: Expressions._call,
    Cast: Expressions._cast,
    Not: Expressions._not,
}

__all__ = ["FUNCTIONS", "WRITTEN", "Expressions"]
