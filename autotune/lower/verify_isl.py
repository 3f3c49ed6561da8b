"""An independent proof, by integer sets, that a lowered program respects every flow dependence of its schedule.

Nothing of bound inference, simplification or remainders is trusted: the loops are taken as they will run, the last
write before each read is computed exactly (Feautrier, 1991; isl's implementation by Verdoolaege, 2010), and compared
with what the tensor expressions say must be read. What stores say of themselves
(:class:`autotune.lower.ir.StoreOrigin`) is not trusted either: their values are compared with the expressions. For
affine programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from autotune.distribution import install
from autotune.errors import LoweringError, MissingExtraError
from autotune.lower.accumulations import Accumulations
from autotune.lower.cells import Cells
from autotune.lower.concurrency import Concurrency, check_overwriting
from autotune.lower.ir import Buffer, LoopKernel, LoopProgram, kernel_of
from autotune.lower.overwriting import overwriting
from autotune.lower.polyhedra import Extraction, NotAffine, StoreInstances, extract
from autotune.lower.program import lower_schedule
from autotune.lower.relations import Reader, Relations
from autotune.schedule.pipelining import reductions_ahead
from autotune.schedule.schedule import Schedule
from autotune.te.depth import walks_deep
from autotune.te.tensor import Tensor

MAX_OPERATIONS = 6_000_000
"""Steps of isl that a proof may take, some seconds: the same programs are judged on every machine."""

Status = Literal["proven", "not affine", "too large", "threads", "ahead"]


@dataclass(frozen=True)
class Verified:
    """The outcome of a proof that found no error.

    "proven": all that :func:`verify` lists. "not affine": all but what ``reason`` names, reads at an index that is no
    affine function of the loops and values whose integers were rearranged; nothing, where a branch or a store is not
    affine. "too large": isl did not finish within MAX_OPERATIONS steps.
    "threads": threads wait for one another at barriers, which only the interpreter judges. "ahead": so are reductions
    of which an element may be started for a later iteration before it is read in this one. The counts are 0 where
    nothing was proved.
    """

    status: Status
    reason: str = ""
    statements: int = 0
    dependences: int = 0

    def text(self) -> str:
        """Return the verdict in one line."""
        counts = f"{self.statements} statements, {self.dependences} dependences" if self.statements else ""
        detail = "; ".join(part for part in (counts, self.reason) if part)
        return f"{self.status}: {detail}" if detail else self.status


def verify(
    schedule: Schedule,
    args: Sequence[Tensor],
    *,
    constants: frozenset[str] = frozenset(),
    strides: Mapping[str, tuple[int, ...]] | None = None,
) -> Verified:
    """Prove that the loops of a schedule compute what its stages say, in an order that respects every dependence.

    The loops are those that code generators get, partial sums included. Every store computes what its expression says,
    every access is inside of its buffer, and each read finds the last value stored there before, of the element that
    the expression names. A reduction that is read was updated once for each point of its domain, and for nothing else,
    since its start value, each time from where the step before left it. Every output element is stored, no input is.
    Iterations of a parallel, vectorized or thread loop neither read nor store what others of them store (other than
    lanes of a folded reduction, and elements that are computed twice). Nothing is read of an input after an output that
    may be the same memory was stored there: :mod:`autotune.lower.overwriting` decides which may, here it is checked on
    the same loops. An intrinsic is taken to do what the loops in its place do. Raises LoweringError with a
    counterexample, MissingExtraError without islpy.
    """
    isl = load_isl()
    program = lower_schedule(schedule, args, constants=constants, strides=strides, with_origins=True)
    return prove(isl, schedule, program, constants=constants)


def load_isl() -> Any:
    """Return the module islpy; raises MissingExtraError naming the extra."""
    try:
        import islpy
    except ImportError as error:
        raise MissingExtraError(f"verifying schedules needs islpy: {install('verify')}") from error
    return islpy


@walks_deep
def prove(
    isl: Any,
    schedule: Schedule,
    program: LoopProgram,
    *,
    constants: frozenset[str] = frozenset(),
    limit: int = MAX_OPERATIONS,
) -> Verified:
    """Return the proof for a program that was lowered with origins, in at most ``limit`` steps; see :func:`verify`."""
    _check_kernels(program, constants)
    cells = Cells(schedule, program)
    try:
        extraction = extract(program)
    except NotAffine as error:
        return Verified("not affine", str(error))
    if extraction.barriers:
        return Verified(
            "threads", "threads that wait at barriers are run by the interpreter, not judged here"
        )
    ahead = ", ".join(stage.op.name for stage in reductions_ahead(schedule))
    if ahead:
        reason = (
            f"reductions computed ahead of their readers are run by the interpreter, not judged here: {ahead}"
        )
        return Verified("ahead", reason)
    context = isl.Context()
    context.set_max_operations(limit)
    try:
        return _Proof(isl, context, cells, extraction).run(overwriting(program))
    except isl.Error:
        if not _exhausted(isl, context):
            raise
        count = len(extraction.instances)
        return Verified("too large", f"{count} stores, not judged within {limit} steps of isl")


def _check_kernels(program: LoopProgram, constants: frozenset[str]) -> None:
    """Check that kernels say what they touch and run all their tiles, and that those run while compiling
    need no others."""
    late = {buffer for kernel in program.kernels if not kernel.hoisted for buffer in kernel.writes}
    late |= {buffer for buffer in program.arguments if buffer.name not in constants}
    for kernel in program.kernels:
        true = kernel_of(kernel.name, kernel.body)
        if kernel.tiles != true.tiles:
            raise _wrong_kernel(kernel, f"runs {kernel.tiles} tiles, its loop has {true.tiles}")
        if set(kernel.writes) != set(true.writes) or set(kernel.buffers) != set(true.buffers):
            raise _wrong_kernel(kernel, "touches other buffers than it says")
        for buffer in kernel.buffers:
            if kernel.hoisted and buffer in late:
                raise _wrong_kernel(kernel, f"runs before the others, but uses {buffer.name}")


def _wrong_kernel(kernel: LoopKernel, problem: str) -> LoweringError:
    return LoweringError(f"verify: kernel {kernel.name} {problem}")


def _exhausted(isl: Any, context: Any) -> bool:
    """Return whether the steps of a context are used up: then every operation fails, with whatever message."""
    try:
        isl.Set("{ [i] : 0 <= i < 3 }", context=context)
    except isl.Error:
        return True
    return False


class _Proof:
    """The checks, one after another."""

    def __init__(self, isl: Any, context: Any, cells: Cells, extraction: Extraction) -> None:
        self.isl = isl
        self.context = context
        self.cells = cells
        self.extraction = extraction
        self.r = Relations(isl, context, cells, extraction)

    def run(self, overwriting: Sequence[tuple[Buffer, Buffer]] = ()) -> Verified:
        """Return all checks, of ``overwriting`` pairs of an output and an input too.

        Raises LoweringError at the first that fails.
        """
        self._check_inputs()
        for each in self.r.accesses:
            self._check_bounds(each)
        sources = self._sources()
        self._check_elements(sources)
        Accumulations(self.r, sources).check()
        Concurrency(self.r).check(sources)
        for output, source in overwriting:
            check_overwriting(self.r, output, source)
        status: Status = "not affine" if self.r.skipped else "proven"
        reason = "; ".join(dict.fromkeys(self.r.skipped))
        return Verified(status, reason, len(self.r.instances), len(self.r.maps(sources)))

    def _check_inputs(self) -> None:
        for instance in self.r.instances:
            if instance.write.buffer in self.cells.inputs:
                raise LoweringError(f"verify: the input {instance.write.buffer.name} is stored to")

    def _check_bounds(self, each: StoreInstances | Reader) -> None:
        """Check that each index is inside of its buffer."""
        access = each.write if isinstance(each, StoreInstances) else each.access
        pairs = zip(access.index, access.buffer.shape, strict=True)
        outside = " or ".join(f"{index} < 0 or {index} >= {extent}" for index, extent in pairs)
        if not outside:
            return
        loops = ", ".join(name for name, _ in each.loops)
        text = f"{{ {each.name}[{loops}] : {each.at.domain} and ({outside}) }}"
        found = self.isl.Set(text, context=self.context)
        if found.is_empty():
            return
        buffer = access.buffer
        if not access.test.exact:
            self.r.skipped.append(f"a read of {buffer.name} that a condition on values keeps inside of it")
            return
        verb = "stores outside of" if isinstance(each, StoreInstances) else "reads outside of"
        raise self.r.wrong(f"a statement {verb} {buffer.name}, which is {list(buffer.shape)}", found)

    def _sources(self) -> Any:
        """Return the reader -> the statement that wrote what it reads, for all but what is meant to come
        from an input."""
        stored = [
            reader
            for reader in (*self.r.readers, *self.r.ends)
            if reader.cell is not None or reader.access.buffer not in self.cells.inputs
        ]
        doubtful = [reader for reader in stored if reader.cell is None and not reader.access.test.exact]
        for reader in doubtful:
            if not self._flow([reader]).get_must_no_source().is_empty():
                name = reader.access.buffer.name
                self.r.skipped.append(f"a read of {name} that only a condition on values leaves out")
        flow = self._flow([reader for reader in stored if reader not in doubtful])
        missing = flow.get_must_no_source()
        if not missing.is_empty():
            raise self.r.wrong("a value is read that nothing stored before", missing)
        return flow.get_must_dependence().reverse()

    def _flow(self, readers: Sequence[Reader]) -> Any:
        return self.r.flow(self.r.touches(readers), self.r.touches(self.r.instances))

    def _check_elements(self, sources: Any) -> None:
        """Check that each read finds the element that the expression names, an accumulator that of its own element."""
        needed = self.r.cells_of([r for r in (*self.r.readers, *self.r.ends) if r.cell is not None])
        found = sources.intersect_domain(needed.domain()).apply_range(self.r.cells_of(self.r.instances))
        if not found.is_subset(needed):
            raise self.r.wrong("another element is read than the expression names", found.subtract(needed))


__all__ = ["MAX_OPERATIONS", "Verified", "load_isl", "prove", "verify"]
