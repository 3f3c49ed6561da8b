"""LLVM IR of the micro-kernels: loops over nothing but what is measured.

Each kernel is ``void(ptr data, i64 steps)``. Loads and stores are volatile, so that all of them are made; results of
arithmetic are stored at the end, so that none is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from autotune.codegen.process_symbols import TILE_CONFIGURATION

TILES: Final = 4
"""Products of a step, each with sums of its own."""

_INVARIANTS = """  %p = load volatile i64, ptr %data
  %q_at = getelementptr i8, ptr %data, i64 8
  %q = load volatile i64, ptr %q_at"""
_VECTORS = """  %f = load volatile {vector}, ptr %data
  %g_at = getelementptr i8, ptr %data, i64 64
  %g = load volatile {vector}, ptr %g_at"""


def _loop(
    name: str, carried: Sequence[tuple[str, str, str, str]], before: str, body: Sequence[str], after: str = ""
) -> str:
    """Return a loop of ``%steps`` steps; ``carried`` values are (type, name, initial, next)."""
    phis = [f"  %{n} = phi {t} [ {first}, %entry ], [ {last}, %loop ]" for t, n, first, last in carried]
    return "\n".join(
        [
            f"define void @{name}(ptr %data, i64 %steps) {{",
            "entry:",
            before,
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [ 0, %entry ], [ %i_next, %loop ]",
            *phis,
            *body,
            "  %i_next = add i64 %i, 1",
            "  %more = icmp slt i64 %i_next, %steps",
            "  br i1 %more, label %loop, label %exit",
            "exit:",
            after,
            "  ret void",
            "}",
        ]
    )


def multiply_adds(
    name: str, lanes: int, chains: int, links: int, loads: int = 0, integers: tuple[int, int] = (0, 0)
) -> str:
    """Return code whose step is ``links`` multiply-adds of each of ``chains`` vectors, beside ``loads`` loads and
    chains of additions alternating with exclusive ors: ``integers`` are how many chains, and operations of each.

    Data: 64 bytes of each factor, where they are read as integers too; loads go round the 1 KiB behind them.
    """
    vector = f"<{lanes} x float>"
    call = f"call {vector} @llvm.fma.v{lanes}f32"
    lines = []
    for link in range(links):
        for chain in range(chains):
            at = "" if link == 0 else f"_{link}"
            args = f"({vector} %x{chain}{at}, {vector} %f, {vector} %g)"
            lines.append(f"  %x{chain}_{link + 1} = {call}{args}")
    for load in range(loads):
        offset = 128 + load % max(1, 1024 // (4 * lanes)) * 4 * lanes
        lines += [
            f"  %l{load}_at = getelementptr i8, ptr %data, i64 {offset}",
            f"  %l{load} = load volatile {vector}, ptr %l{load}_at, align 4",
        ]
    count, length = integers
    lines += [line for number in range(count) for line in _integers(f"y{number}", length)]
    carried = [(vector, f"x{chain}", "%f", f"%x{chain}_{links}") for chain in range(chains)]
    carried += [("i64", f"y{number}_0", "%p", f"%y{number}_{length}") for number in range(count)]
    after = [f"  store volatile {vector} %x{chain}_{links}, ptr %data" for chain in range(chains)]
    after += [f"  store volatile i64 %y{number}_{length}, ptr %data" for number in range(count)]
    declared = f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})\n"
    before = "\n".join([*([_INVARIANTS] if count else []), _VECTORS.format(vector=vector)])
    return declared + _loop(name, carried, before, lines, "\n".join(after))


def pair_products(name: str, lanes: int, chains: int) -> str:
    """Return code whose step is a product of pairs of bfloat16 numbers (vdpbf16ps) for each of ``chains`` vectors of
    sums. Data: 64 bytes of each factor."""
    vector, factor = f"<{lanes} x float>", f"<{2 * lanes} x bfloat>"
    call = f"{vector} @llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}"
    lines = [
        f"  %x{chain}_1 = call {call}({vector} %x{chain}, {factor} %f, {factor} %g)"
        for chain in range(chains)
    ]
    carried = [(vector, f"x{chain}", "zeroinitializer", f"%x{chain}_1") for chain in range(chains)]
    after = [f"  store volatile {vector} %x{chain}_1, ptr %data" for chain in range(chains)]
    declared = f"declare {call}({vector}, {factor}, {factor})\n"
    return declared + _loop(name, carried, _VECTORS.format(vector=factor), lines, "\n".join(after))


def _integers(name: str, count: int) -> list[str]:
    """Return operations of one cycle each that need the one before, and that no identity shortens."""
    return [
        f"  %{name}_{number + 1} = {('add', 'xor')[number % 2]} i64 %{name}_{number}, {('%p', '%q')[number % 2]}"
        for number in range(count)
    ]


def tile_products(name: str, product: str) -> str:
    """Return code whose step is a product of tiles, such as ``tdpbusd``, for each of ``TILES`` tiles of sums."""
    call = "  call void @llvm.x86."
    number = "i8 immarg"
    declared = [
        f"@{TILE_CONFIGURATION} = external global [64 x i8]",
        "declare void @llvm.x86.ldtilecfg(ptr)",
        "declare void @llvm.x86.tilerelease()",
        f"declare void @llvm.x86.tilezero({number})",
        f"declare void @llvm.x86.{product}({number}, {number}, {number})\n",
    ]
    before = [f"{call}ldtilecfg(ptr @{TILE_CONFIGURATION})"]
    before += [f"{call}tilezero(i8 {tile})" for tile in range(2 * TILES)]
    body = [f"{call}{product}(i8 {tile}, i8 {4 + tile // 2}, i8 {6 + tile % 2})" for tile in range(TILES)]
    return "\n".join(declared) + _loop(name, [], "\n".join(before), body, f"{call}tilerelease()")


def moves(name: str, lanes: int, offsets: Sequence[int], *, store: bool = False) -> str:
    """Return code whose step is a load, or a store, of a vector at each of ``offsets`` in bytes."""
    vector = f"<{lanes} x float>"
    lines = []
    for number, offset in enumerate(offsets):
        lines.append(f"  %a{number} = getelementptr i8, ptr %data, i64 {offset}")
        if store:
            lines.append(f"  store volatile {vector} zeroinitializer, ptr %a{number}, align 4")
        else:
            lines.append(f"  %v{number} = load volatile {vector}, ptr %a{number}, align 4")
    return _loop(name, [], "", lines)


def broadcasts(name: str, lanes: int, count: int) -> str:
    """Return code whose step repeats each of ``count`` elements in all lanes and adds it to one of as many sums."""
    vector, element = f"<{lanes} x float>", "<1 x float>"
    lines = []
    for n in range(count):
        lines += [
            f"  %a{n} = getelementptr float, ptr %data, i64 {n}",
            f"  %s{n} = load volatile {element}, ptr %a{n}, align 4",
            f"  %b{n} = shufflevector {element} %s{n}, {element} poison, <{lanes} x i32> zeroinitializer",
            f"  %c{n} = bitcast {vector} %b{n} to <{lanes} x i32>",
            f"  %x{n}_1 = or <{lanes} x i32> %x{n}, %c{n}",
        ]
    carried = [(f"<{lanes} x i32>", f"x{n}", "zeroinitializer", f"%x{n}_1") for n in range(count)]
    after = "\n".join(f"  store volatile <{lanes} x i32> %x{n}_1, ptr %data" for n in range(count))
    return _loop(name, carried, "", lines, after)


def folds(name: str, lanes: int, count: int) -> str:
    """Return code whose step loads ``count`` vectors and adds up the lanes of each."""
    vector, symbol = f"<{lanes} x float>", f"@llvm.vector.reduce.fadd.v{lanes}f32"
    lines = []
    for n in range(count):
        lines += [
            f"  %a{n} = getelementptr i8, ptr %data, i64 {4 * lanes * n}",
            f"  %v{n} = load volatile {vector}, ptr %a{n}, align 4",
            f"  %r{n} = call reassoc float {symbol}(float -0.0, {vector} %v{n})",
            f"  %s{n}_1 = fadd float %s{n}, %r{n}",
        ]
    carried = [("float", f"s{n}", "0.0", f"%s{n}_1") for n in range(count)]
    after = "\n".join(f"  store volatile float %s{n}_1, ptr %data" for n in range(count))
    return f"declare float {symbol}(float, {vector})\n" + _loop(name, carried, "", lines, after)


def side_by_side(name: str, lanes: int, rows: int, distance: int) -> str:
    """Return code whose step reads the next line of each of ``rows``, ``distance`` bytes apart, round 4 KiB of each."""
    offsets = [row * distance + at for row in range(rows) for at in range(0, 64, 4 * lanes)]
    return _round_and_round(name, lanes, offsets, 64, 4096)


def stream(
    name: str, lanes: int, size: int, *, piece: int = 256, distance: int = 256, copy: bool = False
) -> str:
    """Return code whose step reads a piece of so many bytes, ``distance`` bytes behind the last, round ``size`` bytes.

    All of them are read where the size is a power of two and the distance an odd number of pieces. With ``copy`` each
    is stored ``size`` bytes further on.
    """
    return _round_and_round(name, lanes, range(0, piece, 4 * lanes), distance, size, copy=copy)


def _round_and_round(
    name: str, lanes: int, offsets: Iterable[int], distance: int, size: int, *, copy: bool = False
) -> str:
    """Return code whose step loads vectors at ``offsets`` from a place that goes on by ``distance``, modulo
    ``size``, all in bytes."""
    vector = f"<{lanes} x float>"
    lines = [f"  %at = and i64 %place, {size - 1}", "  %here = getelementptr i8, ptr %data, i64 %at"]
    for number, offset in enumerate(offsets):
        lines += [
            f"  %a{number} = getelementptr i8, ptr %here, i64 {offset}",
            f"  %v{number} = load volatile {vector}, ptr %a{number}, align 4",
        ]
        if copy:
            lines += [
                f"  %b{number} = getelementptr i8, ptr %here, i64 {size + offset}",
                f"  store volatile {vector} %v{number}, ptr %b{number}, align 4",
            ]
    lines.append(f"  %place_next = add i64 %place, {distance}")
    return _loop(name, [("i64", "place", "0", "%place_next")], "", lines)


def chase(name: str) -> str:
    """Return code whose step reads the address of the next step."""
    return _loop(
        name, [("ptr", "here", "%data", "%next")], "", ["  %next = load volatile ptr, ptr %here, align 8"]
    )


__all__ = [
    "TILES",
    "broadcasts",
    "chase",
    "folds",
    "moves",
    "multiply_adds",
    "pair_products",
    "side_by_side",
    "stream",
    "tile_products",
]
