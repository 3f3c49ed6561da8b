"""The contents of an artifact, as text and as JSON: targets, devices, code and constants, and which target
runs here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from autotune.errors import ArtifactError
from autotune.runtime.artifacts.artifact import ArtifactFile, CaseManifest, ModelManifest, examine
from autotune.runtime.artifacts.manifest import Manifest
from autotune.runtime.compiled import SizedTensor
from autotune.runtime.image import largest_input
from autotune.runtime.targets import choose, label, why_not
from autotune.suggest import counted
from autotune.tuning.measure.error_budget import NOTED, noted_line
from autotune.tuning.report.units import size


def artifact_json(path: str, held: ArtifactFile) -> dict[str, Any]:
    """Return the facts; every member was found to be whole."""
    manifest = held.manifest
    last = manifest.cases[-1]
    facts: dict[str, Any] = {
        "artifact": path,
        "bytes": held.nbytes,
        "name": manifest.name,
        "format": manifest.format,
        "version": manifest.version,
        "inputs": [_spec_json(tensor) for tensor in manifest.inputs],
        "outputs": [
            {"name": spec.name, "shape": _extents(output.axes), "dtype": spec.dtype}
            for spec, output in zip(last.program.outputs, last.outputs, strict=True)
        ],
        "images": [
            _image_json(manifest.images[number], _shared(manifest, number)) | _case_json(case)
            for case in manifest.cases
            for number in case.program.images
        ],
        "taken_here": _taken(manifest),
    }
    if devices := [*dict.fromkeys(name for c in manifest.cases for name in c.program.devices if name)]:
        facts["devices"] = devices
    if manifest.least:
        facts["sizes"] = [_sizes(case) for case in manifest.cases]
        facts["least"] = {each.symbol: each.size for each in manifest.least}
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
    if "sizes" in facts:
        least = ", ".join(f"{symbol} from {number}" for symbol, number in facts["least"].items())
        distinct = len({tuple(sizes.items()) for sizes in facts["sizes"]})
        lines.append(f"for requests of {counted(distinct, 'bucket')} of sizes, {least}")
    for image in images:
        what = ", ".join(f"{s} = {n}" for s, n in image["sizes"].items())
        what += ": " if what else ""
        runs = f"cannot run here: {image['why_not_here']}" if image["why_not_here"] else "runs here"
        if image["target"] == facts["taken_here"]:
            runs = "taken here"
        threads = f", {counted(image['threads'], 'thread')}" if image["threads"] else ""
        shared = f", {size(image['shared_bytes'])} of them shared" if image["shared_bytes"] else ""
        lines.append(
            f"{what}{image['target']}{threads}: "
            f"{image['schedules']}; "
            f"{size(image['code_bytes'])} of code, {size(image['constant_bytes'])} of constants{shared}, "
            f"{size(image['arena_bytes'])} between dispatches{_range_text(image['growth'])}; {runs}"
        )
        lines += [noted_line(image["accuracy"])] if image["accuracy"] else []
    return [*lines, "every member is what its hash says"]


def examined(path: str) -> ArtifactFile:
    """Return the contents of a file; raises ArtifactError where it is no artifact or damaged, and where
    there is no file."""
    if not Path(path).is_file():
        raise ArtifactError(f"no such file: {path}")
    return examine(path)


def _schedules(sources: Iterable[str]) -> str:
    """Return how many dispatches are tuned; an artifact of another version may have states that this one lacks."""
    from autotune.database.evidence import State, tally

    states = {state.value: state for state in State}
    every = list(sources)
    unknown = sum(source not in states for source in every)
    known = tally(states[source] for source in every if source in states)
    return known + (f"; {unknown} in a state of another version" if unknown else "")


def _image_json(image: Manifest, shared: int) -> dict[str, Any]:
    return {
        "target": label(image.target),
        "machine": image.target.name,
        "features": list(image.target.features),
        "threads": 0 if image.target.group_items else image.target.threads,
        "dispatches": len(image.dispatches),
        "schedules": _schedules(dispatch.schedule_source for dispatch in image.dispatches),
        "states": [
            {"name": d.name, "workload_key": d.workload_key, "state": d.schedule_source}
            for d in image.dispatches
        ],
        "code_bytes": sum(blob.nbytes for blob in image.objects),
        "constant_bytes": sum({each.blob.path: each.blob.nbytes for each in image.constants}.values()),
        "shared_bytes": shared,
        "arena_bytes": image.arena_bytes,
        "growth": float(image.metadata.get("growth", 1)),
        "accuracy": json.loads(image.metadata.get(NOTED, "null")),
        "why_not_here": why_not(image.target),
    }


def _case_json(case: CaseManifest) -> dict[str, Any]:
    return {"sizes": _sizes(case)}


def _sizes(case: CaseManifest) -> dict[str, int]:
    return {each.symbol: each.size for each in case.sizes}


def _shared(manifest: ModelManifest, number: int) -> int:
    """Return bytes of constants that other images name too."""
    own = {each.blob.path: each.blob.nbytes for each in manifest.images[number].constants}
    rest = [image for other, image in enumerate(manifest.images) if other != number]
    others = {each.blob.path for image in rest for each in image.constants}
    return sum(nbytes for path, nbytes in own.items() if path in others)


def _taken(manifest: ModelManifest) -> str | None:
    """Return the target that loading takes here; None where there is nothing to choose, or nothing fits."""
    targets = [target for target in dict.fromkeys(map(manifest.target, manifest.cases)) if target]
    if len(targets) < 2:
        return None
    try:
        return label(targets[choose(targets)])
    except ArtifactError:
        return None


def _spec_json(tensor: SizedTensor) -> dict[str, Any]:
    return {"name": tensor.name, "shape": _extents(tensor.axes), "dtype": tensor.dtype}


def _extents(axes: Sequence[str]) -> list[int | str]:
    return [int(each) if each.isdecimal() else each for each in axes]


def _range_text(growth: float) -> str:
    """Return the magnitudes that the algorithms used are for, where there is a limit."""
    return f", for magnitudes up to {largest_input(growth):.0e}" if growth > 1 else ""


def _text(spec: dict[str, Any]) -> str:
    return f"{spec['name']}: {spec['dtype']}[{', '.join(map(str, spec['shape']))}]"


__all__ = ["artifact_json", "artifact_lines", "examined"]
