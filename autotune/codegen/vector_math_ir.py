"""A writer of LLVM IR over one vector shape: what the vector functions are built of."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

__all__ = ["FLOATS", "FloatFormat", "VectorWriter"]


@dataclass(frozen=True)
class FloatFormat:
    """One IEEE 754 binary format, with the names LLVM has for it."""

    dtype: str
    llvm: str
    integer: str
    suffix: str
    bits: int
    mantissa: int
    bias: int

    def pattern(self, value: float) -> int:
        """The bit pattern of `value` rounded to this format, as an unsigned integer."""
        code = "<f" if self.bits == 32 else "<d"
        return int.from_bytes(struct.pack(code, value), "little")

    def rounded(self, value: float) -> float:
        """`value` rounded to this format."""
        code = "<f" if self.bits == 32 else "<d"
        return float(struct.unpack(code, struct.pack(code, value))[0])

    def literal(self, value: float) -> str:
        """The LLVM literal of `value`: the hexadecimal float64 pattern of the rounded value."""
        return f"0x{int.from_bytes(struct.pack('<d', self.rounded(value)), 'little'):016X}"


FLOATS: Final = {
    "float32": FloatFormat("float32", "float", "i32", "f32", 32, 23, 127),
    "float64": FloatFormat("float64", "double", "i64", "f64", 64, 52, 1023),
}


@dataclass
class _Body:
    lines: list[str] = field(default_factory=list)
    needs: set[str] = field(default_factory=set)
    block: str = "entry"


@dataclass(frozen=True)
class VectorWriter:
    """Appends instructions on values of `lanes` elements; operands and results are SSA names.

    `lanes == 1` means scalars. Float operations take a value's format from the writer; `wide()`
    gives a writer of float64 that appends to the same body. With `avx512` the target has AVX-512F
    and VL, whose instructions for exponents and approximate reciprocals are used on whole registers.
    """

    fmt: FloatFormat
    lanes: int
    body: _Body = field(default_factory=_Body)
    avx512: bool = False

    @property
    def native(self) -> bool:
        """Whether values are whole registers of a machine with AVX-512."""
        return self.avx512 and self.lanes * self.fmt.bits in (128, 256, 512)

    def has_tables(self, entries: int) -> bool:
        """Whether :meth:`lookup` in that many entries is an instruction: in one register or two."""
        lookups = {"float32": ((8, 16), (16, 16), (16, 32)), "float64": ((8, 16),)}[self.fmt.dtype]
        return self.native and (self.lanes, entries) in lookups

    def wide(self) -> VectorWriter:
        """The float64 writer of the same body."""
        return replace(self, fmt=FLOATS["float64"])

    # types and literals -------------------------------------------------------------------------

    def _vector(self, element: str) -> str:
        return element if self.lanes == 1 else f"<{self.lanes} x {element}>"

    @property
    def floats(self) -> str:
        """LLVM type of a float value."""
        return self._vector(self.fmt.llvm)

    @property
    def integers(self) -> str:
        """LLVM type of an integer value of the same width."""
        return self._vector(self.fmt.integer)

    @property
    def mask(self) -> str:
        """LLVM type of a comparison's result."""
        return self._vector("i1")

    def const(self, value: float) -> str:
        """A float literal in every lane."""
        literal = self.fmt.literal(value)
        return literal if self.lanes == 1 else f"splat ({self.fmt.llvm} {literal})"

    def int_const(self, value: int) -> str:
        """An integer literal in every lane, given signed or unsigned."""
        half = 1 << (self.fmt.bits - 1)
        signed = value - 2 * half if value >= half else value
        return str(signed) if self.lanes == 1 else f"splat ({self.fmt.integer} {signed})"

    # instructions -------------------------------------------------------------------------------

    def _append(self, text: str) -> str:
        name = f"%t{len(self.body.lines)}"
        self.body.lines.append(f"  {name} = {text}")
        return name

    def _call(self, intrinsic: str, types: str, *operands: str) -> str:
        """Call an overloaded intrinsic whose operands and result all have the type `types`."""
        element = {self.floats: self.fmt.suffix, self.integers: self.fmt.integer}[types]
        symbol = f"@llvm.{intrinsic}.{element if self.lanes == 1 else f'v{self.lanes}{element}'}"
        self.body.needs.add(f"declare {types} {symbol}({', '.join([types] * len(operands))})")
        return self._append(f"call {types} {symbol}({', '.join(f'{types} {x}' for x in operands)})")

    def add(self, a: str, b: str) -> str:
        return self._append(f"fadd {self.floats} {a}, {b}")

    def sub(self, a: str, b: str) -> str:
        return self._append(f"fsub {self.floats} {a}, {b}")

    def mul(self, a: str, b: str) -> str:
        return self._append(f"fmul {self.floats} {a}, {b}")

    def div(self, a: str, b: str) -> str:
        return self._append(f"fdiv {self.floats} {a}, {b}")

    def neg(self, a: str) -> str:
        return self._append(f"fneg {self.floats} {a}")

    def fma(self, a: str, b: str, c: str) -> str:
        """a*b + c, rounded once."""
        return self._call("fma", self.floats, a, b, c)

    def floor(self, a: str) -> str:
        return self._call("floor", self.floats, a)

    def fabs(self, a: str) -> str:
        return self._call("fabs", self.floats, a)

    def sqrt(self, a: str) -> str:
        return self._call("sqrt", self.floats, a)

    def copysign(self, magnitude: str, sign: str) -> str:
        return self._call("copysign", self.floats, magnitude, sign)

    def integer(self, operation: str, a: str, b: str) -> str:
        """An integer instruction: add, sub, and, or, xor, shl, lshr, ashr."""
        return self._append(f"{operation} {self.integers} {a}, {b}")

    def bits(self, a: str) -> str:
        """The integer whose bits are those of the float `a`."""
        return self._append(f"bitcast {self.floats} {a} to {self.integers}")

    def from_bits(self, a: str) -> str:
        """The float whose bits are those of the integer `a`."""
        return self._append(f"bitcast {self.integers} {a} to {self.floats}")

    def compare(self, predicate: str, a: str, b: str) -> str:
        """A float comparison: oeq, olt, ogt, oge, ole, ord, uno, une, ..."""
        return self._append(f"fcmp {predicate} {self.floats} {a}, {b}")

    def logical(self, operation: str, a: str, b: str) -> str:
        """and, or, xor of two masks."""
        return self._append(f"{operation} {self.mask} {a}, {b}")

    def select(self, mask: str, a: str, b: str) -> str:
        """`a` where the mask holds, `b` elsewhere."""
        return self._append(f"select {self.mask} {mask}, {self.floats} {a}, {self.floats} {b}")

    def extend_from(self, narrow: VectorWriter, a: str) -> str:
        """`a`, a value of the `narrow` writer's format, in this writer's wider format."""
        return self._append(f"fpext {narrow.floats} {a} to {self.floats}")

    def truncate(self, a: str) -> str:
        """The float64 `a` rounded to this writer's format."""
        return self._append(f"fptrunc {self.wide().floats} {a} to {self.floats}")

    def halves(self, a: str) -> tuple[str, str]:
        """The lower and the upper half of the lanes, for a writer of half as many."""
        parts = []
        for start in (0, self.lanes // 2):
            order = ", ".join(f"i32 {start + n}" for n in range(self.lanes // 2))
            kind = f"<{self.lanes // 2} x i32>"
            text = f"shufflevector {self.floats} {a}, {self.floats} poison, {kind} <{order}>"
            parts.append(self._append(text))
        return parts[0], parts[1]

    def joined(self, low: str, high: str) -> str:
        """Two halves as one."""
        half = replace(self, lanes=self.lanes // 2).floats
        order = ", ".join(f"i32 {n}" for n in range(self.lanes))
        return self._append(f"shufflevector {half} {low}, {half} {high}, <{self.lanes} x i32> <{order}>")

    def corrected_where(self, rare: str, value: str, correct: Callable[[str], str]) -> str:
        """`correct(value)` if the mask `rare` holds in any lane, else `value` without computing more."""
        number = len(self.body.lines)
        before, some = self.body.block, rare
        if self.lanes > 1:
            bits = self._append(f"bitcast {self.mask} {rare} to i{self.lanes}")
            some = self._append(f"icmp ne i{self.lanes} {bits}, 0")
        self.body.lines.append(f"  br i1 {some}, label %rare{number}, label %done{number}")
        self.start_block(f"rare{number}")
        corrected = correct(value)
        after = self.body.block
        self.body.lines.append(f"  br label %done{number}")
        self.start_block(f"done{number}")
        return self._append(f"phi {self.floats} [ {value}, %{before} ], [ {corrected}, %{after} ]")

    def start_block(self, name: str) -> None:
        """Begin a basic block, to which the lines before have branched."""
        self.body.lines.append(f"{name}:")
        self.body.block = name

    def unusual(self, x: str, y: str) -> str:
        """Where x is not positive and finite, or y not finite; x may be subnormal."""
        infinite = self.fmt.pattern(inf)
        # The patterns of such x, less one, are from 0 to below infinity's less one, taken as unsigned.
        below = self.integer("sub", self.bits(x), self.int_const(1))
        doubled = self.integer("shl", self.bits(y), self.int_const(1))
        return self.logical(
            "or", self._unsigned_from(below, infinite - 1), self._unsigned_from(doubled, 2 * infinite)
        )

    def _unsigned_from(self, a: str, least: int) -> str:
        return self._append(f"icmp uge {self.integers} {a}, {self.int_const(least)}")

    # short compositions -------------------------------------------------------------------------

    def clamp(self, a: str, low: float, high: float) -> str:
        """`a` limited to [low, high]; NaN stays NaN."""
        top = self.const(high)
        capped = self.select(self.compare("ogt", a, top), top, a)
        bottom = self.const(low)
        return self.select(self.compare("olt", a, bottom), bottom, capped)

    def polynomial(self, x: str, coefficients: Sequence[float]) -> str:
        """The polynomial with `coefficients` (lowest power first) at `x`.

        In pairs of neighbouring powers, then Horner's rule over the pairs in x**2: half the chain of
        dependent operations of Horner's rule alone, which is what limits a core that has other
        vectors to work on only as far as its window reaches (Estrin 1960, one level of it).
        """
        if len(coefficients) < 4:
            return self._horner(x, [self.const(c) for c in coefficients])
        pairs = [
            self.fma(x, self.const(high), self.const(low))
            for low, high in zip(coefficients[::2], coefficients[1::2], strict=False)
        ]
        odd_one = [self.const(coefficients[-1])] if len(coefficients) % 2 else []
        return self._horner(self.mul(x, x), [*pairs, *odd_one])

    def _horner(self, x: str, terms: Sequence[str]) -> str:
        total = terms[-1]
        for term in reversed(terms[:-1]):
            total = self.fma(total, x, term)
        return total

    def reciprocal(self, a: str) -> str:
        """1/a within about an ulp, for a whose inverse is a normal number."""
        inverse = self.rough_reciprocal(a)
        if not self.native:
            return inverse
        residual = self.fma(self.neg(a), inverse, self.const(1.0))
        return self.fma(inverse, residual, inverse)  # Newton's step doubles the digits

    def rough_reciprocal(self, a: str) -> str:
        """1/a to 2 digits more than half of the format's, or better: enough where one correction follows."""
        if not self.native:
            return self.div(self.const(1.0), a)
        inverse = self._avx512("rcp14", a)
        if self.fmt.bits == 32:
            return inverse
        residual = self.fma(self.neg(a), inverse, self.const(1.0))
        return self.fma(inverse, residual, inverse)

    def _avx512(self, name: str, *operands: str, control: int | None = None) -> str:
        """An AVX-512 instruction on all lanes; `control` is its immediate operand."""
        kind = {32: "ps", 64: "pd"}[self.fmt.bits]
        mask = f"i{max(8, self.lanes)}"
        width = self.lanes * self.fmt.bits
        masked = name in ("getexp", "getmant", "scalef")
        types = [self.floats] * len(operands)
        values = [*operands]
        if control is not None:
            types, values = [*types, "i32"], [*values, str(control)]
        types, values = [*types, self.floats, mask], [*values, "zeroinitializer", "-1"]
        if masked and width == 512:
            types, values = [*types, "i32"], [*values, "4"]  # round as the mode says
        symbol = f"@llvm.x86.avx512.{'mask.' if masked else ''}{name}.{kind}.{width}"
        self.body.needs.add(f"declare {self.floats} {symbol}({', '.join(types)})")
        arguments = ", ".join(f"{t} {v}" for t, v in zip(types, values, strict=True))
        return self._append(f"call {self.floats} {symbol}({arguments})")

    def lookup(self, index: str, table: Sequence[float]) -> str:
        """The entry of `table` whose number is in the low bits of `index`; for a writer that `has_tables`."""
        items = [f"{self.fmt.llvm} {self.fmt.literal(value)}" for value in table]
        width = self.lanes * self.fmt.bits
        kinds, operands = [self.floats, self.integers], [f"<{', '.join(items[: self.lanes])}>", index]
        symbol = f"@llvm.x86.avx512.permvar.{'sf' if self.fmt.bits == 32 else 'df'}.{width}"
        if len(items) > self.lanes:
            symbol = f"@llvm.x86.avx512.vpermi2var.{'ps' if self.fmt.bits == 32 else 'pd'}.{width}"
            kinds, operands = [*kinds, self.floats], [*operands, f"<{', '.join(items[self.lanes :])}>"]
        self.body.needs.add(f"declare {self.floats} {symbol}({', '.join(kinds)})")
        arguments = ", ".join(f"{kind} {operand}" for kind, operand in zip(kinds, operands, strict=True))
        return self._append(f"call {self.floats} {symbol}({arguments})")

    def round_with_bits(self, a: str, scale: float) -> tuple[str, str]:
        """(n, k): n = a*scale rounded to an integer, as a float and as an integer.

        Adding 1.5 * 2**mantissa leaves the integer in the low bits, so no conversion instruction
        is needed, and NaN gives some integer instead of an undefined value. For |a*scale| below
        2**(mantissa - 1).
        """
        magic = 1.5 * 2.0**self.fmt.mantissa
        shifted = self.fma(a, self.const(scale), self.const(magic))
        n = self.sub(shifted, self.const(magic))
        k = self.integer("sub", self.bits(shifted), self.int_const(self.fmt.pattern(magic)))
        return n, k

    def scale(self, a: str, n: str, k: str) -> str:
        """a * 2**k for an integer k, which `n` is as a float; the result may be subnormal.

        As two products: the biased exponents of the two powers of two are the halves of k + 2*bias.
        """
        if self.native:
            return self._avx512("scalef", a, n)
        total = self.integer("add", k, self.int_const(2 * self.fmt.bias))
        first = self.integer("lshr", total, self.int_const(1))
        second = self.integer("sub", total, first)
        shift = self.int_const(self.fmt.mantissa)
        for biased in (first, second):
            a = self.mul(a, self.from_bits(self.integer("shl", biased, shift)))
        return a

    def split_exponent(self, x: str) -> tuple[str, str]:
        """(m, e) with x = m * 2**e and sqrt(1/2) <= m < sqrt(2), for a positive normal x.

        e comes as a float. Reads the bits relative to sqrt(1/2), as FreeBSD's msun does.
        """
        if self.native:
            return self._native_split(x)
        mantissa_bits = self.fmt.mantissa
        root = self.fmt.pattern(0.5**0.5)
        offset = self.fmt.bias + 1  # keeps the exponent's integer positive
        relative = self.integer("sub", self.bits(x), self.int_const(root))
        raised = self.integer("add", relative, self.int_const(offset << mantissa_bits))
        biased = self.integer("lshr", raised, self.int_const(mantissa_bits))
        ruler = 2.0**mantissa_bits  # its low bits count ones: no integer-to-float conversion
        as_float = self.from_bits(self.integer("add", biased, self.int_const(self.fmt.pattern(ruler))))
        exponent = self.sub(as_float, self.const(ruler + offset))
        fraction = self.integer("and", relative, self.int_const((1 << mantissa_bits) - 1))
        return self.from_bits(self.integer("add", fraction, self.int_const(root))), exponent

    def _native_split(self, x: str) -> tuple[str, str]:
        """The same by `vgetmant` and `vgetexp`, which know subnormal numbers and infinities too.

        Zero gives (1, -inf), +inf gives (1, inf), negative numbers and NaN give NaN.
        """
        negative_is_nan, positive = 8, 4
        m = self._avx512("getmant", x, control=negative_is_nan | positive)
        e = self._avx512("getexp", x)
        upper = self.compare("oge", m, self.const(2.0**0.5))
        halved = self.select(upper, self.mul(m, self.const(0.5)), m)
        return halved, self.select(upper, self.add(e, self.const(1.0)), e)

    def split_around_one(self, x: str) -> tuple[str, str]:
        """(m, e) with x = m * 2**e and 3/4 <= m < 3/2, for a positive number of a `native` writer."""
        negative_is_nan, positive, around_one = 8, 4, 3
        m = self._avx512("getmant", x, control=negative_is_nan | positive | around_one)
        e = self._avx512("getexp", x)
        lower = self.compare("olt", m, self.const(1.0))
        return m, self.select(lower, self.add(e, self.const(1.0)), e)

    def reciprocal_root(self, x: str) -> str:
        """1/sqrt(x) within 1.4 ulp."""
        if not self.native:
            return self.div(self.const(1.0), self.sqrt(x))
        y = self._avx512("rsqrt14", x)
        better = y
        for _ in range(1 if self.fmt.bits == 32 else 2):
            product = self.mul(x, better)
            residual = self.fma(self.neg(product), better, self.const(1.0))
            better = self.fma(self.mul(better, self.const(0.5)), residual, better)
        # Zero and infinity are right at once, and have no residual.
        return self.select(self.compare("uno", better, better), y, better)
