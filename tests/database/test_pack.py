"""Packs: everything comes back, and what is altered, damaged or hostile is refused before anything is written."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.database import Database
from autotune.database.merge import TABLES, merge
from autotune.database.pack import opened_pack, write
from autotune.database.pack_rows import to_line
from autotune.database.records import DEVICES, Reading
from autotune.database.schema import VERSION
from autotune.errors import MissingExtraError, PackError, UsageError
from tests.database.examples import HOST, KEY, compare, job, prepare, run, schedules

Members = dict[str, bytes]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A database with something in every table."""
    with Database(tmp_path_factory.mktemp("filled") / "tuning.db") as database:
        prepare(database)
        database.claim_job(job(), lambda owner: True)
        database.add_layers("j1", {KEY.workload: ["000_conv", "ü"]})
        for name, ns in (("a", 100.0), ("b", 90.0), ("c", None)):
            database.record(run(name, ns, job="j1", error=None if ns else float("inf")))
        first, second, _ = database.records()
        compare(database, schedules((first, 76.0), (second, 70.0), won="b"))
        database.read_inside(KEY, [Reading("b", 0.9, 3, 100.0)], "net", "j1")
        yield database


@pytest.fixture
def pack(filled: Database, tmp_path: Path) -> Path:
    path = tmp_path / "good.pack"
    write(filled, path)
    return path


def everything(database: Database) -> dict[str, list[Any]]:
    from sqlalchemy import select

    return database.session.read(
        lambda connection: {t.name: list(map(tuple, connection.execute(select(t)))) for t in TABLES}
    )


def test_a_pack_brings_everything_back(filled: Database, pack: Path) -> None:
    assert all(rows for rows in everything(filled).values())
    with opened_pack(pack) as found:
        assert everything(found) == everything(filled)
        assert found.damage() == []


def test_equal_databases_make_equal_packs(filled: Database, pack: Path, tmp_path: Path) -> None:
    with Database(tmp_path / "other.db") as other, opened_pack(pack) as found:
        merge(other, found)
        write(other, tmp_path / "other.pack")
    assert (tmp_path / "other.pack").read_bytes() == pack.read_bytes()


def test_the_manifest_says_what_is_inside(pack: Path) -> None:
    with zipfile.ZipFile(pack) as archive:
        manifest = json.loads(archive.read("manifest.json"))
    assert manifest["models"] == ["m"]
    assert manifest["targets"][HOST.key]["threads"] == 2
    assert {name: said["rows"] for name, said in manifest["tables"].items()} == {
        "workloads": 1, "targets": 2, "spaces": 2, "jobs": 1, "layers": 1, "runs": 3, "comparisons": 2, "readings": 1,
    }  # fmt: skip


PLACEMENT = {
    "id": 1, "key": "k" * 64, "name": "n", "json": '{"devices": ["cpu"], "placement": {"*": "cpu"}}', "code": "c",
    "expected_ns": 90.0, "measured_ns": 80.0, "ratio": None, "ratio_low": None, "ratio_high": None, "rounds": 3,
    "won": True, "inside": "net", "job": "j1", "created": 2.0,
}  # fmt: skip
"""A row of the table that schemas 11 and 12 had."""
PLAN = {
    "id": 1, "key": "p" * 64, "json": "{}", "ratio": 0.9, "ratio_low": None, "ratio_high": None, "rounds": 3,
    "won": True, "inside": "net", "job": "j1", "created": 2.0,
}  # fmt: skip
"""A row of the table that schemas before 14 had."""


@pytest.mark.parametrize("version", [10, 11, 12, 13, 14])
def test_a_pack_of_an_older_schema_is_read(filled: Database, pack: Path, version: int) -> None:
    def older(members: Members) -> Members:
        said, made = json.loads(members["manifest.json"]), dict(members)
        said["schema"] = version
        lacks = {"jobs": ["status", "report"], "readings": ["host"]}
        if version < 14:
            lacks |= {"comparisons": ["load"] if version == 13 else ["detail", "load"]}
            lacks["readings"].append("load")
        lacks |= {"runs": ["code"]} if version < 12 else {}
        for table, names in lacks.items():
            lines = map(json.loads, members[f"{table}.jsonl"].splitlines())
            made[f"{table}.jsonl"] = b"".join(
                to_line({name: line[name] for name in line if name not in names}) for line in lines
            )
        rows = {"placements": PLACEMENT, "plans": PLAN} if version < 14 else {}
        made |= {f"{table}.jsonl": to_line(row) for table, row in rows.items()}
        for table in (*lacks, *rows):
            data = made[f"{table}.jsonl"]
            known = {"nbytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            said["tables"][table] = {"rows": data.count(b"\n"), **known}
        if version in (10, 13):
            del said["tables"]["placements"]
        return {**made, "manifest.json": json.dumps(said).encode()}

    rewritten(pack, older)
    if version in (10, 13):
        with pytest.raises(PackError, match=r"unexpected member 'placements\.jsonl'"), opened_pack(pack):
            pass
        rewritten(pack, lambda members: {n: data for n, data in members.items() if n != "placements.jsonl"})
    with opened_pack(pack) as found:
        assert found.damage() == []
        placed = found.compared_at(DEVICES, workload="k" * 64)
        assert [(row.name, row.key, row.won, row.detail) for row in placed] == (
            [("n", "c", True, '{"devices": ["cpu"], "expected_ns": 90.0, "placement": {"*": "cpu"}}')]
            if version in (11, 12)
            else []
        )
        assert len(found.records()) == len(filled.records())


def rewritten(pack: Path, change: Callable[[Members], Members]) -> None:
    """Write a pack's members again after a change."""
    with zipfile.ZipFile(pack) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(pack, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in change(members).items():
            archive.writestr(name, data)


def manifest(**changes: Any) -> Callable[[Members], Members]:
    """Change the manifest."""
    return lambda m: {
        **m,
        "manifest.json": json.dumps({**json.loads(m["manifest.json"]), **changes}).encode(),
    }


def rows(table: str, change: Callable[[bytes], bytes]) -> Callable[[Members], Members]:
    """Change the rows of a table, and have the manifest say that they are so."""

    def both(members: Members) -> Members:
        data = change(members[f"{table}.jsonl"])
        tables = json.loads(members["manifest.json"])["tables"]
        count, digest = data.count(b"\n"), hashlib.sha256(data).hexdigest()
        tables[table] = {"rows": count, "nbytes": len(data), "sha256": digest}
        return {**manifest(tables=tables)(members), f"{table}.jsonl": data}

    return both


def replaced(old: str, new: str) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        assert old.encode() in data
        return data.replace(old.encode(), new.encode())

    return change


HOSTILE: dict[str, tuple[Callable[[Members], Members], str]] = {
    "altered": (
        lambda m: {**m, "runs.jsonl": m["runs.jsonl"].replace(b"90.0", b"80.0")},
        "runs.jsonl was altered: it is not what manifest.json says",
    ),
    "shortened": (lambda m: {**m, "runs.jsonl": b""}, "runs.jsonl was altered: it is not what manifest.json says"),
    "escaping": (lambda m: {**m, "../../etc/passwd": b"x"}, "unexpected member '../../etc/passwd'"),
    "absolute": (lambda m: {**m, "/etc/passwd": b"x"}, "unexpected member '/etc/passwd'"),
    "without a table": (lambda m: {n: d for n, d in m.items() if n != "readings.jsonl"}, "it has no readings.jsonl"),
    "without a manifest": (lambda m: {n: d for n, d in m.items() if n != "manifest.json"}, "it has no manifest.json"),
    "a bomb": (
        lambda m: {**m, "signature": bytes(50 << 20)},
        r"its \d+ bytes would become \d+, which is more than 200 times as many",
    ),
    "a large manifest": (
        lambda m: {**m, "manifest.json": random.Random(0).randbytes(17 << 20)},
        "manifest.json has more than 16777216 bytes",
    ),
    "no JSON": (lambda m: {**m, "manifest.json": b"{"}, "manifest.json is not JSON: "),
    "nested": (lambda m: {**m, "manifest.json": b"[" * 10**6}, "manifest.json is not JSON: "),
    "another format": (manifest(format="zip"), "it is no pack: its format is not 'autotune-pack'"),
    "a newer version": (manifest(version=2), "its version is 2, this autotune reads 1; export it again by this "),
    "another schema": (manifest(schema=8), f"its schema is 8, this autotune reads {VERSION}; export it again by this "),
    "other tables": (manifest(tables={}), "manifest.json has not the tables comparisons, jobs, "),
    "tables that are none": (manifest(tables=3), "manifest.json has not the tables comparisons, jobs, "),
    "no number": (
        rows("runs", replaced('"n":5', '"n":NaN')), "line 1 of runs is not JSON: NaN is no number"
    ),
    "another type": (rows("runs", replaced('"n":5', '"n":"5"')), "line 1 of runs: its n is '5'"),
    "a truth value": (rows("runs", replaced('"n":5', '"n":true')), "line 1 of runs: its n is True"),
    "a large number": (rows("runs", replaced('"n":5', f'"n":{10**30}')), "line 1 of runs: its n is 1000"),
    "a long key": (rows("runs", replaced('"trace_key":"a"', f'"trace_key":"{"a" * 65}"')), "line 1 of runs: its tra"),
    "nothing": (rows("runs", replaced('"seed":0', '"seed":null')), "line 1 of runs: its seed is None"),
    "another column": (rows("runs", replaced('"seed"', '"seeds"')), "line 1 of runs has not the columns id, "),
    "an unknown workload": (
        rows("runs", replaced(KEY.workload, "v" * 64)), "its rows do not fit together"
    ),
    "a run twice": (
        rows("runs", lambda data: data + data.splitlines()[0].replace(b'"id":1', b'"id":9') + b"\n"),
        "its rows do not fit together",
    ),
    "another run's reading": (rows("readings", replaced('"run_id":2', '"run_id":77')), "its rows do not fit together"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_pack_is_refused(pack: Path, name: str) -> None:
    change, message = HOSTILE[name]
    rewritten(pack, change)
    with pytest.raises(PackError, match=f"^cannot use the pack {pack}: {message}"), opened_pack(pack):
        pass


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_twice_is_refused(pack: Path) -> None:
    with zipfile.ZipFile(pack, "a") as archive:
        archive.writestr("runs.jsonl", b"")
    with pytest.raises(PackError, match=r"unexpected member 'runs\.jsonl'"), opened_pack(pack):
        pass


def test_a_truncated_or_missing_pack_is_refused(pack: Path) -> None:
    data = pack.read_bytes()
    for length in range(0, len(data), len(data) // 8):
        pack.write_bytes(data[:length])
        with (
            pytest.raises(PackError, match="a pack is what `autotune db export"),
            opened_pack(pack),
        ):
            pass
    pack.unlink()
    with pytest.raises(PackError, match="No such file or directory"), opened_pack(pack):
        pass


def test_a_flipped_bit_is_noticed_or_makes_no_difference(filled: Database, pack: Path) -> None:
    data, rng, refused = pack.read_bytes(), random.Random(1), 0
    expected = everything(filled)
    for _ in range(30):
        damaged = bytearray(data)
        damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        pack.write_bytes(damaged)
        try:
            with opened_pack(pack) as found:
                assert everything(found) == expected
        except PackError:
            refused += 1
    assert refused > 20


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A private and a public key as PEM files."""
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    from cryptography.hazmat.primitives import serialization as s

    key, folder = ed25519.Ed25519PrivateKey.generate(), tmp_path_factory.mktemp("keys")
    private, public = folder / "key.pem", folder / "key.pub"
    plain = s.NoEncryption()
    private.write_bytes(key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, plain))
    public.write_bytes(key.public_key().public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo))
    return private, public


def refused_for(pack: Path, key: Path) -> str:
    with pytest.raises((PackError, UsageError)) as caught, opened_pack(pack, key):
        pass
    return str(caught.value)


def test_a_signed_pack_is_taken_from_its_owner_only(
    filled: Database, pack: Path, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    private, public = keys
    assert refused_for(pack, public).endswith(
        f"it is not signed, and was to be signed by the owner of {public}"
    )
    write(filled, pack, private)
    with opened_pack(pack, public) as found:
        assert len(found.records()) == 3
    with opened_pack(pack) as found:
        assert len(found.records()) == 3
    rewritten(pack, rows("runs", replaced("90.0", "80.0")))
    altered = f"it was not signed by the owner of {public}, or was altered since"
    assert refused_for(pack, public) == f"cannot use the pack {pack}: {altered}"
    rewritten(pack, lambda members: {**members, "signature": b"short"})
    assert refused_for(pack, public).endswith(altered)
    assert "is no public key" in refused_for(pack, private)
    assert "cannot read the key" in refused_for(pack, tmp_path / "none.pub")
    with pytest.raises(UsageError, match="is no private key without a password"):
        write(filled, pack, public)


def test_a_missing_extra_is_named(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    with (
        pytest.raises(MissingExtraError, match=r"pip install 'autotune-compiler\[sign\]'"),
        opened_pack(pack, pack),
    ):
        pass


def test_the_extra_is_imported_for_signatures_only(pack: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from autotune.database.pack import opened_pack\n"
        f"with opened_pack(Path({str(pack)!r})): print('cryptography' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
