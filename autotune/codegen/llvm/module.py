"""An LLVM module under construction, as text: functions, declarations and constants once each."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.codegen.llvm.types import constant, scalar_type
from autotune.codegen.llvm.vector_math import has_avx512, math_function
from autotune.target import Target


class ModuleText:
    """Collects the parts of one LLVM module for a target.

    Where it is ``fenced``, local memory of its functions is: see :mod:`autotune.codegen.llvm.local_fences`.
    """

    def __init__(self, target: Target, fenced: bool = False) -> None:
        self.target = target
        self.fenced = fenced
        self._declarations: dict[str, None] = {}
        self._library: dict[str, str] = {}
        self._functions: list[str] = []
        self._metadata: dict[str, None] = {}
        self._numbers: dict[str, str] = {}

    def declare(self, line: str) -> None:
        """Add a ``declare`` line."""
        self._declarations.setdefault(line)

    def define(self, text: str) -> None:
        """Add a function."""
        self._functions.append(text)

    def math(self, name: str, lanes: int, dtype: str) -> str:
        """Make an elementary function available; returns its symbol."""
        function = math_function(name, lanes, dtype, has_avx512(self.target))
        self._library[function.symbol] = function.ir
        for line in function.needs:
            self.declare(line)
        return function.symbol

    def numbers(self, dtype: str, values: Sequence[int | float]) -> str:
        """Return a constant array; returns its address."""
        kind = scalar_type(dtype)
        items = ", ".join(f"{kind} {constant(value, dtype)}" for value in values)
        text = f"private constant [{len(values)} x {kind}] [{items}], align 8"
        return self._numbers.setdefault(text, f"@numbers.{len(self._numbers)}")

    def nontemporal(self) -> str:
        """Return the mark of a store that goes past the caches."""
        self._metadata.setdefault("!0 = !{i32 1}")
        return "!nontemporal !0"

    def loop(self) -> str:
        """Return the end of a loop's branch: on a GPU, that it stays one.

        NVIDIA's assembler repeats the bodies of short loops, and spills what their loads bring at once.
        """
        if not self.target.is_nvidia:
            return ""
        self._metadata.setdefault("!1 = distinct !{!1, !2}")
        self._metadata.setdefault('!2 = !{!"llvm.loop.unroll.disable"}')
        return ", !llvm.loop !1"

    def text(self) -> str:
        """Return the whole module."""
        width = self.target.vector_bits
        widths = f'"prefer-vector-width"="{width}" "min-legal-vector-width"="{width}"'
        attributes = f"attributes #0 = {{ nounwind {'' if self.target.is_nvidia else widths} }}"
        numbers = [f"{name} = {text}" for text, name in self._numbers.items()]
        parts = [
            *numbers,
            *self._declarations,
            *self._library.values(),
            *self._functions,
            attributes,
            *self._metadata,
        ]
        return "\n".join(parts) + "\n"
