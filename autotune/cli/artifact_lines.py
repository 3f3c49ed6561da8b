"""The contents of an artifact, as text and as JSON: targets, devices, code and constants, and which target
runs here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotune.errors import ArtifactError
from autotune.runtime.artifact_file import ArtifactFile
from autotune.runtime.image import TensorSpec, largest_input
from autotune.runtime.manifest import Manifest
from autotune.runtime.program_artifact import ProgramManifest
from autotune.runtime.sized_artifact import SizedManifest
from autotune.runtime.sized_model import SizedTensor
from autotune.runtime.variants import VariantsManifest, choose, label, why_not
from autotune.suggest import counted
from autotune.tuning.units import size


def artifact_json(path: str, held: ArtifactFile) -> dict[str, Any]:
    """Return the facts; every member was found to be whole."""
    manifest = held.manifest
    sized = isinstance(manifest, SizedManifest)
    signature: Any = held.images[0] if sized or isinstance(manifest, VariantsManifest) else manifest
    inputs = manifest.inputs if isinstance(manifest, SizedManifest) else signature.inputs
    facts = {
        "artifact": path,
        "bytes": held.nbytes,
        "name": manifest.name,
        "format": manifest.format,
        "version": manifest.version,
        "inputs": [_spec_json(spec) for spec in inputs],
        "outputs": [] if sized else [_spec_json(spec) for spec in signature.outputs],
        "images": [_image_json(image, _shared(held, image)) for image in held.images],
        "taken_here": _taken(held),
    }
    if isinstance(manifest, ProgramManifest):
        facts["devices"] = list(dict.fromkeys(step.device for step in manifest.steps))
    if isinstance(manifest, SizedManifest):
        facts["sizes"] = [{each.symbol: each.size for each in bucket.sizes} for bucket in manifest.buckets]
        facts["least"] = {each.symbol: each.size for each in manifest.least}
        facts["outputs"] = [
            {**_spec_json(spec), "shape": list(output.axes)}
            for spec, output in zip(signature.outputs, manifest.buckets[-1].outputs, strict=True)
        ]
    return facts


def artifact_lines(path: str, held: ArtifactFile) -> list[str]:
    """Return the same as text."""
    facts = artifact_json(path, held)
    images: list[dict[str, Any]] = facts["images"]
    lines = [f"{path}: {facts['name']}, {size(held.nbytes)}, {facts['format']} version {facts['version']}"]
    for role in ("inputs", "outputs"):
        lines += [f"  {role[:-1]} {_text(spec)}" for spec in facts[role]]
    if "devices" in facts:
        lines.append(f"a program for {', '.join(facts['devices'])}, of {counted(len(images), 'part')}")
    labels = [""] * len(images)
    if "sizes" in facts:
        least = ", ".join(f"{symbol} from {number}" for symbol, number in facts["least"].items())
        lines.append(f"for requests of {counted(len(images), 'bucket')} of sizes, {least}")
        labels = [", ".join(f"{s} = {n}" for s, n in sizes.items()) + ": " for sizes in facts["sizes"]]
    for image, what in zip(images, labels, strict=True):
        runs = f"cannot run here: {image['why_not_here']}" if image["why_not_here"] else "runs here"
        if image["target"] == facts["taken_here"] and len(images) > 1:
            runs = "taken here"
        threads = f", {counted(image['threads'], 'thread')}" if image["threads"] else ""
        shared = f", {size(image['shared_bytes'])} of them shared" if image["shared_bytes"] else ""
        lines.append(
            f"{what}{image['target']}{threads}: "
            f"{counted(image['dispatches'], 'dispatch')} ({image['schedules']}), "
            f"{size(image['code_bytes'])} of code, {size(image['constant_bytes'])} of constants{shared}, "
            f"{size(image['arena_bytes'])} between dispatches{_range_text(image['growth'])}; {runs}"
        )
    return [*lines, "every member is what its hash says"]


def examined(path: str) -> ArtifactFile:
    """Return the contents of a file; raises ArtifactError where it is no artifact or damaged, and where
    there is no file."""
    from autotune.runtime.artifact_file import examine

    if not Path(path).is_file():
        raise ArtifactError(f"no such file: {path}")
    return examine(path)


def _image_json(image: Manifest, shared: int) -> dict[str, Any]:
    sources = Counter(dispatch.schedule_source for dispatch in image.dispatches)
    return {
        "target": label(image.target),
        "machine": image.target.name,
        "features": list(image.target.features),
        "threads": 0 if image.target.group_items else image.target.threads,
        "dispatches": len(image.dispatches),
        "schedules": ", ".join(f"{count} {source}" for source, count in sources.most_common()),
        "code_bytes": sum(blob.nbytes for blob in image.objects),
        "constant_bytes": sum({each.blob.path: each.blob.nbytes for each in image.constants}.values()),
        "shared_bytes": shared,
        "arena_bytes": image.arena_bytes,
        "growth": float(image.metadata.get("growth", 1)),
        "why_not_here": why_not(image.target),
    }


def _shared(held: ArtifactFile, image: Manifest) -> int:
    """Return bytes of constants that other images name too."""
    own = {each.blob.path: each.blob.nbytes for each in image.constants}
    others = {e.blob.path for other in held.images if other is not image for e in other.constants}
    return sum(nbytes for path, nbytes in own.items() if path in others)


def _taken(held: ArtifactFile) -> str | None:
    """Return the target that loading takes here; None where there is nothing to choose, or nothing fits."""
    if not isinstance(held.manifest, VariantsManifest):
        return None
    targets: Sequence[Any] = [image.target for image in held.images]
    try:
        return label(targets[choose(targets)])
    except ArtifactError:
        return None


def _spec_json(spec: TensorSpec | SizedTensor) -> dict[str, Any]:
    if isinstance(spec, SizedTensor):
        return {"name": spec.name, "shape": list(spec.axes), "dtype": spec.dtype}
    return {"name": spec.name, "shape": list(spec.shape), "dtype": spec.dtype}


def _range_text(growth: float) -> str:
    """Return the magnitudes that the algorithms used are for, where there is a limit."""
    return f", for magnitudes up to {largest_input(growth):.0e}" if growth > 1 else ""


def _text(spec: dict[str, Any]) -> str:
    return f"{spec['name']}: {spec['dtype']}[{', '.join(map(str, spec['shape']))}]"


__all__ = ["artifact_json", "artifact_lines", "examined"]
