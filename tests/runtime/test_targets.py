"""Artifacts of one model for several targets: what is taken where, what they share, what is refused."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import autotune
from autotune.errors import ArtifactError, UsageError
from autotune.hardware import instruction_sets
from autotune.runtime import targets
from autotune.runtime.artifacts import artifact
from autotune.runtime.artifacts.archive import read_members
from autotune.runtime.artifacts.artifact import examine
from autotune.runtime.compiled import Compiled
from autotune.runtime.image import ModuleImage
from autotune.target import Target
from tests.runtime.kernels import binding, image, spec
from tests.runtime.test_artifact import rewrite

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="its levels are those of x86-64")

LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
SHARED = np.arange(5000, dtype=np.int64)


def save(images: Sequence[ModuleImage], path: Path) -> None:
    artifact.save(Compiled.joined([Compiled.of(image) for image in images]), path)


def variant(level: str) -> ModuleImage:
    """y = 4 constants + 1; the constants say which level it is for."""
    own = np.full(4, LEVELS.index(level), np.int64)
    made = image(
        [("increment", binding("constant", 4), binding("output", 4), 4)],
        inputs=(spec("x", 2),),
        outputs=(spec("y", 4),),
        constants=(own, SHARED.copy()),
    )
    return replace(made, target=Target.parse(level))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save([variant(level) for level in ("x86-64-v3", "x86-64", "x86-64-v2")], tmp_path / "several.atm")
    return tmp_path / "several.atm"


def level_of(path: Path, **options: str) -> str:
    with autotune.load(path, 1, **options) as module:
        (y,) = module(np.zeros(2, np.int64))
        return LEVELS[int(y[0]) - 1]


@pytest.mark.parametrize("level", ["x86-64", "x86-64-v2", "x86-64-v3"])
def test_the_best_that_runs_here_is_taken(path: Path, monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    if not {*Target.parse(level).features} <= instruction_sets():
        pytest.skip(f"this machine is no {level}")
    monkeypatch.setenv("AUTOTUNE_HOST", level)
    assert level_of(path) == level


def test_any_of_them_may_be_asked_for(path: Path) -> None:
    assert level_of(path, target="x86-64") == "x86-64"
    with pytest.raises(UsageError) as refused:
        autotune.load(path, target="x86-64-v9")
    assert str(refused.value).startswith(
        "the artifact has no target 'x86-64-v9'; it has x86-64-v3, x86-64, x86-64-v2"
    )


def test_where_none_runs_all_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save([variant("x86-64-v3"), variant("x86-64-v2")], tmp_path / "m.atm")
    monkeypatch.setenv("AUTOTUNE_HOST", "x86-64")
    with pytest.raises(ArtifactError) as refused:
        autotune.load(tmp_path / "m.atm")
    first, *rest = str(refused.value).partition("m.atm: ")[2].splitlines()
    assert first.startswith("this machine (x86_64, ")
    assert first.endswith(") can run none of its 2 targets:")
    assert rest == [
        "  x86-64-v3: there is no avx, avx2, f16c, fma, sse4.2 here",
        "  x86-64-v2: there is no sse4.2 here",
        "  compile the model for this machine",
    ]


def test_devices_that_are_not_here_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.runtime.device_code.devices", lambda *drivers: [])
    known = [Target.parse("cuda:sm_90"), Target.parse("x86-64"), Target.parse("opencl-generic")]
    assert targets.choose(known) == 1
    with pytest.raises(
        ArtifactError, match=r"cannot run its target:\n  cuda:sm_90: there is no such device here"
    ):
        targets.choose(known, "cuda:sm_90")


def test_choosing_needs_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ModuleNotFoundError("llvmlite")

    monkeypatch.setattr("autotune.target._own_instruction_set", missing)
    monkeypatch.setenv("AUTOTUNE_HOST", "x86-64")
    assert (
        targets.choose([Target.parse("x86-64-v2"), Target.parse("cuda:sm_90"), Target.parse("x86-64")]) == 2
    )


def test_equal_constants_are_there_once(path: Path) -> None:
    with path.open("rb") as file:
        members = read_members(file)
    assert sorted(member.nbytes for name, member in members.items() if name.startswith("constants")) == [
        *[32] * 3,
        SHARED.nbytes,
    ]
    held = examine(path)
    assert [targets.label(each.target) for each in held.manifest.images] == [
        "x86-64-v3",
        "x86-64",
        "x86-64-v2",
    ]
    assert len({each.constants[1].blob.path for each in held.manifest.images}) == 1


def test_only_what_is_taken_is_read(path: Path) -> None:
    """Code of another target that is damaged is found when it would be used, and by who examines the file."""
    named = {targets.label(each.target): each.objects[0].path for each in examine(path).manifest.images}
    if len({*named.values()}) < len(named):
        damaged = examine(path).manifest.images[2].constants[0].blob.path
    else:
        damaged = named["x86-64-v2"]
    with path.open("rb") as file:
        at = read_members(file)[damaged].start
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    assert level_of(path, target="x86-64") == "x86-64"
    for use in (lambda: autotune.load(path, target="x86-64-v2"), lambda: examine(path)):
        with pytest.raises(ArtifactError, match=f"{damaged} is damaged"):
            use()


def refused(images: Sequence[ModuleImage], path: Path) -> str:
    with pytest.raises(ArtifactError) as caught:
        save(images, path)
    assert not path.exists()
    return str(caught.value)


def test_what_is_no_set_of_variants_is_refused(tmp_path: Path) -> None:
    one, other = variant("x86-64"), variant("x86-64-v2")
    path = tmp_path / "no.atm"
    assert refused([], path) == "programs with different inputs or outputs are not one model"
    assert refused([one, one], path) == "a model has a case for every combination of its sizes, each once"
    assert "not one model" in refused([one, replace(other, inputs=())], path)


def test_hostile_manifests_are_refused(path: Path) -> None:
    whole = path.read_bytes()

    def error(change: object) -> str:
        path.write_bytes(whole)
        rewrite(path, lambda manifest, members: change(manifest))  # type: ignore[operator]
        with pytest.raises(ArtifactError) as caught:
            artifact.load(path)
        return str(caught.value).partition("several.atm: ")[2]

    assert error(lambda m: m.update(version=1)).startswith("format 'autotune-model' version 1; this release")
    assert error(lambda m: m.update(cases=[])) == (
        "it has no cases, or some for a target and some for devices that are named"
    )
    assert error(lambda m: m["cases"].extend(m["cases"])).startswith(
        "a model has a case for every combination"
    )
    assert error(lambda m: m["cases"][0]["program"].update(images=[7])) == "case 0 runs images (7,) of 3"
    assert error(lambda m: m["images"].pop()).endswith(("of 2", "manifest and archive differ: "))
    # The one that is chosen is checked, and which that is depends on the machine.
    assert error(lambda m: [v.update(arena_bytes=-1) for v in m["images"]]).endswith("arena of -1 bytes")
    assert (
        error(lambda m: m.update(format="autotune-other"))
        == "not an artifact: its format is not 'autotune-model'"
    )
