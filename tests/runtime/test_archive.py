"""The container of an artifact: what is refused, where members lie, and how their bytes are read."""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from autotune.errors import ArtifactError
from autotune.runtime.artifacts.archive import (
    MAGIC,
    SUFFIX,
    Member,
    is_archive,
    map_file,
    padding,
    read_bytes,
    read_members,
    read_pieces,
    writing,
)

Entries = dict[str, bytes]
NAMES = (
    "manifest.json",
    "executors/0.o",
    "executors/999.o",
    "objects/0.o",
    "objects/123456789.o",
    "constants/7.bin",
)


def archive(
    path: Path, entries: Entries, change: Callable[[list[zipfile.ZipInfo]], None] | None = None
) -> Path:
    """An archive, its directory changed before it is written."""
    with zipfile.ZipFile(path, "w") as made:
        for name, data in entries.items():
            made.writestr(name, data)
        if change is not None:
            change(made.filelist)
    return path


def members(path: Path) -> dict[str, Member]:
    with open(path, "rb") as file:
        return read_members(file)


def refused(path: Path) -> str:
    with pytest.raises(ArtifactError) as caught:
        members(path)
    return str(caught.value)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.atm"


def test_an_artifact_is_known_by_its_name_or_its_beginning(tmp_path: Path) -> None:
    assert (SUFFIX, MAGIC) == (".atm", b"PK\x03\x04")
    assert is_archive("nowhere.atm")
    assert is_archive(Path("nowhere.atm"))
    assert not is_archive("nowhere.onnx")
    assert not is_archive(tmp_path)
    for data, expected in ((MAGIC, True), (MAGIC + b"more", True), (MAGIC[:3], False), (b"x" + MAGIC, False)):
        (tmp_path / "model").write_bytes(data)
        assert is_archive(tmp_path / "model") is expected


def test_members_are_where_the_directory_says(path: Path) -> None:
    entries = {name: bytes([number]) * (10 * number) for number, name in enumerate(NAMES)}
    found = members(archive(path, entries))
    data = path.read_bytes()
    assert list(found) == list(NAMES)
    with open(path, "rb") as file:
        for name, expected in entries.items():
            member = found[name]
            assert data[member.start : member.start + member.nbytes] == expected
            assert member.crc == zipfile.crc32(expected)  # type: ignore[attr-defined]
            assert read_bytes(file, member) == expected
    with pytest.raises(AttributeError):
        found["manifest.json"].start = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    "name",
    [
        "manifest.jso",
        "xmanifest.json",
        "manifestxjson",
        "objects/0.o\n",
        "objects/1234567890.o",
        "executors/1000.o",
        "objects/a.o",
        "constants/0.o",
        "objects/.o",
        "/objects/0.o",
        "objects/0xo",
        "constants/0xbin",
    ],
)
def test_members_of_other_names_are_refused(path: Path, name: str) -> None:
    assert refused(archive(path, {"manifest.json": b"{}", name: b""})) == f"unexpected member {name!r}"


def test_a_long_name_is_cut_in_the_error(path: Path) -> None:
    assert refused(archive(path, {"n" * 100: b""})) == f"unexpected member {'n' * 80!r}"


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_is_there_twice_is_refused(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("objects/0.o", b"1")
        made.writestr("objects/0.o", b"2")
    assert refused(path) == "unexpected member 'objects/0.o'"


def test_what_is_no_archive_is_refused(path: Path) -> None:
    good = archive(path, {"manifest.json": b"{}"}).read_bytes()
    for data in (b"", b"PK", b"x" * 1000, good[:-1], good[:40]):
        path.write_bytes(data)
        assert refused(path).startswith("not an archive, or damaged: ")
        assert refused(path).endswith("; an artifact is what `autotune compile` or Module.save wrote")


def _changed(**fields: int) -> Callable[[list[zipfile.ZipInfo]], None]:
    def change(entries: list[zipfile.ZipInfo]) -> None:
        for name, value in fields.items():
            setattr(entries[1], name, value)

    return change


ENTRIES = {"manifest.json": b"{}" * 50, "objects/0.o": b"c" * 50}
"""The data of the second begin at 30 + 13 + 100 + 30 + 11 = 184, and its directory at 234."""


def test_members_that_are_compressed_or_encrypted_are_refused(path: Path) -> None:
    said = "member objects/0.o is compressed or encrypted"
    for change in (
        _changed(compress_type=zipfile.ZIP_DEFLATED),
        _changed(compress_size=49),
        _changed(compress_size=51),
        _changed(flag_bits=1),
        _changed(flag_bits=1 | 1 << 11),
    ):
        assert refused(archive(path, ENTRIES, change)) == said
    assert list(members(archive(path, ENTRIES, _changed(flag_bits=1 << 11)))) == list(ENTRIES)


def test_members_larger_than_the_file_are_refused(path: Path) -> None:
    total = archive(path, ENTRIES).stat().st_size
    inside, outside = total - 184, total - 183
    archive(path, ENTRIES, _changed(file_size=inside, compress_size=inside))
    assert members(path)["objects/0.o"] == Member(184, inside, zipfile.crc32(b"c" * 50))  # type: ignore[attr-defined]
    archive(path, ENTRIES, _changed(file_size=outside, compress_size=outside))
    assert refused(path) == "member objects/0.o ends behind the end of the file"
    most = total - 100  # together they are as large as the file
    archive(path, ENTRIES, _changed(file_size=most, compress_size=most))
    assert refused(path) == "member objects/0.o ends behind the end of the file"
    archive(path, ENTRIES, _changed(file_size=most + 1, compress_size=most + 1))
    assert refused(path) == "its members are larger than the file"


def test_members_that_have_a_byte_in_common_are_refused(path: Path) -> None:
    def change(size: int) -> Callable[[list[zipfile.ZipInfo]], None]:
        def resize(entries: list[zipfile.ZipInfo]) -> None:
            entries[0].file_size = entries[0].compress_size = size

        return resize

    archive(path, ENTRIES, change(184 - 43))  # up to the first byte of the other one
    assert members(path)["manifest.json"].nbytes == 141
    archive(path, ENTRIES, change(184 - 43 + 1))
    assert refused(path) == "members manifest.json and objects/0.o overlap"


def test_a_member_of_nothing_overlaps_nothing(path: Path) -> None:
    empty = {"manifest.json": b"", "objects/0.o": b""}
    assert [member.nbytes for member in members(archive(path, empty)).values()] == [0, 0]
    assert members(archive(path, {})) == {}


def test_a_member_without_a_header_is_refused(path: Path) -> None:
    archive(path, ENTRIES)
    data = bytearray(path.read_bytes())
    data[143:147] = b"PK\x03\x05"
    path.write_bytes(data)
    assert refused(path) == "a member has no header"


def test_a_member_that_begins_outside_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive(path, ENTRIES)
    original = zipfile.ZipFile.infolist
    total = path.stat().st_size

    def offset(value: int) -> None:
        def infolist(self: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
            entries = original(self)
            entries[1].header_offset = value
            return entries

        monkeypatch.setattr(zipfile.ZipFile, "infolist", infolist)

    for value, said in ((-1, "a member begins before the file"), (total - 29, "a member has no header")):
        offset(value)
        assert refused(path) == said
    offset(0)
    assert refused(path) == "members objects/0.o and manifest.json overlap"


@pytest.mark.parametrize("start", [0, 1, 33, 63, 64, 1000])
@pytest.mark.parametrize("name", ["a", "objects/0.o", "größe"])
def test_padding_aligns_the_data_behind_a_header(start: int, name: str) -> None:
    extra = padding(start, name)
    kind, size = struct.unpack_from("<HH", extra)
    assert (kind, size) == (0xD935, len(extra) - 4)
    assert size < 64
    assert extra[4:] == bytes(size)
    assert (start + 30 + len(name.encode()) + len(extra)) % 64 == 0


def test_padded_members_begin_aligned(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as made:
        for name in NAMES:
            entry = zipfile.ZipInfo(name)
            entry.extra = padding(made.fp.tell(), name)  # type: ignore[union-attr]
            made.writestr(entry, name.encode())
    assert all(member.start % 64 == 0 for member in members(path).values())


def test_pieces_are_read_one_after_another(path: Path) -> None:
    piece = 256 << 10
    for size, expected in (
        (0, []),
        (1, [1]),
        (piece, [piece]),
        (piece + 1, [piece, 1]),
        (2 * piece + 100, [piece, piece, 100]),
    ):
        data = np.random.default_rng(size).integers(0, 256, size + 20, np.uint8)
        path.write_bytes(data.tobytes())
        memory = np.zeros(size, np.uint8)
        with open(path, "rb") as file:
            found = [bytes(part) for part in read_pieces(file, Member(7, size, 0), memory)]
        assert [len(part) for part in found] == expected
        assert b"".join(found) == memory.tobytes() == data[7 : 7 + size].tobytes()


def test_a_file_that_ends_early_is_an_error(path: Path) -> None:
    path.write_bytes(b"x" * 100)
    with open(path, "rb") as file:
        assert read_bytes(file, Member(40, 60, 0)) == b"x" * 60
        for read in (read_bytes, lambda f, m: list(read_pieces(f, m, np.zeros(m.nbytes, np.uint8)))):
            with pytest.raises(ArtifactError, match=r"^the file is truncated$"):
                read(file, Member(40, 61, 0))


def test_a_mapped_file_is_its_bytes_and_cannot_be_written(path: Path) -> None:
    path.write_bytes(b"bytes of a file")
    with open(path, "rb") as file:
        found = map_file(file)
    assert found.tobytes() == b"bytes of a file"
    assert not found.flags.writeable
    path.with_suffix(".none").write_bytes(b"")
    with (
        open(path.with_suffix(".none"), "rb") as file,
        pytest.raises(ArtifactError, match=r"^it cannot be mapped into memory: "),
    ):
        map_file(file)


def test_a_file_is_written_whole_or_not_at_all(path: Path) -> None:
    with writing(path) as file:
        file.write(b"first")
    assert path.read_bytes() == b"first"

    def fill() -> None:
        with writing(path) as file:
            file.write(b"second")
            raise OSError("it is full")

    with pytest.raises(ArtifactError, match=rf"^cannot write artifact {path}: it is full$"):
        fill()
    assert path.read_bytes() == b"first"
    with pytest.raises(ArtifactError, match=r"No such file or directory$"), writing(path.parent / "no" / "y"):
        pass
    assert os.listdir(path.parent) == ["a.atm"]
