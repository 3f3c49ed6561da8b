"""Artifacts: round trips, damage, hostile files, other machines, disks that refuse."""

from __future__ import annotations

import errno
import json
import os
import re
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.errors import ArtifactError
from autotune.runtime.artifacts import artifact
from autotune.runtime.artifacts.archive import read_members
from autotune.runtime.artifacts.hashes import CODE, hash_of
from autotune.runtime.cpu import native
from autotune.runtime.cpu.device import Host, address_of
from autotune.runtime.image import DTYPES, ModuleImage
from autotune.runtime.module import Module
from tests.runtime.kernels import binding, chain, compile_ir, image, spec


def small() -> ModuleImage:
    """y = constant + 1, then a chain of one more addition through the arena."""
    constants = (np.array([5, 6, 7, 8]), np.float32(2.5).reshape(()), np.zeros((0, 3), np.int8))
    return image(
        [
            ("increment", binding("constant", 4), binding("arena", 4), 4),
            ("increment", binding("arena", 4), binding("output", 4), 4),
        ],
        inputs=(spec("x", 2),),
        outputs=(spec("y", 4),),
        arena_bytes=32,
        scratch_bytes=8,
        constants=constants,
        metadata={"source": "tests", "größe": "3 μs"},
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / "small.atm"
    artifact.save(small(), target)
    return target


def rewrite(path: Path, change: Callable[[dict[str, Any], dict[str, bytes]], None]) -> None:
    """Change manifest and members, and write the archive again."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(members.pop("manifest.json"))
    change(manifest, members)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", json.dumps(manifest))
        for name, data in members.items():
            archive.writestr(name, data)


def same(a: ModuleImage, b: ModuleImage) -> bool:
    plain = ("name", "target", "inputs", "outputs", "objects", "commands", "dispatches")
    return (
        all(getattr(a, name) == getattr(b, name) for name in (*plain, "arena_bytes"))
        and dict(a.metadata) == dict(b.metadata)
        and len(a.constants) == len(b.constants)
        and all(
            p.dtype == q.dtype and p.shape == q.shape and np.array_equal(p, q)
            for p, q in zip(a.constants, b.constants, strict=True)
        )
    )


def test_round_trip(path: Path) -> None:
    loaded = artifact.load_image(path)
    assert same(loaded, small())
    assert all(c.ctypes.data % 64 == 0 for c in loaded.constants if c.size)
    with Module(loaded, 2) as module:
        assert module(np.zeros(2, np.int64))[0].tolist() == [7, 8, 9, 10]


@pytest.mark.parametrize("dtype", DTYPES)
def test_constants_of_every_dtype_round_trip(dtype: str, tmp_path: Path) -> None:
    values = np.arange(12).reshape(3, 4).astype(dtype)
    swapped = values.astype(values.dtype.newbyteorder(">"))
    made = image([], constants=(values, np.asfortranarray(values).T, swapped))
    artifact.save(made, tmp_path / "c.atm")
    loaded = artifact.load_image(tmp_path / "c.atm")
    assert all(c.dtype.isnative for c in loaded.constants)
    assert np.array_equal(loaded.constants[0], values)
    assert np.array_equal(loaded.constants[1], values.T)
    assert np.array_equal(loaded.constants[2], values)


def test_equal_images_make_equal_bytes(path: Path, tmp_path: Path) -> None:
    artifact.save(artifact.load_image(path), tmp_path / "again.atm")
    assert (tmp_path / "again.atm").read_bytes() == path.read_bytes()


def test_every_damaged_byte_is_harmless_or_found(path: Path) -> None:
    data, good = path.read_bytes(), small()
    accepted = 0
    for position in range(0, len(data), 11):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        try:
            loaded = artifact.load_image(path)
        except ArtifactError:
            continue
        accepted += 1
        assert same(loaded, good), f"byte {position} changed the module unnoticed"
    assert accepted < len(data) // 50  # dates and attributes of the archive only


def test_every_truncation_is_found(path: Path) -> None:
    data = path.read_bytes()
    for size in [*range(0, len(data), 97), len(data) - 1]:
        path.write_bytes(data[:size])
        with pytest.raises(ArtifactError):
            artifact.load_image(path)


def _set(*keys: Any, to: Any) -> Callable[[dict[str, Any], dict[str, bytes]], None]:
    def change(manifest: Any, members: dict[str, bytes]) -> None:
        manifest = manifest if keys[0] in ("format", "version", "unknown") else manifest["images"][0]
        for key in keys[:-1]:
            manifest = manifest[key]
        manifest[keys[-1]] = to

    return change


HOSTILE = [
    (_set("format", to="other"), "its format is not 'autotune-model'"),
    (_set("format", to="autotune-module"), "format 'autotune-module' version 2; this release reads"),
    (
        _set("version", to=9),
        "version 9; this release reads 'autotune-model' version 2: compile the model again",
    ),
    (lambda m, files: m["cases"].clear(), "it has no cases"),
    (_set("unknown", to=1), "manifest: expected an object with"),
    (_set("inputs", to={}), "manifest.images[0].inputs: expected"),
    (_set("arena_bytes", to="32"), "manifest.images[0].arena_bytes: expected"),
    (_set("arena_bytes", to=True), "manifest.images[0].arena_bytes: expected"),
    (_set("arena_bytes", to=32.0), "manifest.images[0].arena_bytes: expected"),
    (_set("arena_bytes", to=-1), "arena of -1 bytes"),
    (_set("arena_bytes", to=16), "command 0 ('k0'): binding 1: bytes 0 to 32 of arena 0"),
    (_set("arena_bytes", to=1 << 60), "arena of"),
    (_set("commands", 0, "bindings", 1, "offset", to=8), "bytes 8 to 40 of arena 0"),
    (_set("commands", 0, "bindings", 1, "offset", to=-8), "bytes -8 to 24 of arena 0"),
    (_set("commands", 0, "bindings", 1, "index", to=1), "arena 1 of 1"),
    (_set("commands", 0, "bindings", 0, "index", to=-1), "constant -1 of 3"),
    (_set("commands", 0, "bindings", 0, "space", to="heap"), "bindings[0].space: expected"),
    (_set("commands", 1, "tiles", to=0), "0 tiles"),
    (_set("commands", 1, "object_index", to=7), "object 7 of 2"),
    (_set("commands", 1, "dispatch", to=2), "dispatch 2 of 2"),
    (_set("commands", 1, "scratch_bytes", to=1 << 40), "bytes of scratch memory"),
    (_set("commands", 1, "symbol", to="../../x"), "not a plain identifier"),
    (_set("commands", 1, "symbol", to="system"), "does not define 'system'"),
    (_set("outputs", 0, "dtype", to="object"), "dtype 'object'; allowed: float64"),
    (_set("outputs", 0, "shape", to=[-4]), "has shape (-4,)"),
    (_set("outputs", 0, "shape", to=[1 << 40, 1 << 40]), "has shape"),
    (_set("outputs", 0, "shape", to=[1] * 1000), "has shape"),
    (_set("outputs", 0, "shape", to=[2]), "binding 1: bytes 0 to 32 of output 0, which has 16"),
    (_set("constants", 0, "dtype", to="O"), "constants/0.bin has dtype 'O'"),
    (_set("constants", 0, "shape", to=[5]), "constants/0.bin does not fit its shape"),
    (_set("constants", 0, "shape", to=[-1, 2]), "constants/0.bin does not fit its shape"),
    (_set("constants", 0, "shape", to=[1] * 1000), "constants/0.bin does not fit its shape"),
    (_set("constants", 0, "blob", "path", to="/etc/passwd"), "manifest and archive differ"),
    (_set("constants", 0, "blob", "path", to="objects/0.o"), "objects/0.o has another size than"),
    (
        _set("constants", 0, "blob", "hash", to="sha256:" + "0" * 64),
        "constants/0.bin has no xxh3_128, but 'sha256'",
    ),
    (
        _set("constants", 0, "blob", "hash", to="xxh3_128:" + "0" * 32),
        "constants/0.bin is damaged: its xxh3_128",
    ),
    (_set("objects", 0, "hash", to="xxh3_128:" + "0" * 32), "objects/0.o has no sha256, but 'xxh3_128'"),
    (
        lambda m, files: m["images"][0]["constants"].append(
            m["images"][0]["constants"][0] | {"blob": m["images"][0]["objects"][0]}
        ),
        "is listed among constants",
    ),
    (
        lambda m, files: m["images"][0]["objects"].append(m["images"][0]["constants"][0]["blob"]),
        "constants/0.bin is listed among objects",
    ),
    (_set("constants", 0, "blob", "nbytes", to=8), "constants/0.bin has another size"),
    (_set("objects", 0, "hash", to="sha256:" + "0" * 64), "objects/0.o is damaged: its sha256"),
    (_set("target", "cpu", to=3), "manifest.images[0].target.cpu: expected"),
    (lambda m, files: files.pop("objects/1.o"), "manifest and archive differ: objects/1.o"),
    (lambda m, files: files.update({"objects/9.o": b""}), "manifest and archive differ"),
    (lambda m, files: files.update({"../evil": b""}), "unexpected member '../evil'"),
    (lambda m, files: files.update({"/abs.o": b""}), "unexpected member '/abs.o'"),
    (lambda m, files: files.update({"objects/0.o\n": b""}), "unexpected member"),
]


@pytest.mark.parametrize(("change", "message"), HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_manifests_are_refused(path: Path, change: Any, message: str) -> None:
    rewrite(path, change)
    with pytest.raises(ArtifactError) as caught:
        artifact.load_image(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_manifests_that_are_no_objects_are_refused(path: Path) -> None:
    for text in (b"", b"[]", b"nul", b"[" * 100_000, b"\xff\xfe", b'{"format": 1}', b"1" * 10_000):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("manifest.json", text)
        with pytest.raises(ArtifactError):
            artifact.load_image(path)


def test_compressed_members_are_refused(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", "[" + " " * 10_000_000 + "]")
    with pytest.raises(ArtifactError, match=r"larger than the file|compressed"):
        artifact.load_image(path)


def test_overlapping_members_are_refused(path: Path) -> None:
    # A zip bomb of stored members: the directory names one piece of the file many times.
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("objects/0.o", b"\0" * 10_000)
        first = archive.infolist()[0]
        for index in range(1, 50):
            entry = zipfile.ZipInfo(f"objects/{index}.o")
            entry.header_offset, entry.CRC = first.header_offset, first.CRC
            entry.compress_size = entry.file_size = first.file_size
            archive.filelist.append(entry)
        archive._didModify = True
    with pytest.raises(ArtifactError, match="larger than the file"):
        artifact.load_image(path)


def test_members_that_share_bytes_are_refused(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("objects/0.o", b"\0" * 10_000)
        archive.writestr("manifest.json", b"{}" * 10_000)
        entry = zipfile.ZipInfo("objects/1.o")
        entry.header_offset, entry.compress_size, entry.file_size, entry.CRC = 0, 50, 50, 0
        archive.filelist.append(entry)
        archive._didModify = True
    with pytest.raises(ArtifactError, match=r"members objects/1\.o and objects/0\.o overlap"):
        artifact.load_image(path)


def test_headers_of_random_numbers_are_refused_or_harmless(path: Path) -> None:
    data, good, random = path.read_bytes(), small(), np.random.default_rng(14)
    heads = [m.start() for m in re.finditer(rb"PK(\x01\x02|\x03\x04|\x05\x06)", data)]
    for _ in range(400):
        damaged = bytearray(data)
        at = int(random.choice(heads)) + int(random.integers(4, 46))
        size = int(random.choice([1, 2, 4, 8]))
        damaged[at : at + size] = random.choice([b"\0", b"\x7f", b"\xff"]) * size
        path.write_bytes(damaged)
        said = ""
        try:
            assert same(artifact.load_image(path), good)
        except ArtifactError as error:
            said = str(error)
        assert said == "" or (str(path) in said and "\n" not in said)


def test_code_for_features_that_the_machine_lacks_is_refused(tmp_path: Path) -> None:
    made = small()
    target = replace(made.target, cpu="future", features=(*made.target.features, "avx4096"))
    artifact.save(replace(made, target=target), tmp_path / "f.atm")
    with pytest.raises(ArtifactError, match=r"compiled for x86_64 future; .* has no avx4096"):
        artifact.load_image(tmp_path / "f.atm")


def test_code_for_another_architecture_is_refused(path: Path) -> None:
    rewrite(path, _set("target", "arch", to="riscv64"))
    with pytest.raises(ArtifactError, match=r"compiled for riscv64 .*has no riscv64"):
        artifact.load_image(path)


def test_code_for_a_lesser_machine_is_accepted(tmp_path: Path) -> None:
    made = small()
    features = made.target.features[:1]
    artifact.save(replace(made, target=replace(made.target, features=features)), tmp_path / "l.atm")
    assert artifact.load_image(tmp_path / "l.atm").target.features == features
    assert Host.here().target.lacks(made.target) == []


def test_code_may_call_mathematics_only(tmp_path: Path) -> None:
    text = """
    declare {kind} @{name}({kind})
    define void @k0(ptr %t, i64 %b, i64 %e, ptr %s) {{
      %x = call {kind} @{name}({kind} zeroinitializer)
      ret void
    }}"""
    made = chain(1, 4)
    calls = compile_ir(text.format(name="expf", kind="float"))
    artifact.save(replace(made, objects=(calls,)), tmp_path / "ok.atm")
    artifact.load_image(tmp_path / "ok.atm")
    evil = compile_ir(text.format(name="system", kind="i64"))
    with pytest.raises(ArtifactError, match="object 0 calls system, which an artifact may not"):
        artifact.save(replace(made, objects=(evil,)), tmp_path / "no.atm")
    assert not (tmp_path / "no.atm").exists()


def test_missing_files_and_folders_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"cannot read artifact .*No such file"):
        artifact.load_image(tmp_path / "none.atm")
    with pytest.raises(ArtifactError, match="cannot read artifact"):
        artifact.load_image(tmp_path)
    with pytest.raises(ArtifactError, match=r"cannot write artifact .*No such file"):
        artifact.save(small(), tmp_path / "no" / "folder.atm")


def test_a_full_disk_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(zipfile.ZipFile, "writestr", full)
    with pytest.raises(ArtifactError, match=r"cannot write artifact .*No space left on device"):
        artifact.save(small(), path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["small.atm"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write")
def test_a_read_only_folder_is_an_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ArtifactError, match=r"cannot write artifact .*Permission denied"):
        artifact.save(small(), tmp_path / "x.atm")


def test_inconsistent_images_are_not_saved(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="arena of -1 bytes"):
        artifact.save(replace(small(), arena_bytes=-1), tmp_path / "x.atm")


def test_constants_lie_aligned_in_the_file(path: Path) -> None:
    with path.open("rb") as file:
        members = read_members(file)
    assert {member.start % 64 for member in members.values()} == {0}


def large(tmp_path: Path) -> tuple[Path, ModuleImage]:
    """A model with a constant that stays in the file, and small ones that are moved."""
    numbers = np.arange(3 << 20, dtype=np.int64)
    made = replace(small(), constants=(*small().constants, numbers, *np.split(numbers[: 3 << 17], 3)))
    artifact.save(made, tmp_path / "large.atm")
    return tmp_path / "large.atm", made


@pytest.mark.parametrize("mapped", [False, True])
def test_constants_stay_where_they_are_read(tmp_path: Path, mapped: bool) -> None:
    path, made = large(tmp_path)
    loaded = artifact.load_image(path, mapped=mapped)
    assert same(made, loaded)
    with Module(loaded, 1) as module:
        kept = module.image.constants
        for a, b in zip(kept, loaded.constants, strict=True):
            assert address_of(a) == address_of(b) or not a.size
        assert kept[3].flags.writeable is not mapped
        assert mapped or address_of(kept[5]) - address_of(kept[4]) == kept[4].nbytes
        assert module(np.zeros(2, np.int64))[0].tolist() == [7, 8, 9, 10]


def damage_a_constant(path: Path) -> None:
    with path.open("rb") as file:
        at = read_members(file)["constants/3.bin"].start
    with path.open("r+b") as file:
        file.seek(at + 12345)
        file.write(b"\xff")


@pytest.mark.parametrize("mapped", [False, True])
def test_a_large_constant_that_is_damaged_is_refused(tmp_path: Path, mapped: bool) -> None:
    path, _ = large(tmp_path)
    damage_a_constant(path)
    with pytest.raises(ArtifactError, match=r"constants/3\.bin is damaged: its xxh3_128"):
        artifact.load_image(path, mapped=mapped, check=mapped)


def test_what_is_mapped_is_read_when_it_is_used(tmp_path: Path) -> None:
    path, made = large(tmp_path)
    damage_a_constant(path)
    with Module(artifact.load_image(path, mapped=True), 1) as module:
        assert module(np.zeros(2, np.int64))[0].tolist() == [7, 8, 9, 10]
        assert (module.image.constants[3] != made.constants[3]).sum() == 1
        np.testing.assert_array_equal(module.image.constants[4], made.constants[4])


def test_equal_contents_are_stored_once(tmp_path: Path) -> None:
    numbers = np.arange(3 << 10, dtype=np.int64)
    constants = (*small().constants, numbers, numbers.copy(), numbers.reshape(3, -1), numbers + 1)
    made = replace(small(), constants=constants)
    artifact.save(made, tmp_path / "equal.atm")
    with (tmp_path / "equal.atm").open("rb") as file:
        assert sum(name.startswith("constants") for name in read_members(file)) == 5
    loaded = artifact.load_image(tmp_path / "equal.atm")
    assert same(made, loaded)
    assert address_of(loaded.constants[3]) == address_of(loaded.constants[5])
    with Module(loaded, 1) as module:
        assert module(np.zeros(2, np.int64))[0].tolist() == [7, 8, 9, 10]


def test_the_file_may_be_replaced_while_a_model_runs(tmp_path: Path) -> None:
    path, made = large(tmp_path)
    with Module(artifact.load_image(path, mapped=True), 1) as module:
        artifact.save(small(), path)
        np.testing.assert_array_equal(module.image.constants[3], made.constants[3])


def test_an_artifact_brings_the_executor(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        assert archive.read("executors/0.o") == native.machine_code()


def executor_of(path: Path, code: bytes, fingerprint: str | None = None) -> None:
    """Give an artifact another executor, with the right size and hash."""

    def change(manifest: dict[str, Any], members: dict[str, bytes]) -> None:
        members["executors/0.o"] = code
        entry = manifest["images"][0]["executors"][0]
        entry["fingerprint"] = fingerprint or entry["fingerprint"]
        entry["blob"] |= {"nbytes": len(code), "hash": hash_of(CODE, code)}

    rewrite(path, change)


def test_an_executor_that_is_none_is_refused(path: Path) -> None:
    executor_of(path, compile_ir("define void @k() {\n ret void\n}"))
    with pytest.raises(ArtifactError, match=r"executors/0\.o is no executor: entry points are missing"):
        artifact.load_image(path)
    executor_of(path, b"nothing")
    with pytest.raises(ArtifactError, match=r"executors/0\.o: damaged object file"):
        artifact.load_image(path)
    executor_of(
        path, compile_ir("declare void @system()\ndefine void @k() {\n call void @system()\n ret void\n}")
    )
    with pytest.raises(ArtifactError, match=r"executors/0\.o calls system, which an executor may not"):
        artifact.load_image(path)


def test_an_executor_of_another_release_is_left_alone(path: Path) -> None:
    executor_of(path, b"of another release", "0" * 64)
    assert same(small(), artifact.load_image(path))
