"""Expressions to OpenCL C, one element at a time.

A value inside of many brackets is large. The side of a choice that is not taken is not evaluated where it reads memory:
it is then a branch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autotune.codegen.opencl.ranges import Ranges
from autotune.codegen.opencl.types import (
    INT_LIMITS,
    Value,
    constant,
    floating,
    register_type,
    unsigned,
    whole,
    wraps,
)
from autotune.codegen.opencl.writer import Writer
from autotune.codegen.source_text import SourceExpressions
from autotune.errors import BuildError
from autotune.lower.ir import Buffer, Load, has_load
from autotune.target import ITEM_BYTES
from autotune.te.dtypes import HALVES, is_float
from autotune.te.expr import Binary, Call, Cast, Compare, Const, Expr, IterVar, Not, Select, Var
from autotune.te.folding import folded, holds

MOST_BRACKETS = 24
"""Inside of each other; compilers end at 256."""

_ROUNDED = {"float16": "at_half", "bfloat16": "at_brain"}
_READ = {"float16": "at_from_half", "bfloat16": "at_from_brain"}
WRITTEN = {"float16": "at_to_half", "bfloat16": "at_to_brain"}
_BITS = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "left_shift": "<<", "right_shift": ">>"}
FUNCTIONS = {
    **{name: name for name in ("exp", "log", "log1p", "log2", "log10", "sin", "cos", "tan")},
    **{
        name: name
        for name in (
            "atan",
            "sinh",
            "cosh",
            "sqrt",
            "rsqrt",
            "erf",
            "tanh",
            "pow",
            "fmod",
            "trunc",
            "floor",
            "ceil",
        )
    },
    "exp_nonpositive": "exp",
    "round": "rint",
    "abs": "fabs",
}
"""Elementary functions by the language's names."""


class Expressions(SourceExpressions[Value]):
    """Writes expressions of OpenCL C; ``pointer`` gives the name of a buffer's first element.

    The same part of another backend is :class:`autotune.codegen.llvm.expressions.Expressions`.
    """

    code: Writer

    def __init__(self, code: Writer, pointer: Callable[[Buffer], str]) -> None:
        super().__init__(code)
        self.pointer = pointer
        self.ranges = Ranges()

    def place(self, buffer: Buffer, indices: Sequence[Expr]) -> Value:
        """Return the number of an element from the first element of its buffer."""
        offset, terms, depth, narrow = 0, list[str](), 0, True
        least = most = 0
        for index, stride in zip(indices, buffer.strides, strict=True):
            value, span = self.value(index), self.ranges.of(index)
            if value.number is not None:
                offset += value.number * stride
                continue
            narrow = narrow and value.narrow and span is not None
            if span is not None:
                least, most = least + span[0] * stride, most + span[1] * stride
            depth = max(depth, value.depth)
            terms.append(value.text if stride == 1 else f"{value.text} * {stride}")
        if not terms:
            return whole(offset)
        fits = (
            INT_LIMITS[0] <= least + offset
            and most + offset <= INT_LIMITS[1]
            and buffer.elements <= INT_LIMITS[1]
        )
        narrow = narrow and fits
        if not narrow:
            terms = [f"(long){term}" for term in terms]
        text = " + ".join([*terms, *([str(offset)] if offset > 0 else [])])
        if offset < 0:
            text += f" - {-offset}"
        return Value(text, "int64", None, depth + 1, narrow)

    def _is_plain(self, node: Expr, value: Value) -> bool:
        return value.number is not None or isinstance(node, Var)

    def _is_large(self, value: Value) -> bool:
        return value.depth > MOST_BRACKETS

    # -- nodes -----------------------------------------------------------------------------------------------

    def _load(self, node: Load) -> Value:
        place = self.place(node.buffer, node.indices)
        text = f"{self.pointer(node.buffer)}[{place.text}]"
        if node.dtype in _READ:
            text = f"{self.code.function(_READ[node.dtype])}({text})"
        return Value(text, node.dtype, None, place.depth + 1)

    def _constant(self, node: Const) -> Value:
        return constant(node)

    def _not(self, node: Not) -> Value:
        a = self.value(node.a)
        return Value(f"(!{a.text})", "bool", None if a.number is None else int(not a.number), a.depth + 1)

    def _binary(self, node: Binary) -> Value:
        if node.op in ("and", "or"):
            return self._logical(node)
        a, b = self.value(node.a), self.value(node.b)
        if is_float(node.dtype):
            return self._float(node.op, node.dtype, a, b)
        if a.number is not None and b.number is not None and node.dtype == "int64":
            return whole(folded(node.op, a.number, b.number, node.dtype))
        depth = max(a.depth, b.depth) + 1
        if node.dtype == "int64" and self.ranges.of(node) is not None:
            return self._index(node, a, b, depth)
        return Value(self._wrapping(node.op, node.dtype, a, b), node.dtype, None, depth)

    def _index(self, node: Binary, a: Value, b: Value, depth: int) -> Value:
        """Return arithmetic that is known not to overflow, in 32 bits where that is enough."""
        span, low = self.ranges.of(node), self.ranges.of(node.a)
        assert span is not None
        fits = INT_LIMITS[0] <= span[0] and span[1] <= INT_LIMITS[1]
        narrow = a.narrow and b.narrow and fits
        first = a.text if narrow or not (a.narrow and b.narrow) else f"(long){a.text}"
        if node.op in ("+", "-") and b.number == 0:
            return a
        if node.op in ("+", "-", "*"):
            return Value(f"({first} {node.op} {b.text})", "int64", None, depth, narrow)
        if node.op in ("//", "%") and low is not None and low[0] >= 0:
            sign = "/" if node.op == "//" else "%"
            return Value(f"({first} {sign} {b.text})", "int64", None, depth, narrow)
        return Value(self._wrapping(node.op, "int64", a, b), "int64", None, depth)

    def _wrapping(self, op: str, dtype: str, a: Value, b: Value) -> str:
        """Return the integer arithmetic on any operands."""
        if dtype == "bool":
            text = {"*": "({} & {})", "min": "({} & {})", "//": "({1} ? {0} : 0)", "%": "0"}
            return text.get(op, "({} | {})").format(a.text, b.text)
        if op in ("+", "-", "*"):
            if not wraps(dtype):
                return f"({a.text} {op} {b.text})"
            wide = unsigned(dtype)
            return f"(({register_type(dtype)})(({wide}){a.text} {op} ({wide}){b.text}))"
        names = {"//": "div", "%": "mod", "min": "min", "max": "max"}
        if op not in names:
            raise BuildError(f"no integer operation {op}")
        return f"{self.code.function(f'at_{names[op]}_{dtype}')}({a.text}, {b.text})"

    def _float(self, op: str, dtype: str, a: Value, b: Value) -> Value:
        depth = max(a.depth, b.depth) + 1
        if op in ("+", "-", "*", "/"):
            value = Value(f"({a.text} {op} {b.text})", dtype, None, depth)
            return self.rounded(value)
        wide = "float64" if dtype == "float64" else "float32"
        return Value(f"{self.code.function(f'at_{op}_{wide}')}({a.text}, {b.text})", dtype, None, depth)

    def rounded(self, value: Value) -> Value:
        """Return a float32 result as a number of a shorter type."""
        if value.dtype not in HALVES:
            return value
        text = f"{self.code.function(_ROUNDED[value.dtype])}({value.text})"
        return value._replace(text=text, depth=value.depth + 1)

    def _logical(self, node: Binary) -> Value:
        decides = int(node.op == "or")
        a = self.value(node.a)
        if a.number is not None:
            return a if bool(a.number) == bool(decides) else self.value(node.b)
        if not has_load(node.b):
            b = self.value(node.b)
            if b.number is not None:
                return whole(decides, "bool") if bool(b.number) == bool(decides) else a
            sign = "||" if decides else "&&"
            return Value(f"({a.text} {sign} {b.text})", "bool", None, max(a.depth, b.depth) + 1)
        name = self.code.fresh("c")
        self.code.line(f"int {name} = {a.text};")
        with self.code.block(f"if ({'!' if decides else ''}{name})"):
            self.code.line(f"{name} = {self.value(node.b).text};")
        return Value(name, "bool")

    def _compare(self, node: Compare) -> Value:
        a, b = self.value(node.a), self.value(node.b)
        if a.number is not None and b.number is not None:
            return whole(int(holds(node.op, a.number, b.number)), "bool")
        return Value(f"({a.text} {node.op} {b.text})", "bool", None, max(a.depth, b.depth) + 1)

    def _select(self, node: Select) -> Value:
        cond = self.value(node.cond)
        if cond.number is not None:
            return self.value(node.a if cond.number else node.b)
        if not has_load(node.a, node.b):
            a, b = self.value(node.a), self.value(node.b)
            depth = max(cond.depth, a.depth, b.depth) + 1
            narrow = a.narrow and b.narrow
            return Value(f"({cond.text} ? {a.text} : {b.text})", node.dtype, None, depth, narrow)
        name = self.code.fresh("s")
        self.code.line(f"{register_type(node.dtype)} {name};")
        for head, side in ((f"if ({cond.text})", node.a), ("else", node.b)):
            with self.code.block(head):
                self.code.line(f"{name} = {self.value(side).text};")
        return Value(name, node.dtype)

    def _call(self, node: Call) -> Value:
        args = [self.value(a) for a in node.args]
        text = ", ".join(a.text for a in args)
        depth = max(a.depth for a in args) + 1
        if node.name == "order_key":
            name = self.code.function(f"at_order_key_{node.args[0].dtype}")
            return Value(f"{name}({text})", node.dtype, None, depth)
        if node.name == "overwritten":
            return Value("0", node.dtype, None, 1)
        if node.name.startswith("bitcast_"):
            return self._bitcast(args[0], node.dtype)
        if node.name in _BITS:
            return self._of_bits(node.name, *args)
        if node.name == "sigmoid":
            name = self.code.function(f"at_sigmoid_{'d' if node.dtype == 'float64' else 'f'}")
        elif node.name in FUNCTIONS:
            name = FUNCTIONS[node.name]
        else:
            raise BuildError(f"no function {node.name} in OpenCL C")
        return self.rounded(Value(f"{name}({text})", node.dtype, None, depth))

    def _bitcast(self, value: Value, dtype: str) -> Value:
        if {value.dtype, dtype} & set(HALVES):
            raise BuildError(
                f"code for OpenCL devices cannot take {value.dtype} for {dtype}: halves are floats in it"
            )
        text = f"as_{register_type(dtype)}(({register_type(value.dtype)}){value.text})"
        return Value(text, dtype, None, value.depth + 2)

    def _of_bits(self, name: str, a: Value, b: Value) -> Value:
        """Shift: OpenCL C takes the amount modulo the width."""
        kind, width, depth = register_type(a.dtype), 8 * ITEM_BYTES[a.dtype], max(a.depth, b.depth) + 4
        text = f"({kind})(({kind}){a.text} {_BITS[name]} ({kind}){b.text})"
        if name in ("left_shift", "right_shift"):
            beyond = f"({a.text} < 0 ? -1 : 0)" if name == "right_shift" else "0"
            unsigned = f"(({register_type(f'uint{width}')}){b.text} < {width})"
            text = f"({unsigned} ? {text} : ({kind}){beyond})"
        return Value(f"({text})", a.dtype, None, depth)

    def _cast(self, node: Cast) -> Value:
        return self.cast(self.value(node.a), node.dtype)

    def cast(self, value: Value, dtype: str) -> Value:
        """Return a value converted to another type."""
        old, depth = value.dtype, value.depth + 1
        if old == dtype:
            return value
        if dtype == "bool":
            zero = floating(0.0, old) if is_float(old) else "0"
            return Value(f"({value.text} != {zero})", dtype, None, depth)
        if is_float(dtype):
            text = value.text
            if dtype in HALVES and old == "float64":
                function = "at_odd_single" if dtype == "float16" else "(float)"
                if dtype == "float16":
                    self.code.function(function)
                text = f"{function}({text})"
            elif old not in HALVES or dtype == "float64":
                text = f"(({register_type(dtype)}){text})"
            return self.rounded(Value(text, dtype, None, depth + 1))
        if is_float(old):
            source = "float64" if old == "float64" else "float32"
            name = self.code.function(f"at_{dtype}_of_{source}")
            return Value(f"{name}({value.text})", dtype, None, depth)
        if dtype == "int64" and old in ("bool", "int32", "int16", "int8", "uint16", "uint8"):
            return Value(f"((long){value.text})", dtype, None, depth)
        return Value(f"(({register_type(dtype)}){value.text})", dtype, None, depth)


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
