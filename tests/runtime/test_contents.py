"""The contents of an artifact: equal ones are stored and read once, and no damage is taken for what was stored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest

from autotune.errors import ArtifactError
from autotune.files import pages_of
from autotune.runtime.artifacts import contents
from autotune.runtime.artifacts.archive import Member
from autotune.runtime.artifacts.contents import ContentsReader, ContentsWriter, little_endian
from autotune.runtime.artifacts.hashes import CODE, DATA, hash_of
from autotune.runtime.artifacts.manifest import Blob

SMALL, LARGE = (64 << 10) - 1, 64 << 10
"""Bytes of constants that are read, and that may stay in the file."""


# Writing.


def test_equal_contents_are_one_member() -> None:
    writer = ContentsWriter()
    first, other = writer.code("objects", b"first"), writer.code("objects", b"other")
    assert first == Blob("objects/0.o", 5, hash_of(CODE, b"first"))
    assert other == Blob("objects/1.o", 5, hash_of(CODE, b"other"))
    assert writer.code("objects", b"first") is first
    executor = writer.code("executors", b"first")  # of another kind
    assert (executor.path, executor.hash) == ("executors/0.o", first.hash)
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    constant = writer.constant(array)
    assert constant == Blob("constants/0.bin", 24, hash_of(DATA, array.tobytes()))
    assert writer.constant(array.reshape(3, 2).copy()) is constant  # the same bytes
    assert writer.constant(array + 1).path == "constants/1.bin"
    assert writer.code("objects", b"third").path == "objects/2.o"
    assert {path: bytes(data) for path, data in writer.members.items()} == {
        "objects/0.o": b"first",
        "objects/1.o": b"other",
        "objects/2.o": b"third",
        "executors/0.o": b"first",
        "constants/0.bin": array.tobytes(),
        "constants/1.bin": (array + 1).tobytes(),
    }


def test_contents_of_one_hash_and_other_sizes_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "hash_of", lambda kind, data: f"{kind}:00")
    writer = ContentsWriter()
    assert [writer.code("objects", bytes(n)).path for n in (3, 4, 3)] == [
        "objects/0.o",
        "objects/1.o",
        "objects/0.o",
    ]


def test_constants_are_stored_dense_row_major_and_little_endian() -> None:
    values = np.arange(12, dtype=np.int32).reshape(3, 4)
    for array in (values.astype(">i4"), np.asfortranarray(values), np.repeat(values, 2, axis=1)[:, ::2]):
        found = little_endian(array)
        assert (found.dtype.str, found.shape, found.tobytes()) == ("<i4", (3, 4), values.tobytes())
        assert ContentsWriter().constant(array) == ContentsWriter().constant(values)
    assert little_endian(np.float32(2.5)).shape == ()  # type: ignore[arg-type]
    assert ContentsWriter().constant(np.float32(2.5)).nbytes == 4  # type: ignore[arg-type]
    assert ContentsWriter().constant(np.zeros((0, 3), np.int8)).nbytes == 0


# Reading.


class Stored:
    """Members in a file, as an archive has them, and the blobs of a manifest."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "members"
        self.members: dict[str, Member] = {}
        self.data = b"head"
        self.files: list[BinaryIO] = []

    def add(self, path: str, data: bytes, kind: str) -> Blob:
        self.members[path] = Member(len(self.data), len(data), 0)
        self.data += data
        return Blob(path, len(data), hash_of(kind, data))

    def constant(self, number: int, nbytes: int) -> Blob:
        data = np.random.default_rng(number).integers(0, 256, nbytes, np.uint8)
        return self.add(f"constants/{number}.bin", data.tobytes(), DATA)

    def bytes_of(self, blob: Blob) -> bytes:
        member = self.members[blob.path]
        return self.data[member.start :][: member.nbytes]

    def damage(self, blob: Blob, position: int = -1) -> None:
        data = bytearray(self.data)
        member = self.members[blob.path]
        data[member.start + position % member.nbytes] ^= 1
        self.data = bytes(data)

    def reader(self, **options: Any) -> ContentsReader:
        self.path.write_bytes(self.data)
        self.files.append(open(self.path, "rb"))  # noqa: SIM115
        return ContentsReader(self.files[-1], self.members, **options)


@pytest.fixture
def stored(tmp_path: Path) -> Any:
    made = Stored(tmp_path)
    yield made
    for file in made.files:
        file.close()


def said(call: Any, *arguments: Any) -> str:
    with pytest.raises(ArtifactError) as caught:
        call(*arguments)
    return str(caught.value)


def test_manifest_and_archive_must_list_the_same(stored: Stored) -> None:
    code, constant = stored.add("objects/0.o", b"code", CODE), stored.constant(0, 10)
    executor = stored.add("executors/0.o", b"code", CODE)
    reader = stored.reader()
    reader.check_listed([code, constant, executor, code])
    missing = replace(code, path="objects/" + "9" * 100)
    assert said(reader.check_listed, [code, missing]) == f"manifest and archive differ: objects/{'9' * 72}"
    assert said(reader.check_listed, [constant, executor]) == "manifest and archive differ: objects/0.o"
    assert said(reader.check_listed, [code]) == "manifest and archive differ: constants/0.bin"
    assert said(reader.check_listed, []) == "manifest and archive differ: constants/0.bin"
    for nbytes in (9, 11):
        wrong = replace(constant, nbytes=nbytes)
        assert said(reader.check_listed, [wrong]) == "constants/0.bin has another size than the manifest says"
    wrong = replace(constant, hash="sha256:" + constant.hash.partition(":")[2])
    assert said(reader.check_listed, [wrong]) == "constants/0.bin has no xxh3_128, but 'sha256'"
    wrong = replace(code, hash="x" * 50)
    assert said(reader.check_listed, [wrong]) == f"objects/0.o has no sha256, but {'x' * 40!r}"
    wrong = replace(executor, hash=constant.hash)
    assert said(reader.check_listed, [wrong]) == "executors/0.o has no sha256, but 'xxh3_128'"


def test_a_long_name_that_only_the_archive_has_is_cut(stored: Stored) -> None:
    stored.add("objects/" + "1" * 100, b"", CODE)
    assert said(stored.reader().check_listed, []) == f"manifest and archive differ: objects/{'1' * 72}"


def test_a_member_in_no_folder_is_refused(stored: Stored) -> None:
    stored.add("others/" + "0" * 100, b"", CODE)
    blob = Blob("others/" + "0" * 100, 0, hash_of(CODE, b""))
    reader = stored.reader()
    expected = f"unexpected member {('others/' + '0' * 73)!r}"
    assert said(reader.check_listed, [blob]) == expected
    assert said(reader.code, blob, "objects") == expected


def test_code_is_read_once_and_checked_each_time(stored: Stored) -> None:
    blob = stored.add("objects/0.o", b"machine code", CODE)
    reader = stored.reader()
    assert reader.code(blob, "objects") == b"machine code"
    stored.path.write_bytes(b"")
    assert reader.code(blob, "objects") == b"machine code"
    other = replace(blob, hash=hash_of(CODE, b"other code"))
    assert said(reader.code, other, "objects") == "objects/0.o is damaged: its sha256 is not the manifest's"
    assert said(reader.code, blob, "executors") == "objects/0.o is listed among executors"


def test_damaged_code_is_refused(stored: Stored) -> None:
    blob = stored.add("executors/0.o", b"machine code", CODE)
    stored.damage(blob)
    assert (
        said(stored.reader().code, blob, "executors")
        == "executors/0.o is damaged: its sha256 is not the manifest's"
    )


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("check", [False, True])
def test_constants_come_in_the_order_in_which_they_are_named(
    stored: Stored, mapped: bool, check: bool
) -> None:
    blobs = [stored.constant(number, size) for number, size in enumerate((10, LARGE, 0, SMALL, LARGE + 1))]
    wanted = [blobs[number] for number in (4, 0, 3, 1, 0, 2)]
    reader = stored.reader(mapped=mapped, check=check)
    found = reader.constants(wanted)
    assert [each.tobytes() for each in found] == [stored.bytes_of(blob) for blob in wanted]
    assert found[1] is found[4]
    assert reader.constants([blobs[1]])[0] is found[3]
    for blob, array in zip(wanted, found, strict=True):
        if blob.nbytes:
            assert (pages_of(array) is not None) is (mapped and blob.nbytes >= LARGE)
        if blob.nbytes and pages_of(array) is None:
            assert array.ctypes.data % 64 == 0
    code = stored.add("objects/0.o", b"code", CODE)
    assert said(reader.constants, [blobs[0], code]) == "objects/0.o is listed among constants"


def test_each_constant_is_read_once(stored: Stored) -> None:
    blobs = [stored.constant(number, size) for number, size in enumerate((10, LARGE))]
    reader = stored.reader()
    first = reader.constants(blobs)
    stored.path.write_bytes(b"")
    again = reader.constants(blobs[::-1])
    assert [a is b for a, b in zip(first, again[::-1], strict=True)] == [True, True]


def test_many_small_constants_lie_side_by_side(stored: Stored) -> None:
    blobs = [stored.constant(number, 1 << 20) for number in range(3)]
    found = stored.reader().constants(blobs)
    assert [each.tobytes() for each in found] == [stored.bytes_of(blob) for blob in blobs]
    starts = [each.ctypes.data for each in found]
    assert np.diff(starts).tolist() == [1 << 20] * 2


@pytest.mark.parametrize(
    ("nbytes", "mapped", "check", "noticed"),
    [
        (10, False, False, True),
        (10, True, False, True),
        (SMALL, True, False, True),
        (LARGE, False, False, True),
        (LARGE, True, True, True),
        (LARGE, True, False, False),
    ],
)
def test_damage_is_noticed_but_in_pages_that_nobody_checks(
    stored: Stored, nbytes: int, mapped: bool, check: bool, noticed: bool
) -> None:
    blob = stored.constant(0, nbytes)
    reader = stored.reader(mapped=mapped, check=check)
    assert reader.constants([blob])[0].tobytes() == stored.bytes_of(blob)
    for position in (0, -1):
        stored.damage(blob, position)
        reader = stored.reader(mapped=mapped, check=check)
        if noticed:
            message = "constants/0.bin is damaged: its xxh3_128 is not the manifest's"
            assert said(reader.constants, [blob]) == message
        else:
            assert reader.constants([blob])[0].tobytes() == stored.bytes_of(blob)
        stored.damage(blob, position)


def test_options_are_off_unless_they_are_named(stored: Stored) -> None:
    blob = stored.constant(0, LARGE)
    assert pages_of(stored.reader().constants([blob])[0]) is None
    stored.damage(blob)
    assert said(stored.reader().constants, [blob]).startswith("constants/0.bin is damaged")
    assert pages_of(stored.reader(mapped=True).constants([blob])[0]) is not None


def test_pages_are_mapped_once(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = [stored.constant(number, LARGE) for number in range(3)]
    maps = []
    original = contents.map_file
    monkeypatch.setattr(contents, "map_file", lambda file: maps.append(file) or original(file))
    reader = stored.reader(mapped=True)
    reader.constants(blobs[:2])
    reader.constants(blobs)
    assert len(maps) == 1
