"""Instructions of tensor intrinsics to LLVM IR text."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.codegen.llvm.accesses import Accesses
from autotune.codegen.llvm.arithmetic import ArithmeticEmitter
from autotune.codegen.llvm.bits import BIT_FUNCTIONS, bit_function
from autotune.codegen.llvm.block import ThreadBlock
from autotune.codegen.llvm.tiles import TileRegisters
from autotune.codegen.llvm.types import Value, constant, scalar_type, type_of, vector
from autotune.errors import BuildError
from autotune.lower.ir import Buffer, External, Intrinsic, Load
from autotune.lower.linear import Lin
from autotune.te import instructions as te
from autotune.te.dtypes import is_float
from autotune.te.expr import Const


class Instructions:
    """Emits what replaces the loops of a tensor intrinsic."""

    def __init__(
        self, arithmetic: ArithmeticEmitter, accesses: Accesses, block: ThreadBlock, tiles: TileRegisters
    ) -> None:
        self.arithmetic = arithmetic
        self.tiles = tiles
        self.code = arithmetic.code
        self.accesses = accesses
        self.block = block
        self.addresses = accesses.addresses

    def replacement(self, node: Intrinsic) -> None:
        """Emit the instructions of a call; raises BuildError when the target lacks a feature."""
        target = self.code.module.target
        missing = [f for f in node.requires if f not in target.features]
        if missing:
            raise BuildError(
                f"intrinsic {node.name} needs {', '.join(missing)}, which target {target.cpu} does not "
                f"have; tensorize with another intrinsic, or build for a target that has it"
            )
        for step in node.instructions:
            with self.code.memo:
                if isinstance(step, te.KernelCall):
                    self._kernel_call(node, step)
                elif isinstance(step, te.MatrixMultiply):
                    self.block.multiply(node, step, self.accesses)
                elif isinstance(step, te.TileMultiply):
                    firsts = [self._first(node, number) for number in range(len(node.strides))]
                    self.tiles.multiply(node, step, firsts)
                else:
                    value = self._lanes(node, step.value, {})
                    self.accesses.store_lanes(*self._element(node, step.operand, step.index), value)

    def _kernel_call(self, node: Intrinsic, call: te.KernelCall) -> None:
        """Call a function that is found by its symbol when the object code is loaded."""
        if self.code.module.target.arch not in ("x86_64", "aarch64"):
            raise BuildError(
                f"intrinsic {node.name} calls a function of the processor: build for target='host'"
            )
        arguments = [self._argument(node, argument) for argument in call.arguments]
        self._call(call.symbol, arguments)

    def _call(self, symbol: str, arguments: list[tuple[str, str]]) -> None:
        """Call a function from outside, which may write anything, and use tile registers."""
        self.code.lines.append("  " + self.code.call("void", f"@{symbol}", *arguments))
        self.code.lines += self.tiles.again()
        self.code.held.clear()

    def external(self, node: External) -> None:
        """Call a function with pointers to first elements and numbers; raises BuildError on a device."""
        if self.code.module.target.arch not in ("x86_64", "aarch64"):
            raise BuildError("te.extern calls a function of the processor: build for target='host'")
        self._call(node.symbol, [self._external_argument(argument) for argument in node.arguments])

    def _external_argument(self, argument: Load | Const) -> tuple[str, str]:
        if isinstance(argument, Const):
            return scalar_type(argument.dtype), constant(argument.value, argument.dtype)
        form = self.addresses.form(argument, argument.buffer, argument.indices)
        return "ptr", self.accesses.memory.pointer(argument.buffer, self.addresses.address(form))

    def _argument(self, node: Intrinsic, argument: te.Argument) -> tuple[str, str]:
        """Return the type and the text of an argument."""
        if isinstance(argument, te.OperandPointer):
            return "ptr", self._first(node, argument.operand)
        if isinstance(argument, te.Layout):
            steps = [step for strides in node.strides for step in strides]
            return "ptr", self.code.module.numbers("int64", (*argument.extents, *steps))
        number = argument.number
        if argument.stride_of is not None:
            operand, dim = argument.stride_of
            number = node.strides[operand][dim]
        if isinstance(argument, te.Number):
            return scalar_type(argument.dtype), constant(number, argument.dtype)
        return "ptr", self.code.module.numbers(argument.dtype, (number,))

    def _first(self, node: Intrinsic, operand: int) -> str:
        """Return the pointer to the first element of an operand."""
        buffer, form = self._element(node, operand, (0,) * len(node.strides[operand]))
        return self.accesses.memory.pointer(buffer, self.addresses.address(form))

    def _element(self, node: Intrinsic, operand: int, index: tuple[int, ...]) -> tuple[Buffer, Lin]:
        load = node.operands[operand]
        offset = sum(i * s for i, s in zip(index, node.strides[operand], strict=True))
        return load.buffer, self.addresses.form(load, load.buffer, load.indices) + offset

    def _lanes(self, node: Intrinsic, value: te.Lanes, memo: dict[int, Value]) -> Value:
        done = memo.get(id(value))
        if done is None:
            done = memo[id(value)] = self._made(node, value, memo)
        return done

    def _made(self, node: Intrinsic, value: te.Lanes, memo: dict[int, Value]) -> Value:
        dtype, lanes = value.type
        if isinstance(value, te.Splat):
            return self.code.splat(Value(constant(value.number, dtype), dtype), lanes)
        if isinstance(value, te.Loaded):
            return self.accesses.load_lanes(*self._element(node, value.operand, value.index), lanes)
        if isinstance(value, te.Converted):
            return self.arithmetic.cast(self._lanes(node, value.value, memo), dtype)
        if isinstance(value, te.Broadcast):
            return self.code.splat(self._lanes(node, value.value, memo), lanes)
        if isinstance(value, te.Reinterpreted):
            inner = self._lanes(node, value.value, memo)
            kind = vector(scalar_type(dtype), lanes)
            if type_of(inner) == kind:
                return Value(inner.text, dtype, lanes)
            key = ("bits", inner.text, type_of(inner), kind)
            text = f"bitcast {type_of(inner)} {inner.text} to {kind}"
            return Value(self.code.cached(key, text), dtype, lanes)
        if isinstance(value, te.InterleavedLanes):
            return self._interleaved([self._lanes(node, part, memo) for part in value.values])
        if isinstance(value, te.LaneOperation):
            a, b = self._lanes(node, value.a, memo), self._lanes(node, value.b, memo)
            if value.op in BIT_FUNCTIONS:
                return bit_function(self.arithmetic, value.op, a, b)
            operation = self.arithmetic.float_op if is_float(dtype) else self.arithmetic.int_op
            return operation(value.op, a, b)
        if isinstance(value, te.LlvmCall):
            return self._llvm_call(value, [self._lanes(node, a, memo) for a in value.arguments])
        raise BuildError(f"no code for the instruction {type(value).__name__}")

    def _interleaved(self, values: list[Value]) -> Value:
        """Return the lanes alternating: joined two by two, so that one permutation is left (``vpermb``)."""
        lanes, count = values[0].lanes, len(values)
        while len(values) > 1:
            values = [
                self._shuffled(a, b, range(2 * a.lanes))
                for a, b in zip(values[::2], values[1::2], strict=True)
            ]
        return self._shuffled(
            values[0], values[0], [n * lanes + i for i in range(lanes) for n in range(count)]
        )

    def _shuffled(self, a: Value, b: Value, order: Sequence[int]) -> Value:
        """Return the lanes of two values, one after another, in another order."""
        mask = ", ".join(f"i32 {place}" for place in order)
        operands = f"{type_of(a)} {a.text}, {type_of(b)} {b.text}"
        key = ("shuffle", operands, mask)
        text = self.code.cached(key, f"shufflevector {operands}, <{len(order)} x i32> <{mask}>")
        return Value(text, a.dtype, len(order))

    def _llvm_call(self, value: te.LlvmCall, arguments: list[Value]) -> Value:
        dtype, lanes = value.type
        kind = vector(scalar_type(dtype), lanes)
        text = self.code.call(kind, f"@{value.name}", *map(self._passed, arguments))
        return Value(self.code.op(text), dtype, lanes)

    def _passed(self, value: Value) -> tuple[str, str]:
        """Return the type and text of an intrinsic's argument; bfloat16, held as bits elsewhere, has
        LLVM's own type here."""
        if value.dtype != "bfloat16":
            return type_of(value), value.text
        kind = vector("bfloat", value.lanes)
        key = ("bits", value.text, type_of(value), kind)
        return kind, self.code.cached(key, f"bitcast {type_of(value)} {value.text} to {kind}")


__all__ = ["Instructions"]
