"""Instructions, blocks and variables of one function of LLVM IR, written in order."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.runtime.cpu.translate.functions import Kind


@dataclass(frozen=True)
class NativeValue:
    """A constant or the result of an instruction."""

    text: str
    kind: Kind


@dataclass(frozen=True)
class Variable:
    """A place on the stack, which LLVM turns into registers."""

    name: str
    kind: Kind


class FunctionCode:
    """The body of a function under construction.

    ``ended`` says that the current block has jumped away: nothing can be written before the next begins.
    """

    def __init__(self) -> None:
        self._variables: list[str] = []
        self._lines: list[str] = []
        self._count = 0
        self.ended = False

    def value(self, instruction: str, kind: Kind) -> NativeValue:
        """Return the result of an instruction."""
        name = f"%v{self._next()}"
        self.write(f"{name} = {instruction}")
        return NativeValue(name, kind)

    def write(self, instruction: str) -> None:
        """Write an instruction without a result."""
        self._lines.append(f"  {instruction}")

    def variable(self, kind: Kind) -> Variable:
        """Return a new variable, without a value."""
        name = f"%p{self._next()}"
        self._variables.append(f"  {name} = alloca {kind}")
        return Variable(name, kind)

    def read(self, variable: Variable) -> NativeValue:
        """Read the value of a variable."""
        return self.value(f"load {variable.kind}, ptr {variable.name}", variable.kind)

    def assign(self, variable: Variable, value: NativeValue) -> None:
        """Give a variable a value of its type."""
        self.write(f"store {value.kind} {value.text}, ptr {variable.name}")

    def label(self) -> str:
        """Return a name for a block that begins later."""
        return f"b{self._next()}"

    def begin(self, label: str) -> None:
        """Begin a block, which the one before runs into if it has not ended."""
        if not self.ended:
            self.jump(label)
        self._lines.append(f"{label}:")
        self.ended = False

    def jump(self, label: str) -> None:
        """Go on in another block."""
        self.end(f"br label %{label}")

    def branch(self, condition: NativeValue, then: str, otherwise: str) -> None:
        """Go on in one of two blocks."""
        self.end(f"br i1 {condition.text}, label %{then}, label %{otherwise}")

    def end(self, instruction: str) -> None:
        """End a block with its last instruction."""
        self.write(instruction)
        self.ended = True

    def text(self) -> str:
        """Return the body."""
        return "\n".join([*self._variables, *self._lines])

    def _next(self) -> int:
        self._count += 1
        return self._count


__all__ = ["FunctionCode", "NativeValue", "Variable"]
