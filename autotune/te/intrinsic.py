"""Tensor intrinsics: a small computation under a name, and what runs in its place when a schedule calls it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.errors import ScheduleError
from autotune.te.expr import IterVar, Read
from autotune.te.instructions import KernelCall, Operand, Step, TileMultiply
from autotune.te.tensor import ComputeOp, Operation, Tensor
from autotune.te.traversal import reads

KINDS = ("serial", "unrolled", "vectorized")
PARTS = ("body", "init", "update")

SHIPPED = ("autotune.te.dot_products", "autotune.te.nibbles", "autotune.te.tensor_cores")
"""Modules that declare the intrinsics that come with the package; loaded when a name is not known yet."""

MADE = {
    "matmul.": "autotune.te.library_calls",
    "tdp": "autotune.te.tiles",
    "taps_": "autotune.te.taps",
}
"""Modules that make intrinsics of many sizes by the start of their names: calls of libraries, products of tiles,
taps of depthwise windows."""

INTRINSICS: dict[str, TensorIntrin] = {}
"""Declared intrinsics by name; traces refer to them."""

IntrinFunc = Callable[[list[Operand], list[Operand]], Any]


@dataclass(frozen=True)
class BufferDecl:
    """Layout of an operand: strides in elements, None for any."""

    strides: tuple[int | None, ...]


@dataclass(frozen=True, repr=False)
class TensorIntrin:
    """A declared intrinsic.

    ``op`` is the pattern, ``kinds`` how each of its loops runs where no instructions replace them. ``operands`` are
    the output and then the inputs in the order of ``op.input_tensors``. ``instructions`` replace a part: "body" the
    whole computation, "update" one that adds to what is there, "init" the start values. ``requires`` are features
    of the target without which there is no code.
    """

    name: str
    op: ComputeOp
    kinds: Mapping[str, str]
    operands: tuple[Operand, ...] = ()
    instructions: Mapping[str, tuple[Step, ...]] = field(default_factory=dict)
    requires: tuple[str, ...] = ()
    sizes: tuple[Any, ...] = field(default=(), compare=False)
    """Numbers that end its name, as expressions of knobs; empty where none depends on knobs."""

    @property
    def by_loop(self) -> bool:
        """Return whether operands are addressed by the distance in memory that each loop moves them."""
        parts = (step for steps in self.instructions.values() for step in steps)
        return any(isinstance(step, TileMultiply) for step in parts)

    def __repr__(self) -> str:
        return f"TensorIntrin({self.name})"

    def __hash__(self) -> int:
        return hash(self.name)


def decl_buffer(
    shape: Sequence[int],
    dtype: str = "float32",
    name: str = "buffer",
    strides: Sequence[int | None] | None = None,
    **_: Any,
) -> BufferDecl:
    """Return the layout of an operand of an intrinsic (TVM's ``tvm.tir.decl_buffer``); dense when no strides are given.

    A stride of None fits any; TVM writes ``te.var("s")`` there.
    """
    if strides is None:
        return BufferDecl(_dense(tuple(shape)))
    if len(strides) != len(shape):
        raise ValueError(f"te.decl_buffer: {name} has {len(shape)} dimensions and {len(strides)} strides")
    return BufferDecl(tuple(strides))


def decl_tensor_intrin(
    op: Operation | Tensor,
    intrin_func: IntrinFunc | None = None,
    *,
    kinds: Mapping[str, str] | None = None,
    binds: Mapping[Tensor, BufferDecl] | None = None,
    requires: Sequence[str] = (),
    name: str = "",
) -> TensorIntrin:
    """Declare an intrinsic for ``tensorize`` (TVM's ``te.decl_tensor_intrin``).

    ``op`` is the pattern: one operation over placeholders. What replaces it is written in one of two ways. ``kinds``
    says for each loop of the pattern whether it runs "serial", "unrolled" or "vectorized" (serial by default): every
    target can emit that. ``intrin_func(ins, outs)`` gives instructions (see :mod:`autotune.te.instructions`): stores
    for the whole pattern, or ``(body, init, update)`` for a reduction whose loop goes on outside, each of which may
    be None. ``binds`` gives operands a layout (:func:`decl_buffer`; dense by default), ``requires`` names features
    of the target that the instructions need. The interpreter runs the pattern, whatever replaces it, but for products
    of tiles (:mod:`autotune.te.tiles`).

    The name defaults to that of the operation; declaring a name again replaces it. Raises TypeError for a pattern
    that is not a compute over placeholders, ValueError for an unknown loop or kind, or instructions that do not fit
    their operands.

    >>> from autotune import te
    >>> a, b = te.placeholder((4,), name="a"), te.placeholder((4, 8), name="b")
    >>> k = te.reduce_axis((0, 4), name="k")
    >>> row = te.compute((8,), lambda j: te.sum(a[k] * b[k, j], axis=k), name="row")
    >>> te.decl_tensor_intrin(row.op, kinds={"j": "vectorized", "k": "unrolled"}, name="row_4x8")
    TensorIntrin(row_4x8)
    >>> def fma(ins, outs):
    ...     total = outs[0].vload(0, "float32x8")
    ...     for step in range(4):
    ...         left = ins[0].vload(step).astype("float32x8")
    ...         total = total + left * ins[1].vload((step, 0), "float32x8")
    ...     return None, outs[0].vstore(0, te.splat(0, "float32x8")), outs[0].vstore(0, total)
    >>> te.decl_tensor_intrin(row.op, fma, binds={b: te.decl_buffer(b.shape, strides=[None, 1])}, name="row_fma")
    TensorIntrin(row_fma)
    """
    pattern: Any = op.op if isinstance(op, Tensor) else op
    if not isinstance(pattern, ComputeOp) or any(isinstance(t.op, ComputeOp) for t in pattern.input_tensors):
        raise TypeError("te.decl_tensor_intrin: the pattern must be one te.compute over placeholders")
    if len(pattern.body) != 1:
        raise TypeError("te.decl_tensor_intrin: the pattern must have one output")
    _check_kinds(pattern, kinds or {})
    operands = _operands(pattern, binds or {})
    instructions: dict[str, tuple[Step, ...]] = {}
    if intrin_func is not None:
        instructions = _parts(pattern, intrin_func(list(operands[1:]), list(operands[:1])))
        if not all(isinstance(step, TileMultiply) for steps in instructions.values() for step in steps):
            _check_reads(pattern)  # those of tiles address by loop
    intrin = TensorIntrin(
        name or pattern.name, pattern, dict(kinds or {}), operands, instructions, tuple(requires)
    )
    INTRINSICS[intrin.name] = intrin
    return intrin


def intrinsic_named(name: str) -> TensorIntrin:
    """Return a declared intrinsic; raises ScheduleError listing the names."""
    for start, module in MADE.items():
        if name.startswith(start):
            return importlib.import_module(module).by_name(name)  # type: ignore[no-any-return]
    if name not in INTRINSICS:
        for module in SHIPPED:
            importlib.import_module(module)
    if name not in INTRINSICS:
        known = ", ".join(sorted(INTRINSICS)) or "none"
        raise ScheduleError(
            f"no tensor intrinsic {name!r} is declared here; declare it with te.decl_tensor_intrin (known: {known})"
        )
    return INTRINSICS[name]


def _check_kinds(pattern: ComputeOp, kinds: Mapping[str, str]) -> None:
    loops = [iv.name for iv in pattern.axis + pattern.reduce_axis]
    for loop, kind in kinds.items():
        if loop not in loops:
            raise ValueError(
                f"te.decl_tensor_intrin: no loop {loop!r} in the pattern; it has {', '.join(loops)}"
            )
        if kind not in KINDS:
            raise ValueError(f"te.decl_tensor_intrin: kind must be one of {', '.join(KINDS)}, got {kind!r}")


def _operands(pattern: ComputeOp, binds: Mapping[Tensor, BufferDecl]) -> tuple[Operand, ...]:
    tensors = [pattern.output(0), *pattern.input_tensors]
    for tensor in binds:
        if tensor not in tensors:
            raise ValueError(
                f"te.decl_tensor_intrin: {tensor.name} is bound but not an operand of the pattern"
            )
    return tuple(
        Operand(n, t.name, t.shape, t.dtype, binds[t].strides if t in binds else _dense(t.shape))
        for n, t in enumerate(tensors)
    )


def _check_reads(pattern: ComputeOp) -> None:
    """Check that each operand is read once, and each of its dimensions moved by one loop: instructions
    address by dimension."""
    seen: set[Tensor] = set()
    for read in (r for e in pattern.body for r in reads(e)):
        if read.tensor in seen or not _is_plain(read):
            raise TypeError(
                f"te.decl_tensor_intrin: a pattern with instructions reads each operand once, indexed by its loops "
                f"alone; got {read!r}"
            )
        seen.add(read.tensor)


def _is_plain(read: Read) -> bool:
    loops = [i for i in read.indices if isinstance(i, IterVar)]
    return len(loops) == len(read.indices) == len(set(loops))


def _parts(pattern: ComputeOp, made: Any) -> dict[str, tuple[Step, ...]]:
    given = made if isinstance(made, tuple) and (not _is_stores(made) or _are_calls(made)) else (made,)
    if len(given) > len(PARTS) or (len(given) > 1 and not pattern.reduce_axis):
        raise TypeError(
            "te.decl_tensor_intrin: intrin_func returns stores, or (body, init, update) of a reduction"
        )
    parts: dict[str, tuple[Step, ...]] = {}
    for part, stores in zip(PARTS, given, strict=False):
        if stores is None:
            continue
        listed = (stores,) if isinstance(stores, Step) else tuple(stores)
        if not _is_stores(listed):
            raise TypeError(
                f"te.decl_tensor_intrin: the {part} of intrin_func is not made of stores: {stores!r}"
            )
        parts[part] = listed
    return parts


def _are_calls(made: tuple[Any, ...]) -> bool:
    """Return whether a tuple has a call of a function, or a product of tiles, for each part."""
    return len(made) == len(PARTS) and all(isinstance(part, KernelCall | TileMultiply) for part in made)


def _is_stores(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(v, Step) for v in value)


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides)) if shape else ()


__all__ = [
    "INTRINSICS",
    "BufferDecl",
    "TensorIntrin",
    "decl_buffer",
    "decl_tensor_intrin",
    "intrinsic_named",
]
