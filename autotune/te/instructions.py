"""Instructions that a tensor intrinsic is replaced by: values in vector registers, loads and stores of operands.

The names are those of TVM's ``decl_tensor_intrin`` functions: ``vload``, ``vstore``, ``astype``, ``reinterpret`` and
``call_llvm_pure_intrin`` on types such as "int32x16". A function that builds them runs once, when the intrinsic is
declared; loops in it are Python's, so everything is unrolled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from autotune.te.dtypes import DTYPES

LANE_BYTES = {"bool": 1, "int8": 1, "uint8": 1, "int16": 2}
LANE_BYTES |= {"float16": 2, "bfloat16": 2, "int32": 4, "float32": 4}
"""Bytes of a lane of a type that has fewer than eight."""


class LaneType(NamedTuple):
    """Type of a register: a dtype and a number of lanes."""

    dtype: str
    lanes: int

    @property
    def nbytes(self) -> int:
        """Bytes of all lanes."""
        return LANE_BYTES.get(self.dtype, 8) * self.lanes

    def __str__(self) -> str:
        return self.dtype if self.lanes == 1 else f"{self.dtype}x{self.lanes}"


def lane_type(text: str) -> LaneType:
    """Return the type of a text; raises ValueError for one that is none.

    >>> lane_type("int32x16")
    LaneType(dtype='int32', lanes=16)
    """
    found = re.fullmatch(r"([a-z]+\d*?)(?:x(\d+))?", text)
    if found is None or found[1] not in DTYPES or found[2] == "0":
        raise ValueError(f"not a type of lanes: {text!r}; write one like 'float32', 'uint8x4' or 'int32x16'")
    return LaneType(found[1], int(found[2] or 1))


@dataclass(frozen=True)
class Lanes:
    """A value in a register."""

    type: LaneType

    def astype(self, text: str) -> Lanes:
        """Return Converted lane by lane, or one lane copied into all; raises ValueError for anything else."""
        to = lane_type(text)
        if to.lanes == self.type.lanes:
            return self if to == self.type else Converted(to, self)
        if self.type.lanes == 1 and to.dtype == self.type.dtype:
            return Broadcast(to, self)
        raise ValueError(
            f"astype: {self.type} to {to} changes the number of lanes; use te.reinterpret for bits"
        )

    def __add__(self, other: Lanes) -> Lanes:
        return LaneOperation(self.type, "+", *_alike("+", self, other))

    def __sub__(self, other: Lanes) -> Lanes:
        return LaneOperation(self.type, "-", *_alike("-", self, other))

    def __mul__(self, other: Lanes) -> Lanes:
        return LaneOperation(self.type, "*", *_alike("*", self, other))


@dataclass(frozen=True)
class Splat(Lanes):
    """A number in all lanes."""

    number: int | float


@dataclass(frozen=True)
class Loaded(Lanes):
    """Neighbouring elements of operand number ``operand`` (0 is the output) from ``index`` on."""

    operand: int
    index: tuple[int, ...]


@dataclass(frozen=True)
class Converted(Lanes):
    """Each lane in another type."""

    value: Lanes


@dataclass(frozen=True)
class Broadcast(Lanes):
    """One lane copied into all."""

    value: Lanes


@dataclass(frozen=True)
class Reinterpreted(Lanes):
    """The same bits as another type."""

    value: Lanes


@dataclass(frozen=True)
class InterleavedLanes(Lanes):
    """The first lanes of all values, then their second lanes ...; the values are of one type."""

    values: tuple[Lanes, ...]


@dataclass(frozen=True)
class LaneOperation(Lanes):
    """``a op b`` lane by lane, op one of ``+ - *``, of integers also "bitwise_and" or "right_shift"."""

    op: str
    a: Lanes
    b: Lanes


@dataclass(frozen=True)
class LlvmCall(Lanes):
    """A call of an LLVM intrinsic without side effects."""

    name: str
    arguments: tuple[Lanes, ...]


@dataclass(frozen=True)
class LaneStore:
    """Store ``value`` to neighbouring elements of an operand."""

    operand: int
    index: tuple[int, ...]
    value: Lanes


@dataclass(frozen=True)
class OperandPointer:
    """Address of the first element of an operand."""

    operand: int


@dataclass(frozen=True)
class Reference:
    """Address of a number: one known now, or the step of a dimension, ``stride_of = (operand, dimension)``."""

    dtype: str
    number: int | float = 0
    stride_of: tuple[int, int] | None = None


@dataclass(frozen=True)
class Layout:
    """Address of an int64 array: the extents, then the steps of each dimension of each operand."""

    extents: tuple[int, ...]


@dataclass(frozen=True)
class Number:
    """A number by value: one known now, or the step of a dimension, ``stride_of = (operand, dimension)``."""

    dtype: str
    number: int | float = 0
    stride_of: tuple[int, int] | None = None


Argument = OperandPointer | Reference | Number | Layout


@dataclass(frozen=True)
class KernelCall:
    """Call a function from outside of the object code, by the symbol under which it is found at load time."""

    symbol: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class MatrixMultiply:
    """Add the product of operands 1 and 2 to operand 0 on a tensor core: the 32 threads of a warp together.

    ``m``, ``n`` and ``k`` are rows, columns and depth; the factors are of type ``dtype``, the sums float32. Operand
    2 is indexed by column and depth where it is ``transposed``, else by depth and column.
    """

    m: int
    n: int
    k: int
    dtype: str
    transposed: bool = False


@dataclass(frozen=True)
class TileMultiply:
    """Give operand 0 the product of operands 1 and 2 by tile registers, or add it where it ``accumulates``.

    ``rows``, ``columns`` and ``depth`` are the number of tiles and the size of each; without any in the depth operand 0
    becomes zeros. ``window`` are loops around the depth. An operand has a step for each loop that moves it: rows and
    column; rows, window, group and place in the group; window, group, column and place. Rows are one loop or two.
    """

    instruction: str
    rows: tuple[int, int]
    columns: tuple[int, int]
    window: tuple[int, ...]
    depth: tuple[int, int]
    accumulates: bool


Step = LaneStore | KernelCall | MatrixMultiply | TileMultiply
"""The steps that may replace an intrinsic."""


@dataclass(frozen=True)
class Operand:
    """A buffer as the instructions of an intrinsic see it.

    ``strides`` are in elements; None stands for whatever the program has.
    """

    number: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int | None, ...]

    @property
    def data(self) -> OperandPointer:
        """Address of the first element, for ``te.call_extern``."""
        return OperandPointer(self.number)

    def access_ptr(self, mode: str = "rw") -> OperandPointer:
        """Return the address of the first element, for ``te.call_extern``."""
        return self.data

    def stride(self, dim: int) -> Number:
        """Return the step of a dimension in elements where the intrinsic is called, for ``te.call_extern``."""
        return Number("int64", stride_of=(self.number, range(len(self.shape))[dim]))

    def vload(self, index: Sequence[int] | int, dtype: str | None = None) -> Lanes:
        """Return the neighbouring elements from ``index`` on; ``dtype`` like "uint8x4" says how many (default: one)."""
        kind = LaneType(self.dtype, 1) if dtype is None else lane_type(dtype)
        return Loaded(kind, self.number, self._checked(index, kind))

    def vstore(self, index: Sequence[int] | int, value: Lanes) -> LaneStore:
        """Store neighbouring elements from ``index`` on."""
        if self.number:
            raise ValueError(f"{self.name} is an input: an intrinsic stores its output only")
        return LaneStore(self.number, self._checked(index, value.type), value)

    def _checked(self, index: Sequence[int] | int, kind: LaneType) -> tuple[int, ...]:
        at = (index,) if isinstance(index, int) else tuple(index)
        if kind.dtype != self.dtype:
            raise ValueError(f"{self.name} holds {self.dtype}, not {kind.dtype}")
        if len(at) != len(self.shape) or any(not 0 <= i < d for i, d in zip(at, self.shape, strict=True)):
            raise ValueError(f"{self.name}{list(at)} is outside of its shape {self.shape}")
        if kind.lanes > self._neighbours(at):
            raise ValueError(
                f"{kind} from {self.name}{list(at)} on leaves the dense part of shape {self.shape}"
            )
        return at

    def _neighbours(self, at: tuple[int, ...]) -> int:
        """Return elements from ``at`` on that are known to be next to one another."""
        count, step = 1, 1
        for i, size, stride in zip(reversed(at), reversed(self.shape), reversed(self.strides), strict=True):
            if stride != step:
                break
            count += (size - 1 - i) * step
            step *= size
        return count


def reinterpret(dtype: str, value: Lanes) -> Lanes:
    """Return the bits of a register as another type (TVM: ``call_intrin(dtype, "tir.reinterpret", value)``)."""
    to = lane_type(dtype)
    if to.nbytes != value.type.nbytes:
        raise ValueError(f"reinterpret: {value.type} has {value.type.nbytes} bytes, {to} has {to.nbytes}")
    return Reinterpreted(to, value)


def call_llvm_pure_intrin(dtype: str, name: str, *args: Lanes) -> Lanes:
    """Return the result of an LLVM intrinsic without side effects, by its full name.

    >>> zero = splat(0, "int32x4")
    >>> bytes_ = reinterpret("int8x16", zero)
    >>> call_llvm_pure_intrin("int32x4", "llvm.aarch64.neon.sdot.v4i32.v16i8", zero, bytes_, bytes_).type
    LaneType(dtype='int32', lanes=4)
    """
    if not name.startswith("llvm."):
        raise ValueError(f"call_llvm_pure_intrin: {name!r} is not the name of an LLVM intrinsic (llvm....)")
    return LlvmCall(lane_type(dtype), name, tuple(args))


def interleave(*values: Lanes) -> Lanes:
    """Return registers of one type with their lanes alternating; their number is a power of two.

    >>> interleave(splat(1, "uint8x4"), splat(0, "uint8x4")).type
    LaneType(dtype='uint8', lanes=8)
    """
    first, count = values[0].type, len(values)
    if any(value.type != first for value in values) or count & (count - 1):
        raise ValueError("interleave: values must be of one type, and their number a power of two")
    return InterleavedLanes(LaneType(first.dtype, first.lanes * count), values)


def splat(number: int | float, dtype: str) -> Lanes:
    """Return a number in all lanes of a type (TVM: ``tir.const(number, dtype)``)."""
    return Splat(lane_type(dtype), number)


def _alike(op: str, a: Lanes, b: Lanes) -> tuple[Lanes, Lanes]:
    if a.type != b.type:
        raise ValueError(f"{a.type} {op} {b.type}: both sides must be of one type; use astype")
    return a, b


__all__ = [
    "Argument",
    "Broadcast",
    "Converted",
    "InterleavedLanes",
    "KernelCall",
    "LaneOperation",
    "LaneStore",
    "LaneType",
    "Lanes",
    "Layout",
    "LlvmCall",
    "Loaded",
    "MatrixMultiply",
    "Number",
    "Operand",
    "OperandPointer",
    "Reference",
    "Reinterpreted",
    "Splat",
    "Step",
    "TileMultiply",
    "call_llvm_pure_intrin",
    "interleave",
    "lane_type",
    "reinterpret",
    "splat",
]
