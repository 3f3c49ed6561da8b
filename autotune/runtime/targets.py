"""Targets of one compiled model: their names, and which of them this machine can run best."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.errors import ArtifactError, UsageError
from autotune.hardware import architecture, device_name
from autotune.suggest import listing
from autotune.target import Target


def label(target: Target) -> str:
    """Return the name of a target beside others of one artifact.

    >>> label(Target.parse("x86-64-v3")), label(Target.parse("cuda:sm_90"))
    ('x86-64-v3', 'cuda:sm_90')
    """
    return {"nvptx64": f"cuda:{target.cpu}", "opencl": "opencl"}.get(target.arch, target.cpu)


def choose(targets: Sequence[Target], wanted: str | None = None) -> int:
    """Return the number of the most capable target that this machine can run, or of the one that is
    ``wanted`` by its label.

    GPUs come first, then the processor with the widest vectors and the most instruction sets, then other devices.
    Raises ArtifactError with all targets where none fits, UsageError for one that is not among them.
    """
    labels = [label(target) for target in targets]
    if wanted is not None and wanted not in labels:
        raise UsageError(f"the artifact has no target {wanted!r}; it has {listing(wanted, labels)}")
    numbers = range(len(targets)) if wanted is None else [labels.index(wanted)]
    fitting = [number for number in numbers if not why_not(targets[number])]
    if fitting:
        return max(fitting, key=lambda number: _capability(targets[number]))
    what = "cannot run its target" if len(numbers) == 1 else f"can run none of its {len(numbers)} targets"
    raise ArtifactError(
        f"this machine ({architecture()}, {device_name()}) {what}:"
        + "".join(f"\n  {labels[number]}: {why_not(targets[number])}" for number in numbers)
        + "\n  compile the model for this machine"
    )


def why_not(target: Target) -> str:
    """Return the reason why this machine cannot run code for a target; empty where it can."""
    if not target.group_items:
        missing = target.lacking_here()
        return f"there is no {', '.join(missing)} here" if missing else ""
    from autotune.runtime.device_code import device_for

    return "" if device_for(target) else "there is no such device here"


def _capability(target: Target) -> tuple[int, int, int]:
    size = target.vector_bits, len(target.features)
    if not target.group_items:
        return 1, *size
    from autotune.runtime.device_code import device_for

    info = device_for(target)
    is_gpu = info is not None and info.target is not None and "gpu" in info.target.features
    return (2 if is_gpu else 0), *size


__all__ = ["choose", "label", "why_not"]
