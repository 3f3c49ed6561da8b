"""Artifacts of one model for several targets: each has code of its own, and loading takes the one that fits best.

The file is an archive as :mod:`autotune.runtime.artifact` describes it, of the members of all variants: constants that
are equal are there once. Only what the variant that is taken consists of is read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from autotune.errors import ArtifactError, UsageError
from autotune.hardware import architecture, device_name
from autotune.runtime.artifact import packed, write_archive
from autotune.runtime.contents import ContentsWriter
from autotune.runtime.image import ModuleImage
from autotune.runtime.manifest import Manifest, decode
from autotune.suggest import listing
from autotune.target import Target

VARIANTS_FORMAT = "autotune-variants"
VARIANTS_VERSION = 1


@dataclass(frozen=True)
class VariantsManifest:
    """The same model for several targets, in no order that matters."""

    format: str
    version: int
    name: str
    variants: tuple[Manifest, ...]

    def to_json(self) -> str:
        """Return the canonical JSON, parsed back by :meth:`from_json`."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> VariantsManifest:
        """Check what was parsed; raises ArtifactError that says where it is wrong."""
        if raw.get("version") != VARIANTS_VERSION:
            raise ArtifactError(
                f"format version {raw.get('version')!r} of several targets; this release reads version "
                f"{VARIANTS_VERSION}: compile the model again"
            )
        found = decode(VariantsManifest, raw, "manifest")
        _check([each.target for each in found.variants])
        return found


def save(images: Sequence[ModuleImage], path: str | os.PathLike[str]) -> None:
    """Write images of one model to a file, all or nothing; raises ArtifactError, also for targets of the same name."""
    _check([image.target for image in images])
    signatures = {(image.inputs, image.outputs) for image in images}
    if len(signatures) > 1:
        raise ArtifactError("images with different inputs or outputs are not one model for several targets")
    contents = ContentsWriter()
    variants = tuple(packed(image, contents) for image in images)
    manifest = VariantsManifest(VARIANTS_FORMAT, VARIANTS_VERSION, images[0].name, variants)
    write_archive(path, manifest.to_json(), contents.members)


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
    from autotune.runtime.device_module import device_for

    return "" if device_for(target) else "there is no such device here"


def _capability(target: Target) -> tuple[int, int, int]:
    size = target.vector_bits, len(target.features)
    if not target.group_items:
        return 1, *size
    from autotune.runtime.device_module import device_for

    info = device_for(target)
    is_gpu = info is not None and info.target is not None and "gpu" in info.target.features
    return (2 if is_gpu else 0), *size


def _check(targets: Sequence[Target]) -> None:
    """Check that each target can be told from the others, and that there is one."""
    labels = [label(target) for target in targets]
    if not labels or len({*labels}) < len(labels):
        raise ArtifactError(
            f"an artifact of several targets has each once, not {', '.join(labels) or 'none'}"
        )


__all__ = ["VARIANTS_FORMAT", "VARIANTS_VERSION", "VariantsManifest", "choose", "label", "save", "why_not"]
