"""Workloads that are programs of tensor expressions of a user's own."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np

from autotune import te
from autotune.errors import InputError
from autotune.graph.ir import Array
from autotune.graph.region import RegionProgram, Workload
from autotune.te.dtypes import is_float, is_unsigned
from autotune.te.expr import Binary, Call, Read
from autotune.te.parse import parse_program
from autotune.te.tensor import ComputeOp, Operation, post_order
from autotune.te.text import HEADER, program_text, signature
from autotune.te.traversal import nodes, reads

KIND = "program"


@dataclass(frozen=True, repr=False)
class ProgramWorkload:
    """A program of tensor expressions as a workload; ``text`` is what the database stores.

    Names of tensors and loops belong to it, as schedules refer to them. ``key``, ``flops`` and ``bytes`` are those of
    :class:`~autotune.graph.region.Workload`.
    """

    text: str = field(compare=False)
    key: str
    flops: int = field(compare=False)
    bytes: int = field(compare=False)
    kind: str = field(default=KIND, compare=False)

    @staticmethod
    def of(args: Sequence[te.Tensor]) -> ProgramWorkload:
        """Return the workload of a program, given by its arguments in the order of the call.

        Raises ScheduleError where the program has no text, and InputError where nothing is computed.
        """
        text = program_text(args)
        if not any(isinstance(tensor.op, ComputeOp) for tensor in args):
            raise InputError("none of the arguments is computed: give the program's outputs too")
        for op in {tensor.op for tensor in args}:
            missing = [op.output(n).name for n in range(len(op.dtypes)) if op.output(n) not in args]
            if missing:
                raise InputError(
                    f"{op.name} also computes {', '.join(missing)}, which must be among the arguments"
                )
        return ProgramWorkload(
            text=text,
            key=hashlib.sha256(text.encode()).hexdigest(),
            flops=sum(_flops(op) for op in post_order(list(args))),
            bytes=sum(math.prod(t.shape) * np.dtype(t.dtype).itemsize for t in args),
        )

    @property
    def symbol(self) -> str:
        """As for :class:`~autotune.graph.region.Workload`."""
        return f"w{self.key[:16]}"

    @property
    def dtype(self) -> str:
        """Of the first argument."""
        return self.expressions.args[0].dtype

    @staticmethod
    def parse(text: str) -> ProgramWorkload:
        """Return the workload of a text; raises ScheduleError."""
        return ProgramWorkload.of(parse_program(text))

    @cached_property
    def expressions(self) -> RegionProgram:
        """The tensor expressions; the outputs are those arguments that are computed."""
        args = parse_program(self.text)
        computed = [isinstance(tensor.op, ComputeOp) for tensor in args]
        return RegionProgram(
            inputs=tuple(t for t, c in zip(args, computed, strict=True) if not c),
            outputs=tuple(t for t, c in zip(args, computed, strict=True) if c),
            anchor=None,
            constants=frozenset(),
            strides={},
        )

    def program(self) -> RegionProgram:
        """Return the program, as for :class:`~autotune.graph.region.Workload`."""
        return self.expressions

    def reference(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the outputs in NumPy, for the inputs in order; raises InputError if they do not fit."""
        program = self.program()
        if len(arrays) != len(program.inputs):
            raise InputError(f"the program has {len(program.inputs)} inputs, got {len(arrays)}")
        return te.evaluate(program.outputs, dict(zip(program.inputs, arrays, strict=True)))

    def random_inputs(self, seed: int, *, same_sign: bool = False) -> list[Array]:
        """Return the normal numbers, small integers, and integers within the tensor where they are indices of one."""
        rng = np.random.default_rng(seed)
        program = self.program()
        limits = _index_limits(program.outputs)
        return [_drawn(rng, tensor, limits.get(tensor), same_sign) for tensor in program.inputs]

    @property
    def signature(self) -> str:
        """Dtypes and shapes of inputs and outputs: ``(float32[64, 9], float32[9]) -> (float32[64])``."""
        takes, gives = signature(self.program().args).split(" -> ")
        return f"({takes}) -> ({gives})"

    def __repr__(self) -> str:
        return f"<ProgramWorkload {self.key[:12]} {self.signature}>"

    def __str__(self) -> str:
        return self.text


def _flops(op: Operation) -> int:
    """Return operations on values of floating point or integers; those of a reducer count as one a source."""
    if not isinstance(op, ComputeOp):
        return 0
    points = math.prod(axis.extent for axis in op.axis + op.reduce_axis)
    index_parts = {id(node) for e in op.body for read in reads(e) for i in read.indices for node in nodes(i)}
    found = {id(n): n for e in op.body for n in nodes(e) if isinstance(n, Binary | Call)}
    return points * (len(found.keys() - index_parts) + (len(op.body) if op.reduction is not None else 0))


def _index_limits(outputs: Sequence[te.Tensor]) -> dict[te.Tensor, int]:
    """Return the least extent that each tensor indexes, by tensor."""
    limits: dict[te.Tensor, int] = {}
    computed = [op for op in post_order(list(outputs)) if isinstance(op, ComputeOp)]
    for read in (r for op in computed for e in op.body for r in reads(e)):
        for index, extent in zip(read.indices, read.tensor.shape, strict=True):
            for inner in (node for node in nodes(index) if isinstance(node, Read)):
                limits[inner.tensor] = min(extent, limits.get(inner.tensor, extent))
    return limits


def _drawn(rng: np.random.Generator, tensor: te.Tensor, limit: int | None, same_sign: bool) -> Array:
    dtype = np.dtype(tensor.dtype)
    if is_float(tensor.dtype):
        values = rng.standard_normal(tensor.shape)
        return np.asarray(np.abs(values) if same_sign else values).astype(dtype)
    if tensor.dtype == "bool":
        return rng.integers(0, 2, tensor.shape).astype(np.bool_)
    if limit is not None:
        return rng.integers(0, max(1, limit), tensor.shape).astype(dtype)
    low = 0 if same_sign or is_unsigned(tensor.dtype) else -8
    return rng.integers(low, 9, tensor.shape).astype(dtype)


AnyWorkload: TypeAlias = Workload | ProgramWorkload
"""A subject of tuning: a region of a graph, or a program of a user's own."""


@lru_cache(maxsize=256)
def parse_workload(text: str) -> AnyWorkload:
    """Return the workload of any stored text, the same one for the same text; raises GraphError or ScheduleError."""
    return ProgramWorkload.parse(text) if text.startswith(HEADER) else Workload.parse(text)


__all__ = ["KIND", "AnyWorkload", "ProgramWorkload", "parse_workload"]
