"""Instructions of tensor intrinsics to LLVM IR text."""

from __future__ import annotations

from autotune.codegen.llvm.expressions import ExpressionEmitter
from autotune.codegen.llvm.types import Value, constant, scalar_type, type_of, vector
from autotune.errors import BuildError
from autotune.lower.ir import Intrinsic, Load
from autotune.lower.linear import Lin
from autotune.target import ITEM_BYTES
from autotune.te.dtypes import is_float
from autotune.te.instructions import (
    Argument,
    Broadcast,
    Converted,
    KernelCall,
    LaneOperation,
    Lanes,
    Layout,
    LlvmCall,
    Loaded,
    OperandPointer,
    Reinterpreted,
    Splat,
)


class InstructionEmitter(ExpressionEmitter):
    """Emits what replaces the loops of a tensor intrinsic; registers of accumulators are its subclass's."""

    def replacement(self, node: Intrinsic) -> None:
        """Emit the instructions of a call; raises BuildError when the target lacks a feature."""
        missing = [f for f in node.requires if f not in self.module.target.features]
        if missing:
            raise BuildError(
                f"intrinsic {node.name} needs {', '.join(missing)}, which target {self.module.target.cpu} does not "
                f"have; tensorize with another intrinsic, or build for a target that has it"
            )
        for step in node.instructions:
            with self.statement():
                if isinstance(step, KernelCall):
                    self._kernel_call(node, step)
                else:
                    value = self._lanes(node, step.value, {})
                    self.store_lanes(*self._element(node, step.operand, step.index), value)

    def _kernel_call(self, node: Intrinsic, call: KernelCall) -> None:
        """Call a function that is found by its symbol when the object code is loaded."""
        arguments = [f"ptr {self._argument(node, argument)}" for argument in call.arguments]
        self.module.declare(f"declare void @{call.symbol}({', '.join('ptr' for _ in arguments)})")
        self.lines.append(f"  call void @{call.symbol}({', '.join(arguments)})")
        self.held.clear()

    def _argument(self, node: Intrinsic, argument: Argument) -> str:
        if isinstance(argument, OperandPointer):
            load, form = self._element(node, argument.operand, (0,) * len(node.strides[argument.operand]))
            return self.pointer(load.buffer, self.address(form))
        if isinstance(argument, Layout):
            steps = [step for strides in node.strides for step in strides]
            return self.module.numbers("int64", (*argument.extents, *steps))
        number = argument.number
        if argument.stride_of is not None:
            operand, dim = argument.stride_of
            number = node.strides[operand][dim]
        return self.module.numbers(argument.dtype, (number,))

    def load_lanes(self, load: Load, form: Lin, lanes: int) -> Value:
        """``lanes`` neighbouring elements of a buffer from offset ``form`` on."""
        return self.plain_load(load.buffer, self.address(form), lanes)

    def store_lanes(self, load: Load, form: Lin, value: Value) -> None:
        """Store neighbouring elements of a buffer from offset ``form`` on."""
        pointer = self.pointer(load.buffer, self.address(form))
        item = ITEM_BYTES[value.dtype]
        self.lines.append(f"  store {type_of(value)} {value.text}, ptr {pointer}, align {item}")
        self.held.clear()

    def _element(self, node: Intrinsic, operand: int, index: tuple[int, ...]) -> tuple[Load, Lin]:
        load = node.operands[operand]
        offset = sum(i * s for i, s in zip(index, node.strides[operand], strict=True))
        return load, self.form(load, load.buffer, load.indices) + offset

    def _lanes(self, node: Intrinsic, value: Lanes, memo: dict[int, Value]) -> Value:
        done = memo.get(id(value))
        if done is None:
            done = memo[id(value)] = self._made(node, value, memo)
        return done

    def _made(self, node: Intrinsic, value: Lanes, memo: dict[int, Value]) -> Value:
        dtype, lanes = value.type
        if isinstance(value, Splat):
            return self.splat(Value(constant(value.number, dtype), dtype), lanes)
        if isinstance(value, Loaded):
            return self.load_lanes(*self._element(node, value.operand, value.index), lanes)
        if isinstance(value, Converted):
            return self.cast(self._lanes(node, value.value, memo), dtype)
        if isinstance(value, Broadcast):
            return self.splat(self._lanes(node, value.value, memo), lanes)
        if isinstance(value, Reinterpreted):
            inner = self._lanes(node, value.value, memo)
            kind = vector(scalar_type(dtype), lanes)
            if type_of(inner) == kind:
                return Value(inner.text, dtype, lanes)
            key = ("bits", inner.text, type_of(inner), kind)
            return Value(self.cached(key, f"bitcast {type_of(inner)} {inner.text} to {kind}"), dtype, lanes)
        if isinstance(value, LaneOperation):
            a, b = self._lanes(node, value.a, memo), self._lanes(node, value.b, memo)
            return self.float_op(value.op, a, b) if is_float(dtype) else self.int_op(value.op, a, b)
        if isinstance(value, LlvmCall):
            return self._llvm_call(value, [self._lanes(node, a, memo) for a in value.arguments])
        raise BuildError(f"no code for the instruction {type(value).__name__}")

    def _llvm_call(self, value: LlvmCall, arguments: list[Value]) -> Value:
        dtype, lanes = value.type
        kind = vector(scalar_type(dtype), lanes)
        typed = [self._passed(a) for a in arguments]
        kinds = ", ".join(passed for passed, _ in typed)
        self.module.declare(f"declare {kind} @{value.name}({kinds})")
        given = ", ".join(f"{passed} {text}" for passed, text in typed)
        return Value(self.op(f"call {kind} @{value.name}({given})"), dtype, lanes)

    def _passed(self, value: Value) -> tuple[str, str]:
        """Type and text of an intrinsic's argument; bfloat16, held as bits elsewhere, has LLVM's own type here."""
        if value.dtype != "bfloat16":
            return type_of(value), value.text
        kind = vector("bfloat", value.lanes)
        key = ("bits", value.text, type_of(value), kind)
        return kind, self.cached(key, f"bitcast {type_of(value)} {value.text} to {kind}")


__all__ = ["InstructionEmitter"]
