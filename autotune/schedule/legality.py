"""Conditions between the stages of a schedule that hold after every step; a step that breaks one is
refused and undone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from autotune.schedule.match import difference, matched_reads, paired
from autotune.schedule.pipelining import check_ahead
from autotune.schedule.sequential import check_sequential
from autotune.te.expr import IterVar
from autotune.te.sequential import SequentialOp
from autotune.te.tensor import ComputeOp, Tensor
from autotune.te.traversal import reads

if TYPE_CHECKING:
    from autotune.schedule.schedule import Schedule
    from autotune.schedule.stage import Stage

SHOWN_PLACES = 6
"""Legal places that an error names at most."""


def check(schedule: Schedule, step: str) -> None:
    """Raise ScheduleError when ``step``, the primitive just applied, left an illegal schedule."""
    live = schedule.order()
    readers: dict[Stage, list[Stage]] | None = None
    for stage in live:
        if isinstance(stage.op, SequentialOp):
            check_sequential(step, stage)
        if stage.attach_type == "inline":
            continue
        if stage.attach_type == "scope":
            readers = effective_readers(schedule, live) if readers is None else readers
            _check_place(step, stage, live, readers)
        if stage.kinds:
            _check_kinds(step, stage)
            _check_together(step, stage)
            if stage.attach_type == "scope":
                _check_threads(step, stage)
        if stage.init_at is not None:
            _check_init(step, stage)
        for tensor, iv, *_ in stage.prefetches:
            _check_prefetch(step, stage, tensor, schedule[tensor], iv)
        for iv in stage.tensorized:
            _check_intrinsic(step, stage, iv)
    if any(stage.pipelines or stage.double_buffered for stage in live):
        for stage in live:
            check_ahead(step, stage)


def effective_readers(schedule: Schedule, live: Sequence[Stage]) -> dict[Stage, list[Stage]]:
    """Return the stages with loops that read each stage, directly or through inlined stages."""
    readers: dict[Stage, list[Stage]] = {stage: [] for stage in live}
    for reader in reversed(live):
        for tensor in reader.op.input_tensors:
            found = readers[reader] if reader.attach_type == "inline" else [reader]
            known = readers[schedule[tensor]]
            known += [r for r in found if r not in known]
    return readers


def is_inside(reader: Stage, parent: Stage, iv: IterVar) -> bool:
    """Return whether all code of ``reader`` runs inside loop ``iv`` of ``parent``."""
    at: IterVar | None = None
    stage: Stage | None = reader
    while stage is not parent:
        if stage is None or stage.attach_type != "scope":
            return False
        at, stage = stage.attach_ivar, stage.attach_stage
    leaves = parent.leaf_iter_vars
    return at is None or (at in leaves and iv in leaves and leaves.index(at) >= leaves.index(iv))


def legal_loops(schedule: Schedule, stage: Stage) -> Iterator[tuple[Stage, IterVar]]:
    """Yield every loop of another stage inside of which ``stage`` may be computed now."""
    live = schedule.order()
    readers = effective_readers(schedule, live)
    if stage.is_output or stage not in readers or not isinstance(stage.op, ComputeOp):
        return
    for parent in live:
        if parent is stage or parent.attach_type == "inline" or not schedule.reads_from(parent, stage):
            continue
        for iv in parent.leaf_iter_vars:
            inside = all(is_inside(reader, parent, iv) for reader in readers[stage])
            if inside and parent.kind_of(iv) != "vectorized" and not _read_too_late(stage, parent, iv):
                yield parent, iv


def places_text(schedule: Schedule, stage: Stage) -> str:
    """Return the legal places of a stage, for messages."""
    loops = [f"{parent.op.name} at {iv.name}" for parent, iv in legal_loops(schedule, stage)]
    more = f" and {len(loops) - SHOWN_PLACES} more" if len(loops) > SHOWN_PLACES else ""
    return ", ".join([*loops[:SHOWN_PLACES], "the root"]) + more


def _read_too_late(stage: Stage, parent: Stage, iv: IterVar) -> bool:
    """Return whether the epilogue of ``parent`` reads ``stage``, which a reduction loop would compute over and over."""
    epilogue = parent.op.epilogue if isinstance(parent.op, ComputeOp) else None
    if epilogue is None or parent.leaf_iter_vars.index(iv) < parent.first_reduction():
        return False
    return any(stage.schedule[r.tensor] is stage for r in reads(epilogue.body))


def _check_place(step: str, stage: Stage, live: Sequence[Stage], readers: dict[Stage, list[Stage]]) -> None:
    parent, iv = stage.attach_stage, stage.attach_ivar
    assert parent is not None
    assert iv is not None
    name, place = stage.op.name, f"{parent.op.name}, {iv.name}"
    if parent not in live or parent.attach_type == "inline":
        gone = "inlined" if parent in live else "no longer used"
        raise parent.refuse(
            step,
            f"{name} is computed at {place}, but {parent.op.name} would be {gone}; move {name} first",
            iv,
        )
    if iv not in parent.leaf_iter_vars:
        raise parent.refuse(
            step,
            f"{name} is computed at {place}, which would no longer be a loop; call {step} before compute_at",
        )
    if parent.kind_of(iv) == "vectorized":
        raise parent.refuse(
            step, f"{name} is computed inside {iv.name}, so it cannot run in vector lanes", iv
        )
    readers_outside = [r for r in readers[stage] if not is_inside(r, parent, iv)]
    if stage.awaits_readers and not (
        readers_outside and all(_may_follow(r, parent) for r in readers_outside)
    ):
        stage.awaits_readers = False
    outside = [r.op.name for r in readers_outside if not stage.awaits_readers]
    if outside:
        places = places_text(stage.schedule, stage)
        raise parent.refuse(
            step,
            f"{name} would be computed at {place}, but {', '.join(outside)} reads it outside of that loop; "
            f"{name} may be computed at: {places}",
            iv,
        )
    if _read_too_late(stage, parent, iv):
        raise parent.refuse(
            step,
            f"the epilogue of {parent.op.name} reads {name} after the reduction loops, and {iv.name} is inside of "
            f"them; {name} may be computed at: {places_text(stage.schedule, stage)}",
            iv,
        )


def _may_follow(reader: Stage, parent: Stage) -> bool:
    """Return whether a reader has no place yet, and may be computed inside of a stage as well."""
    return (
        reader.attach_type == "root" and not reader.is_output and reader.schedule.reads_from(parent, reader)
    )


def _check_kinds(step: str, stage: Stage) -> None:
    """Check that a parallel loop is the outermost one that repeats, in a stage at the root."""
    for number, iv in enumerate(stage.leaf_iter_vars):
        if stage.kinds.get(iv) != "parallel":
            continue
        if stage.attach_type == "scope":
            assert stage.attach_stage is not None
            raise stage.refuse(
                step,
                f"{iv.name} is parallel, and {stage.op.name} is computed inside {stage.attach_stage.op.name}; "
                f"only loops of stages at the root are shared among workers",
                iv,
            )
        around = [v.name for v in stage.leaf_iter_vars[:number] if v.extent > 1]
        if around:
            raise stage.refuse(
                step,
                f"{iv.name} is parallel and must stay the outermost loop, but {', '.join(around)} is around it; "
                f"reorder it outwards or fuse them first",
                iv,
            )
        if stage.init_at is not None and stage.leaf_iter_vars.index(stage.init_at) <= number:
            raise stage.refuse(
                step,
                f"start values are stored before {stage.init_at.name}, outside of parallel {iv.name}",
                iv,
            )


def _check_together(step: str, stage: Stage) -> None:
    """Check that threads which reduce together do so for all elements that the loops inside of the
    reduction compute."""
    together = stage.reduced_together()
    for iv in stage.leaf_iter_vars[stage.first_reduction() :] if together else ():
        if iv.kind == "data" and stage.kind_of(iv).startswith(("blockIdx", "threadIdx", "vthread")):
            raise stage.refuse(
                step,
                f"{iv.name} is {stage.kind_of(iv)}, inside of a reduction by the threads of {together[0].name}; "
                f"reorder it outwards first",
                iv,
            )


def _check_intrinsic(step: str, stage: Stage, iv: IterVar) -> None:
    intrin = stage.tensorized[iv]
    reason = difference(stage, iv)
    if reason:
        raise stage.refuse(step, f"the loops would no longer be {intrin.name}: {reason}", iv)
    for loop, axis in paired(stage, iv).items():
        kind = intrin.kinds.get(axis.name, "serial")
        if stage.kind_of(loop) != kind:
            raise stage.refuse(
                step,
                f"{loop.name} is part of {intrin.name}, which declares it {kind}, not {stage.kind_of(loop)}",
                loop,
            )
    for operand, read in matched_reads(stage, iv).items():
        if stage.schedule[read.tensor].attach_type == "inline":
            raise stage.refuse(
                step,
                f"{intrin.name} reads {operand.name} from memory, here {read.tensor.name}, which is inlined; "
                f"store it (compute_at or compute_root)",
                iv,
            )


def _check_prefetch(step: str, stage: Stage, tensor: Tensor, source: Stage, iv: IterVar) -> None:
    if source.attach_type == "root" and tensor.shape == source.op.shape:
        return
    places = {"inline": "inlined", "scope": "computed inside a loop"}
    where = places.get(source.attach_type, "stored in another layout")
    raise stage.refuse(
        step, f"{stage.op.name} prefetches {source.op.name} at {iv.name}, but {source.op.name} is {where}", iv
    )


def _check_threads(step: str, stage: Stage) -> None:
    """Check memory inside of thread axes: a thread computes its own part, and only block-wide memory
    collects the parts."""
    around: dict[str, str] = {}
    inner: Stage = stage
    while inner.attach_stage is not None and inner.attach_ivar is not None:
        parent = inner.attach_stage
        if inner.attach_ivar in parent.leaf_iter_vars:
            at, first = parent.leaf_iter_vars.index(inner.attach_ivar), parent.first_reduction()
            # Threads that reduce together start before the first loop of the reduction.
            together = parent.reduced_together() if at >= first else []
            for iv in (*parent.leaf_iter_vars[: at + 1], *together):
                around.setdefault(parent.kind_of(iv), f"{parent.op.name}, {iv.name}")
        inner = parent
    for iv, kind in stage.kinds.items():
        if kind not in around or kind.startswith("vthread") or not kind.startswith(("blockIdx", "threadIdx")):
            continue
        if stage.scope in ("shared", "warp") and kind.startswith("threadIdx"):
            continue
        raise stage.refuse(
            step,
            f"{stage.op.name} is computed inside {around[kind]}, which is {kind} already: each would compute only its "
            f"own part of {iv.name}; leave the loop serial"
            + (", or set the scope to shared" if kind.startswith("threadIdx") else ""),
            iv,
        )


def _check_init(step: str, stage: Stage) -> None:
    iv = stage.init_at
    assert iv is not None
    at = stage.leaf_iter_vars.index(iv)
    for loop in stage.reduced_together():
        raise stage.refuse(
            step,
            f"the threads of {loop.name} each have start values of their own, which are not stored before "
            f"{iv.name}; leave {loop.name} serial, or the start values where they are",
            loop,
        )
    if at > stage.first_reduction():
        raise stage.refuse(
            step,
            f"start values are stored before {iv.name}, which must stay outside of the reduction loops",
            iv,
        )


__all__ = ["check", "effective_readers", "is_inside", "legal_loops", "places_text"]
