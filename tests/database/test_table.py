"""Measured runs as a table: its columns, and files of every format that read back the same."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from autotune.database import Database, Footprint, Outcome, WorkloadRow
from autotune.database.describe import operators_of, shapes_of
from autotune.database.export import FORMATS, export
from autotune.database.records import Origin, Reading
from autotune.database.training import training_table
from autotune.errors import UsageError
from cost_models.dataset import COLUMNS
from tests.database.examples import HOST, KEY, OTHER, compare, job, run, schedules

TEXT = """region workload {
  input i0: float32[1, 6, 6, 16]
  const i1: int8[64]
  input i2: float32[]
  v0 = Conv(i0, i1) {layout="a : b", strides=[1, 1]} : float32[1, 6, 6, 64] strides=(9, 9, 9, 1)
  v1, v2, "" = Split(v0) {axis=3} : float32[1, 6, 6, 32], float32[1, 6, 6, 32], none as halves
  v3 = Cast(v2) {to="float16"} : float16[1, 6, 6, 32]
  output v1, v3
}"""


@pytest.fixture
def database(tmp_path: Path) -> Database:
    """Two workloads: of one a job has measured two runs, the other's run came from elsewhere."""
    database = Database(tmp_path / "tuning.db")
    other = replace(KEY, workload="v" * 64, target=OTHER.key, space="t" * 64)
    for target in (HOST, OTHER):
        database.add_target(target)
    for key, kind in ((KEY, "convolution"), (other, "pool")):
        database.add_workload(WorkloadRow(key.workload, TEXT, kind, 4_000_000_000, 20))
        database.add_space(key.space, key.workload, "{}")
    mine = database.claim_job(job(), lambda owner: True)
    database.add_layers(mine.id, {KEY.workload: ("fire2/squeeze", "fire3/squeeze")})
    database.record(
        run(
            "a",
            1e6,
            config_json='{"tile":4,"order":"mn","pack":true}',
            job=mine.id,
            created=1.5e9,
            footprint=Footprint(4096, 9000),
        )
    )
    database.record(run("b", None, config_json='{"tile":8,"order":2}', job=mine.id, message='a "b"\nc'))
    database.record(run("c", 2e6, key=other, config_json='{"blas":3}', error=1e-6))
    found = database.records()[0]
    compare(database, schedules((found, 9e5), won=found.trace_key))
    return database


def test_shapes_and_operators_are_read_from_a_workloads_text() -> None:
    assert shapes_of(TEXT) == "1x6x6x16, int8 64, scalar → 1x6x6x32, float16 1x6x6x32"
    assert operators_of(TEXT) == "Conv, Split, Cast"


def test_programs_are_described_by_their_tensors() -> None:
    text = """program
t0 = placeholder("A", (4, 8), "int8")
t1 = compute("B", [("i", 4)], sum([("k", 8)], t0[i0, r0]))
t2 = compute("C", [("i", 4)], t1[i0] * const("int8", 2))
arguments(t0, t2)  # int8[4, 8] -> int8[4]"""
    assert shapes_of(text) == "int8 4x8 → int8 4"
    assert operators_of(text) == "B, C"


def test_runs_are_a_table_with_names_and_knobs(database: Database) -> None:
    table = database.runs()
    first, second, third = (row for _, row in table.iterrows())
    assert (first["model"], first["layer"], first["kind"]) == (
        "m",
        "fire2/squeeze, fire3/squeeze",
        "convolution",
    )
    assert (first["target"], third["target"]) == ("x86-64-v3, 2 threads", "x86-64-v4, 8 threads")
    assert (first["latency_ns"], first["gflops"], first["confirmed_ns"]) == (1e6, 4000.0, 9e5)
    assert (first["created"], first["inside"]) == (pd.Timestamp(1.5e9, unit="s", tz="UTC"), "net")
    assert (second["outcome"], second["message"]) == (Outcome.CRASHED.value, 'a "b"\nc')
    assert pd.isna(second["latency_ns"])
    assert (first["memory_bytes"], first["artifact_bytes"]) == (4096, 9000)
    assert pd.isna(second["memory_bytes"])
    assert (third["model"], third["layer"], third["job"]) == ("", "", "")
    knobs = table.filter(like="knob.")
    assert [str(kind) for kind in knobs.dtypes] == ["Int64", "str", "boolean", "Int64"]
    assert knobs["knob.order"].tolist()[:2] == ["mn", "2"]
    assert (knobs.loc[1, "knob.tile"], knobs.loc[2].isna().tolist()) == (8, [False, True, True, True])


def test_a_table_can_be_narrowed_and_empty(database: Database) -> None:
    assert database.runs(job="j1")["id"].tolist() == [1, 2]
    assert database.runs(workload="v" * 64)["trace_key"].tolist() == ["c"]
    assert len(database.runs(target="none")) == 0
    columns = [name for name in database.runs() if not name.startswith("knob.")]
    assert list(database.runs(target="none")) == columns


def _read(path: Path, like: pd.DataFrame) -> pd.DataFrame:
    if path.suffix == ".parquet":
        return pd.read_parquet(path)
    read = pd.read_csv(path) if path.suffix == ".csv" else pd.read_json(path, lines=True, dtype=False)
    read["created"] = pd.to_datetime(read["created"], utc=True)
    texts = {name: "" for name, kind in like.dtypes.items() if kind == "str" and not name.startswith("knob.")}
    return read.astype(dict.fromkeys(texts, "object")).fillna(texts).astype(like.dtypes)


@pytest.mark.parametrize("suffix", FORMATS)
def test_what_is_exported_reads_back_the_same(database: Database, tmp_path: Path, suffix: str) -> None:
    table, path = database.runs(), tmp_path / f"runs{suffix}"
    export(table, path)
    pd.testing.assert_frame_equal(_read(path, table), table)
    empty = database.runs(job="none")
    export(empty, path)
    assert (
        not path.read_text().strip()
        if suffix.startswith(".json")
        else list(_read(path, empty)) == list(empty)
    )
    assert [file.name for file in tmp_path.glob("*runs*")] == [path.name]


def test_an_export_that_fails_leaves_the_older_file(database: Database, tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("older")
    table = database.runs().assign(model=[object(), _Unwritable(), object()])
    with pytest.raises(OSError, match="no space"):
        export(table, path)
    assert [file.read_text() for file in tmp_path.glob("*runs*")] == ["older"]
    with pytest.raises(
        UsageError, match=r"unknown format '.doc' of .*; a table is written as one of .parquet"
    ):
        export(table, tmp_path / "runs.doc")


class _Unwritable:
    def __str__(self) -> str:
        raise OSError(28, "no space left on device")


def test_a_cost_model_gets_the_columns_that_it_takes(database: Database) -> None:
    table = training_table(database)
    assert tuple(table) == COLUMNS
    assert table["config"].tolist()[0] == {"tile": 4, "order": "mn", "pack": True}
    assert (table["workload_text"][0], table["target_json"][2]) == (TEXT, OTHER.to_json())
    assert table["latency_ns"].isna().tolist() == [False, True, False]


def test_readings_inside_a_model_count_more_than_those_alone(database: Database) -> None:
    key = database.records()[0].key
    database.record(run("default", 4e6, key=key, origin=Origin.DEFAULT))
    database.record(run("fast", 1e6, key=key))
    alone = training_table(database).iloc[-1]
    assert (alone["ratio"], alone["created"]) == (1 / 4, database.records()[-1].created)
    for ratio in (0.5, 0.5):
        database.read_inside(key, [Reading("a", ratio, 3, 8e6)], "net")
    table = training_table(database)
    assert table["ratio"].tolist()[:2] == [pytest.approx(0.5), pytest.approx(np.nan, nan_ok=True)]
    assert table["ratio"].iloc[-1] == 1, "not read inside: no faster than the default, as for the job"
    assert table["noise"][0] < table["noise"].iloc[-1] / 2
    assert table["model"].tolist()[0] == "m"


def test_of_many_runs_each_workload_gives_an_equal_share(database: Database) -> None:
    key = database.records()[0].key
    database.record(run("default", 4e6, key=key, origin=Origin.DEFAULT))
    for number in range(40):
        database.record(run(f"{number:064x}", 1e6 + number, key=key))
    database.read_inside(key, [Reading(f"{39:064x}", 0.5, 3, 8e6)], "net")
    everything, said = training_table(database), list[str]()
    assert len(everything) == len(database.records())
    some = training_table(database, most=20, say=said.append)
    keys = {run.key for run in database.records()}
    limit = 20 // len(keys)
    assert said == [
        f"at most {limit} runs of a workload on a target are learnt from, which 1 of {len(keys)} have"
    ]
    assert limit <= some["space_key"].value_counts().max() <= limit + 1, "the default beside them"
    ours = some[some["latency_ns"].between(1e6 + 1, 2e6) & some["ratio"].notna()]
    assert len(ours) > 2
    assert ours["ratio"].min() >= 0.5
    assert (ours["ratio"] < 1).sum() <= 1, (
        "another one was measured inside, whether or not it is in the sample"
    )
    labels = dict(zip(everything["latency_ns"], everything["ratio"], strict=True))
    assert [labels[ns] for ns in ours["latency_ns"]] == ours["ratio"].tolist()
    assert training_table(database, most=20).equals(some)


def test_only_tables_load_pandas(database: Database, tmp_path: Path) -> None:
    code = (
        "import sys; from autotune.database import Database\n"
        "d = Database(sys.argv[1], read_only=True); d.records(); d.jobs(); d.layers()\n"
        "print([name for name in ('pandas', 'pyarrow') if name in sys.modules]); d.runs()\n"
        "print('pandas' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "tuning.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["[]", "True", ""]


def test_workloads_are_a_table_with_what_is_known_of_each(database: Database) -> None:
    table = database.workloads()
    first, second = (row for _, row in table.iterrows())
    assert (first["kind"], first["models"], first["layers"], first["runs"]) == ("pool", "", "", 1)
    assert (second["models"], second["layers"]) == ("m", "fire2/squeeze, fire3/squeeze")
    assert (second["runs"], second["best_ns"], second["gflops"]) == (2, 1e6, 4000.0)
    assert (second["target"], first["target"]) == (HOST.name, OTHER.name)
    assert table["ratio"].isna().all()


def test_comparisons_are_a_table_with_a_row_a_candidate(database: Database) -> None:
    incumbent, failed = database.records()[:2]
    compare(database, schedules((incumbent, 9e5), (failed, 6e5), won=failed.trace_key))
    table = database.comparisons()
    assert table["won"].tolist() == [True, False, True]
    last = table.iloc[-1]
    assert (last["inside"], last["site"], last["name"], last["kind"]) == (
        "net",
        "schedule",
        "b",
        "convolution",
    )
    assert (last["median_ns"], last["ratio"]) == (6e5, pytest.approx(2 / 3))
    assert last["ratio_low"] < last["ratio"] < last["ratio_high"]
    assert table["ratio"].isna().tolist() == [True, True, False]
    assert table["created"].iloc[1] == table["created"].iloc[2]
    assert last["workload_key"] == KEY.workload


def test_tables_of_an_empty_database_have_their_columns(tmp_path: Path) -> None:
    with Database(tmp_path / "empty.db") as empty:
        workloads, comparisons = empty.workloads(), empty.comparisons()
        assert len(workloads) == len(comparisons) == 0
        assert (str(workloads["runs"].dtype), str(comparisons["won"].dtype)) == ("int64", "bool")
