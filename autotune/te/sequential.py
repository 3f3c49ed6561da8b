"""Kernels whose iterations follow one another: scans, sorts, scatters, searches.

A stage of :func:`autotune.te.compute` says what each element is. What is written one step after another, in places
that data decide, is said by statements instead (:mod:`autotune.te.statements`): a :class:`SequentialOp` runs its
statements once for each point of its axes, and those points are independent, so that workers may share them. It is
what ``te.extern`` is in TVM, in our own loops: every backend compiles it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from autotune.te.expr import Expr, IterVar, cast
from autotune.te.operations import maximum, reduce_axis
from autotune.te.reductions import max as te_max
from autotune.te.statements import Statement, Steps
from autotune.te.tensor import ComputeOp, PlaceholderOp, Tensor
from autotune.te.traversal import reads

S = TypeVar("S", bound="SequentialOp")

Build = Callable[[Steps, Sequence[IterVar]], None]
"""Writes the statements of one point, for the values of the axes."""


class SequentialOp(ComputeOp):
    """An operation that is computed by ``statements``, which store to ``results`` and read ``inputs``.

    There is an axis for each dimension of the results, whose points share what lies along it; one point computes all of
    it as a rule. ``scratch`` is memory of a point's own. ``body`` is what cost models see: a reduction of as many steps
    as a point takes, over reads of the inputs. Where it ``keeps_inside``, the statements keep every index that data
    decide inside of its tensor, and nothing is added to them.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        axis: tuple[IterVar, ...],
        body: Expr,
        results: tuple[Tensor, ...],
        scratch: tuple[Tensor, ...],
        statements: tuple[Statement, ...],
        inputs: tuple[Tensor, ...],
        keeps_inside: bool = False,
    ) -> None:
        super().__init__(names[0], axis, (body,))
        self.names = names
        self.shape, self.dtypes = results[0].op.shape, tuple(tensor.dtype for tensor in results)
        self.results, self.scratch, self.statements = results, scratch, statements
        self._inputs = inputs
        self.keeps_inside = keeps_inside

    def output_name(self, index: int) -> str:
        """Return the name of a result: each has one of its own."""
        return self.names[index]

    def renamed(self, name: str) -> SequentialOp:
        """Return the same operation under another name."""
        names = tuple(name if n == 0 else f"{name}.v{n}" for n in range(len(self.names)))
        return SequentialOp(
            names,
            self.axis,
            self.body[0],
            self.results,
            self.scratch,
            self.statements,
            self.input_tensors,
            self.keeps_inside,
        )


def sequential(
    shape: Sequence[int],
    dtypes: Sequence[str],
    inputs: Sequence[Tensor],
    build: Build,
    names: Sequence[str],
    *,
    apart: Mapping[int, int] | None = None,
    length: int = 1,
    keeps_inside: bool = False,
) -> list[Tensor]:
    """Return tensors of ``shape``, one a dtype and name, that statements compute.

    ``build`` writes them for one point: along each dimension there are as many points as ``apart`` says (one for those
    that it leaves out), and each stores an equal share of the results. It reads ``inputs``, and of the results what it
    has stored itself. ``length`` is about how many steps that takes. ``keeps_inside`` vouches for the statements'
    indices: without it those that data decide are settled as in :func:`autotune.te.compute`, and a store outside
    changes nothing.
    """
    results = results_of(names, shape, dtypes)
    op = sequential_op(
        SequentialOp, results, inputs, build, apart=apart, length=length, keeps_inside=keeps_inside
    )
    return [op.output(n) for n in range(len(dtypes))]


def results_of(names: Sequence[str], shape: Sequence[int], dtypes: Sequence[str]) -> tuple[Tensor, ...]:
    """Return the tensors that statements store to: one a name, all of one shape."""
    return tuple(
        PlaceholderOp(name, tuple(shape), dtype).output(0) for name, dtype in zip(names, dtypes, strict=True)
    )


def sequential_op(
    kind: type[S],
    results: tuple[Tensor, ...],
    inputs: Sequence[Tensor],
    build: Build,
    *,
    apart: Mapping[int, int] | None = None,
    length: int = 1,
    keeps_inside: bool = False,
) -> S:
    """Return the operation of a sequential kernel, of one of its kinds, that stores to ``results``; the other arguments
    are those of :func:`sequential`."""
    points = apart or {}
    axis = tuple(IterVar(f"p{n}", points.get(n, 1), "data") for n in range(results[0].ndim))
    steps = Steps(results)
    build(steps, axis)
    walked = reduce_axis((0, max(length, 1)), name="step")
    seen = [cast(_seen(tensor, axis, walked), "int64") for tensor in inputs if 0 not in tensor.op.shape]
    most = seen[0] if seen else cast(walked, "int64")
    for value in seen[1:]:
        most = maximum(most, value)
    op = kind(
        tuple(tensor.op.name for tensor in results),
        axis,
        te_max(most, axis=walked),
        results,
        tuple(steps.scratch_tensors),
        steps.finished(),
        tuple(inputs),
        keeps_inside,
    )
    _check(op)
    return op


def _seen(tensor: Tensor, axis: Sequence[IterVar], walked: IterVar) -> Expr:
    """Return an element as cost models see it read: along the axes that have its extents, and along the steps."""
    lead = len(axis) - tensor.ndim
    index: list[Expr | int] = []
    for dim, extent in enumerate(tensor.op.shape):
        own = axis[lead + dim] if lead + dim >= 0 else None
        if own is not None and own.extent == extent:
            index.append(own)
        else:
            index.append(walked if walked.extent <= extent and walked not in index else 0)
    return tensor(*index)


def _check(op: SequentialOp) -> None:
    """Raise TypeError where statements read or store what is not theirs."""
    known = {*op.results, *op.scratch}
    for statement in op.statements:
        for part in statement.walk():
            stored = part.stored
            if stored is not None and stored not in known:
                raise TypeError(f"{op.name}: statements store to {stored.name}, which is no result of theirs")
            for expr in part.expressions:
                for read in reads(expr):
                    if read.tensor not in known and read.tensor not in op.input_tensors:
                        raise TypeError(f"{op.name}: statements read {read.tensor.name}, which is no input")


__all__ = ["SequentialOp", "results_of", "sequential", "sequential_op"]
