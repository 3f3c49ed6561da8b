"""Instructions of LLVM IR over one vector shape, one line each."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

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
        """Return the bit pattern of `value` rounded to this format, as an unsigned integer."""
        code = "<f" if self.bits == 32 else "<d"
        return int.from_bytes(struct.pack(code, value), "little")

    def rounded(self, value: float) -> float:
        """Return `value` rounded to this format."""
        code = "<f" if self.bits == 32 else "<d"
        return float(struct.unpack(code, struct.pack(code, value))[0])

    def literal(self, value: float) -> str:
        """Return the LLVM literal of `value`: the hexadecimal float64 pattern of the rounded value."""
        return f"0x{int.from_bytes(struct.pack('<d', self.rounded(value)), 'little'):016X}"


FLOATS: Final = {
    "float32": FloatFormat("float32", "float", "i32", "f32", 32, 23, 127),
    "float64": FloatFormat("float64", "double", "i64", "f64", 64, 52, 1023),
}


@dataclass
class _TextBody:
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
    body: _TextBody = field(default_factory=_TextBody)
    avx512: bool = False

    @property
    def native(self) -> bool:
        """Return whether values are whole registers of a machine with AVX-512."""
        return self.avx512 and self.lanes * self.fmt.bits in (128, 256, 512)

    def has_tables(self, entries: int) -> bool:
        """Return whether :meth:`lookup` in that many entries is an instruction: in one register or two."""
        lookups = {"float32": ((8, 16), (16, 16), (16, 32)), "float64": ((8, 16),)}[self.fmt.dtype]
        return self.native and (self.lanes, entries) in lookups

    def wide(self) -> Self:
        """Return the float64 writer of the same body."""
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
        """Return a float literal in every lane."""
        literal = self.fmt.literal(value)
        return literal if self.lanes == 1 else f"splat ({self.fmt.llvm} {literal})"

    def int_const(self, value: int) -> str:
        """Return an integer literal in every lane, given signed or unsigned."""
        half = 1 << (self.fmt.bits - 1)
        signed = value - 2 * half if value >= half else value
        return str(signed) if self.lanes == 1 else f"splat ({self.fmt.integer} {signed})"

    # instructions -------------------------------------------------------------------------------

    def append(self, text: str) -> str:
        """Append an instruction with a result; returns its name."""
        name = f"%t{len(self.body.lines)}"
        self.body.lines.append(f"  {name} = {text}")
        return name

    def _call(self, intrinsic: str, types: str, *operands: str) -> str:
        """Call an overloaded intrinsic whose operands and result all have the type `types`."""
        element = {self.floats: self.fmt.suffix, self.integers: self.fmt.integer}[types]
        symbol = f"@llvm.{intrinsic}.{element if self.lanes == 1 else f'v{self.lanes}{element}'}"
        self.body.needs.add(f"declare {types} {symbol}({', '.join([types] * len(operands))})")
        return self.append(f"call {types} {symbol}({', '.join(f'{types} {x}' for x in operands)})")

    def add(self, a: str, b: str) -> str:
        return self.append(f"fadd {self.floats} {a}, {b}")

    def sub(self, a: str, b: str) -> str:
        return self.append(f"fsub {self.floats} {a}, {b}")

    def mul(self, a: str, b: str) -> str:
        return self.append(f"fmul {self.floats} {a}, {b}")

    def div(self, a: str, b: str) -> str:
        return self.append(f"fdiv {self.floats} {a}, {b}")

    def neg(self, a: str) -> str:
        return self.append(f"fneg {self.floats} {a}")

    def fma(self, a: str, b: str, c: str) -> str:
        """Return a*b + c, rounded once."""
        return self._call("fma", self.floats, a, b, c)

    def floor(self, a: str) -> str:
        return self._call("floor", self.floats, a)

    def rint(self, a: str) -> str:
        """Return the nearest integer, halves to even."""
        return self._call("roundeven", self.floats, a)

    def trunc(self, a: str) -> str:
        return self._call("trunc", self.floats, a)

    def fabs(self, a: str) -> str:
        return self._call("fabs", self.floats, a)

    def sqrt(self, a: str) -> str:
        return self._call("sqrt", self.floats, a)

    def copysign(self, magnitude: str, sign: str) -> str:
        return self._call("copysign", self.floats, magnitude, sign)

    def integer(self, operation: str, a: str, b: str) -> str:
        """Return an integer instruction: add, sub, mul, and, or, xor, shl, lshr, ashr."""
        return self.append(f"{operation} {self.integers} {a}, {b}")

    def saturating_sub(self, a: str, b: str) -> str:
        """Return the difference of unsigned integers, 0 where it would be negative."""
        return self._call("usub.sat", self.integers, a, b)

    def has_bit(self, a: str, number: int) -> str:
        """Return where a bit of an integer is set."""
        masked = self.integer("and", a, self.int_const(1 << number))
        return self.append(f"icmp ne {self.integers} {masked}, {self.int_const(0)}")

    def bits(self, a: str) -> str:
        """Return the integer whose bits are those of the float `a`."""
        return self.append(f"bitcast {self.floats} {a} to {self.integers}")

    def from_bits(self, a: str) -> str:
        """Return the float whose bits are those of the integer `a`."""
        return self.append(f"bitcast {self.integers} {a} to {self.floats}")

    def compare(self, predicate: str, a: str, b: str) -> str:
        """Return a float comparison: oeq, olt, ogt, oge, ole, ord, uno, une, ..."""
        return self.append(f"fcmp {predicate} {self.floats} {a}, {b}")

    def logical(self, operation: str, a: str, b: str) -> str:
        """Return and, or, xor of two masks."""
        return self.append(f"{operation} {self.mask} {a}, {b}")

    def select(self, mask: str, a: str, b: str) -> str:
        """Return `a` where the mask holds, `b` elsewhere."""
        return self.append(f"select {self.mask} {mask}, {self.floats} {a}, {self.floats} {b}")

    def extend_from(self, narrow: VectorWriter, a: str) -> str:
        """Return `a`, a value of the `narrow` writer's format, in this writer's wider format."""
        return self.append(f"fpext {narrow.floats} {a} to {self.floats}")

    def truncate(self, a: str) -> str:
        """Return the float64 `a` rounded to this writer's format."""
        return self.append(f"fptrunc {self.wide().floats} {a} to {self.floats}")

    def halves(self, a: str) -> tuple[str, str]:
        """Return the lower and the upper half of the lanes, for a writer of half as many."""
        parts = []
        for start in (0, self.lanes // 2):
            order = ", ".join(f"i32 {start + n}" for n in range(self.lanes // 2))
            kind = f"<{self.lanes // 2} x i32>"
            text = f"shufflevector {self.floats} {a}, {self.floats} poison, {kind} <{order}>"
            parts.append(self.append(text))
        return parts[0], parts[1]

    def joined(self, low: str, high: str) -> str:
        """Return two halves as one."""
        half = replace(self, lanes=self.lanes // 2).floats
        order = ", ".join(f"i32 {n}" for n in range(self.lanes))
        return self.append(f"shufflevector {half} {low}, {half} {high}, <{self.lanes} x i32> <{order}>")

    def corrected_where(self, rare: str, value: str, correct: Callable[[str], str]) -> str:
        """Return `correct(value)` if the mask `rare` holds in any lane, else `value` without computing more."""
        number = len(self.body.lines)
        before, some = self.body.block, self._any(rare)
        self.body.lines.append(f"  br i1 {some}, label %rare{number}, label %done{number}")
        self.start_block(f"rare{number}")
        corrected = correct(value)
        after = self.body.block
        self.body.lines.append(f"  br label %done{number}")
        self.start_block(f"done{number}")
        return self.append(f"phi {self.floats} [ {value}, %{before} ], [ {corrected}, %{after} ]")

    def repeated_while(self, holds: Callable[[str], str], value: str, step: Callable[[str], str]) -> str:
        """Return `step(step(... value))`, for as long as the mask that `holds` gives is set in any lane."""
        number = len(self.body.lines)
        before, name = self.body.block, f"%t{number + 2}"
        self.body.lines.append(f"  br label %while{number}")
        self.start_block(f"while{number}")
        self.body.lines.append("")  # the phi, when it is known where the step ends
        some = self._any(holds(name))
        self.body.lines.append(f"  br i1 {some}, label %step{number}, label %done{number}")
        self.start_block(f"step{number}")
        following = step(name)
        phi = f"phi {self.floats} [ {value}, %{before} ], [ {following}, %{self.body.block} ]"
        self.body.lines[number + 2] = f"  {name} = {phi}"
        self.body.lines.append(f"  br label %while{number}")
        self.start_block(f"done{number}")
        return name

    def _any(self, mask: str) -> str:
        """Return whether the mask holds in any lane."""
        if self.lanes == 1:
            return mask
        bits = self.append(f"bitcast {self.mask} {mask} to i{self.lanes}")
        return self.append(f"icmp ne i{self.lanes} {bits}, 0")

    def start_block(self, name: str) -> None:
        """Begin a basic block, to which the lines before have branched."""
        self.body.lines.append(f"{name}:")
        self.body.block = name

    def native_instruction(self, name: str, *operands: str, control: int | None = None) -> str:
        """Return an AVX-512 instruction on all lanes; `control` is its immediate operand."""
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
        return self.append(f"call {self.floats} {symbol}({arguments})")

    def lookup(self, index: str, table: Sequence[float]) -> str:
        """Return the entry of `table` whose number is in the low bits of `index`; for a writer that `has_tables`."""
        items = [f"{self.fmt.llvm} {self.fmt.literal(value)}" for value in table]
        width = self.lanes * self.fmt.bits
        kinds, operands = [self.floats, self.integers], [f"<{', '.join(items[: self.lanes])}>", index]
        symbol = f"@llvm.x86.avx512.permvar.{'sf' if self.fmt.bits == 32 else 'df'}.{width}"
        if len(items) > self.lanes:
            symbol = f"@llvm.x86.avx512.vpermi2var.{'ps' if self.fmt.bits == 32 else 'pd'}.{width}"
            kinds, operands = [*kinds, self.floats], [*operands, f"<{', '.join(items[self.lanes :])}>"]
        self.body.needs.add(f"declare {self.floats} {symbol}({', '.join(kinds)})")
        arguments = ", ".join(f"{kind} {operand}" for kind, operand in zip(kinds, operands, strict=True))
        return self.append(f"call {self.floats} {symbol}({arguments})")

    def gather(self, index: str, name: str, table: Sequence[float]) -> str:
        """Return the entries of a table in memory at integer indices."""
        kind = self.fmt.llvm
        items = ", ".join(f"{kind} {self.fmt.literal(value)}" for value in table)
        symbol = f"@at_{name}_{self.fmt.suffix}"
        self.body.needs.add(f"{symbol} = private unnamed_addr constant [{len(table)} x {kind}] [{items}]")
        address = self.append(f"getelementptr {kind}, ptr {symbol}, {self.integers} {index}")
        if self.lanes == 1:
            return self.append(f"load {kind}, ptr {address}")
        pointers, mask = f"<{self.lanes} x ptr>", f"<{self.lanes} x i1>"
        call = f"@llvm.masked.gather.v{self.lanes}{self.fmt.suffix}.v{self.lanes}p0"
        self.body.needs.add(f"declare {self.floats} {call}({pointers}, {mask}, {self.floats})")
        operands = (
            f"{pointers} align {self.fmt.bits // 8} {address}, {mask} splat (i1 true), {self.floats} poison"
        )
        return self.append(f"call {self.floats} {call}({operands})")
