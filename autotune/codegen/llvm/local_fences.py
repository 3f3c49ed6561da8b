"""Fences of local memory in the build that checks a candidate: what a kernel writes beside a block of its own.

Such a build differs from the one that is timed in nothing but this: each block, on the stack or in scratch memory, lies
between two zones that hold a pattern, and whatever of it was overwritten is told when the function ends. Blocks in
scratch memory have places of their own, and take no turns.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.codegen.llvm.module import ModuleText
from autotune.codegen.process_symbols import LOCAL_HARM

ZONE = 64
"""Bytes of a zone, at least those of a vector: the alignment of blocks stays."""
_BYTE = -91
_WORDS = ZONE // 8
_PATTERN = int.from_bytes(bytes([_BYTE % 256] * 8), "little", signed=True)


class LocalFences:
    """The zones of a function's blocks, in the module that it is of."""

    def __init__(self, module: ModuleText) -> None:
        self._module = module
        self._zones: list[str] = []

    def around(self, base: str, nbytes: int, name: str) -> list[str]:
        """Return what makes the block ``name`` of the memory ``base``, which has room for its zones, and fills them."""
        lines = [f"  {name} = getelementptr i8, ptr {base}, i64 {ZONE}"]
        behind = f"{name}.behind"
        lines.append(f"  {behind} = getelementptr i8, ptr {base}, i64 {ZONE + nbytes}")
        for zone in (base, behind):
            lines.append(f"  call void @llvm.memset.p0.i64(ptr {zone}, i8 {_BYTE}, i64 {ZONE}, i1 false)")
        self._zones += [base, behind]
        return lines

    def told(self) -> Sequence[str]:
        """Return instructions for the end of the function."""
        if not self._zones:
            return ()
        self._module.declare("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        self._module.declare(f"declare i64 @llvm.vector.reduce.or.v{_WORDS}i64(<{_WORDS} x i64>)")
        self._module.declare(f"@{LOCAL_HARM} = external global i64")
        wide, lines, sum_ = f"<{_WORDS} x i64>", list[str](), "zeroinitializer"
        for number, zone in enumerate(self._zones):
            lines += [
                f"  %zone{number} = load {wide}, ptr {zone}, align 1",
                f"  %changed{number} = xor {wide} %zone{number}, splat (i64 {_PATTERN})",
                f"  %harm{number} = or {wide} {sum_}, %changed{number}",
            ]
            sum_ = f"%harm{number}"
        lines += [
            f"  %harm = call i64 @llvm.vector.reduce.or.v{_WORDS}i64({wide} {sum_})",
            f"  %told = atomicrmw or ptr @{LOCAL_HARM}, i64 %harm monotonic",
        ]
        return lines


__all__ = ["ZONE", "LocalFences"]
