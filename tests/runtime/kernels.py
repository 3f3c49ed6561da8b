"""Small kernels in LLVM IR, and images made of them, for the tests of the runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import llvmlite.binding as llvm

from autotune.runtime.image import Binding, Command, DispatchInfo, ModuleImage, TensorSpec
from autotune.target import Target

_LOOP = """
declare float @expf(float)
define void @{name}(ptr %table, i64 %begin, i64 %end, ptr %scratch) {{
entry:
  %a0 = load i64, ptr %table
  %a = inttoptr i64 %a0 to ptr
  %b0p = getelementptr i64, ptr %table, i64 1
  %b0 = load i64, ptr %b0p
  %b = inttoptr i64 %b0 to ptr
  br label %head
head:
  %i = phi i64 [%begin, %entry], [%next, %latch]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %exit
body:
  %from = getelementptr i64, ptr %a, i64 %i
  %to = getelementptr i64, ptr %b, i64 %i
{body}
  br label %latch
latch:
  %next = add i64 %i, 1
  br label %head
exit:
  ret void
}}
"""

# One tile is one int64 element; table = [a, b].
_BODIES = {
    # b[i] += 1
    "count": "%x = load i64, ptr %to\n %y = add i64 %x, 1\n store i64 %y, ptr %to",
    # b[i] = a[i] + 1
    "increment": "%x = load i64, ptr %from\n %y = add i64 %x, 1\n store i64 %y, ptr %to",
    # b[i] = a[n-1-i] + 1 with n = 64: every tile reads what another tile of the command before wrote
    "mirror": "%j = sub i64 63, %i\n %p = getelementptr i64, ptr %a, i64 %j\n"
    " %x = load i64, ptr %p\n %y = add i64 %x, 1\n store i64 %y, ptr %to",
    # scratch[0] = i, a while later b[i] = scratch[0]: wrong when another worker has the same scratch
    "scratch": "store volatile i64 %i, ptr %scratch\n br label %spin\nspin:\n"
    " %k = phi i64 [0, %body], [%k1, %spin]\n %k1 = add i64 %k, 1\n"
    " store volatile i64 %k1, ptr %to\n %go = icmp slt i64 %k1, 5000\n"
    " br i1 %go, label %spin, label %done\ndone:\n"
    " %x = load volatile i64, ptr %scratch\n store i64 %x, ptr %to",
    # b[i] = address of the scratch memory
    "where": "%x = ptrtoint ptr %scratch to i64\n store i64 %x, ptr %to",
    # a long time: b[i] = a[i] after 2000000 dependent steps
    "slow": "%x = load i64, ptr %from\n br label %spin\nspin:\n"
    " %k = phi i64 [0, %body], [%k1, %spin]\n %k1 = add i64 %k, 1\n"
    " store volatile i64 %k1, ptr %to\n %go = icmp slt i64 %k1, 2000000\n"
    " br i1 %go, label %spin, label %done\ndone:\n store i64 %x, ptr %to",
    # b[i] = a[n-1-i] + 1 with n = 64, after 0 to 1023 steps that depend on what it read
    "late": "%j = sub i64 63, %i\n %p = getelementptr i64, ptr %a, i64 %j\n %x = load i64, ptr %p\n"
    " %m = mul i64 %x, -7046029254386353131\n %n = lshr i64 %m, 54\n br label %spin\nspin:\n"
    " %k = phi i64 [0, %body], [%k1, %spin]\n %k1 = add i64 %k, 1\n"
    " store volatile i64 %k1, ptr %to\n %go = icmp slt i64 %k1, %n\n"
    " br i1 %go, label %spin, label %done\ndone:\n %y = add i64 %x, 1\n store i64 %y, ptr %to",
    # b[i] = a[i], once that is not 0, after 100000 steps: too long to keep the GIL meanwhile
    "await": "br label %spin\nspin:\n %k = phi i64 [0, %body], [%k1, %spin]\n %k1 = add i64 %k, 1\n"
    " %x = load volatile i64, ptr %from\n %none = icmp eq i64 %x, 0\n %few = icmp slt i64 %k1, 100000\n"
    " %go = or i1 %none, %few\n br i1 %go, label %spin, label %done\ndone:\n store i64 %x, ptr %to",
    # b[i] = 1, but b[0] only once a[4] is not 0, and 0 where that takes 2^32 steps
    "held": "%held = icmp eq i64 %i, 0\n %p = getelementptr i64, ptr %a, i64 4\n"
    " br i1 %held, label %spin, label %free\nspin:\n"
    " %k = phi i64 [0, %body], [%k1, %spin]\n %k1 = add i64 %k, 1\n %x = load volatile i64, ptr %p\n"
    " %none = icmp eq i64 %x, 0\n %few = icmp slt i64 %k1, 4294967296\n %go = and i1 %none, %few\n"
    " br i1 %go, label %spin, label %done\ndone:\n store i64 %x, ptr %to\n br label %latch\nfree:\n"
    " store volatile i64 1, ptr %to",
    "nothing": "",
}
_TO_SCRATCH = "%p = getelementptr i64, ptr %scratch, i64 {}\n store i64 %i, ptr %p\n store i64 %i, ptr %to"


@cache
def compile_ir(text: str) -> bytes:
    """Object code of LLVM IR text for this machine."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2, jit=True)
    return bytes(machine.emit_object(llvm.parse_assembly(text)))


def kernel(body: str, name: str = "k") -> bytes:
    """Object code of one of the bodies above."""
    return compile_ir(_LOOP.format(name=name, body=_BODIES[body]))


def binding(space: str, elements: int, index: int = 0, offset: int = 0) -> Binding:
    """A range of int64 elements."""
    return Binding(space, index, offset, 8 * elements)  # type: ignore[arg-type]


def spec(name: str, elements: int) -> TensorSpec:
    """An int64 vector."""
    return TensorSpec(name, (elements,), "int64")


def image(
    steps: Sequence[tuple[str, Binding, Binding, int]],
    *,
    inputs: tuple[TensorSpec, ...] = (),
    outputs: tuple[TensorSpec, ...] = (),
    arena_bytes: int = 0,
    scratch_bytes: int = 0,
    **rest: object,
) -> ModuleImage:
    """An image with one command a step: (body, from, to, tiles)."""
    commands = tuple(
        Command(index, index, f"k{index}", (source, target), tiles, scratch_bytes, (1,))
        for index, (_, source, target, tiles) in enumerate(steps)
    )
    return ModuleImage(
        name="test",
        target=Target.detect(),
        inputs=inputs,
        outputs=outputs,
        objects=tuple(kernel(step[0], f"k{index}") for index, step in enumerate(steps)),
        constants=rest.pop("constants", ()),  # type: ignore[arg-type]
        commands=commands,
        dispatches=tuple(
            DispatchInfo(f"d{index}", "", "elementwise", "default", "[]") for index in range(len(steps))
        ),
        arena_bytes=arena_bytes,
        **rest,  # type: ignore[arg-type]
    )


def writes_scratch(element: int, scratch_bytes: int, tiles: int) -> ModuleImage:
    """One command that writes an element of its scratch memory in every tile."""
    vector = binding("output", tiles)
    made = image(
        [("nothing", vector, vector, tiles)], outputs=(spec("y", tiles),), scratch_bytes=scratch_bytes
    )
    code = compile_ir(_LOOP.format(name="k0", body=_TO_SCRATCH.format(element)))
    return replace(made, objects=(code,))


def chain(length: int, elements: int, tiles: int | None = None, body: str = "increment"):
    """x → x + length through the arena, one command an addition."""
    size = 8 * elements
    places = [
        binding("input", elements),
        *(binding("arena", elements, offset=size * (i % 2)) for i in range(length - 1)),
        binding("output", elements),
    ]
    return image(
        [(body, places[i], places[i + 1], tiles or elements) for i in range(length)],
        inputs=(spec("x", elements),),
        outputs=(spec("y", elements),),
        arena_bytes=2 * size,
    )
