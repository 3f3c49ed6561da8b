"""``autotune query``: the order of the runs, and everything for the target that was asked for."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from autotune.cli import main as cli
from autotune.compiler import divide
from autotune.database import Database, Footprint, Key, Latency, Origin, Outcome, Run, WorkloadRow
from autotune.graph.region import Workload
from autotune.target import Target
from autotune.tuning.report.units import size
from cost_models.analytic import default_config
from search_spaces.spaces import space_for
from tests.database.examples import schedules
from tests.outline import Outline

LEVEL = Target.parse("x86-64-v2", threads=1)
ORIGIN = {"a": Origin.DEFAULT, "b": Origin.SEARCH, "c": Origin.SEARCH}
ASKED = ("--target", "x86-64-v2", "--threads", "1")


@pytest.fixture(scope="module")
def workload() -> Workload:
    return divide("zoo:mlp").dispatches[0].workload


@pytest.fixture
def database(tmp_path: Path, workload: Workload) -> Path:
    """Three runs of one workload: the fastest first reading was confirmed as slower than the second."""
    path = tmp_path / "tuning.db"
    key = Key(workload.key, LEVEL.key, space_for(workload, LEVEL).key)
    space = space_for(workload, LEVEL)
    trace = space.schedule(default_config(space)).trace.to_json()
    with Database(path) as store:
        store.add_workload(WorkloadRow(workload.key, workload.text, workload.kind, 1, 1))
        store.add_target(LEVEL)
        store.add_space(key.space, workload.key, "{}")
        for name, first in (("a", 1000.0), ("b", 2000.0), ("c", 3000.0)):
            latency = Latency(5, first, first, 0.0)
            sizes, config = Footprint(64 * int(first), 5000 if name == "a" else 640), json.dumps({"is": name})
            run = Run(key, name, trace, config, Outcome.OK, latency, footprint=sizes, origin=ORIGIN[name])
            assert store.record(run)
        again = {"a": 9000.0, "b": 4000.0}
        runs = [(run, again[run.trace_key]) for run in store.records() if run.trace_key in again]
        store.compared(key.workload, key.target, "schedule", schedules(*runs, won="b"), "net")
    return path


def query(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert cli.run(["query", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_confirmed_readings_are_shown_and_come_first(
    database: Path, workload: Workload, capsys: pytest.CaptureFixture[str]
) -> None:
    out = query(capsys, workload.key, "--db", database, "--top", 3, *ASKED)
    rows = re.findall(r'^ +([\d.]+) µs (in a model|isolated) +\{"is": "(.)"\}$', out, re.M)
    assert rows == [
        ("4.0", "in a model", "b"),
        ("9.0", "in a model", "a"),
        ("3.0", "isolated", "c"),
    ]
    assert "  tuned, 2.24× (2.06× to 2.44×); 4.0 µs inside net (default 9.0 µs)" in out
    (answer,) = json.loads(query(capsys, workload.key, "--db", database, "--top", 2, "--json", *ASKED))
    assert [run["trace_key"] for run in answer["top"]] == ["b", "a"]


def test_the_front_has_what_none_beats_and_marks_what_is_used(
    database: Path, workload: Workload, capsys: pytest.CaptureFixture[str]
) -> None:
    out = query(capsys, workload.key, "--db", database, "--front", *ASKED)
    assert out.splitlines()[-3:] == [
        "    latency ÷ default       memory  artifact  (* in use)",
        '  * 0.444 compared        128.0 kB     640 B  {"is": "b"}',
        '    1.000 compared         64.0 kB    5.0 kB  {"is": "a"}',
    ]
    (answer,) = json.loads(query(capsys, workload.key, "--db", database, "--front", "--json", *ASKED))[
        "answers"
    ]
    assert [(p["trace_key"], p["used"], p["memory_bytes"]) for p in answer["front"]] == [
        ("b", True, 128_000),
        ("a", False, 64_000),
    ]


def test_what_crashed_inside_a_model_is_said_to_have(
    database: Path, workload: Workload, capsys: pytest.CaptureFixture[str]
) -> None:
    with Database(database) as found:
        (c,) = [run for run in found.records() if run.config == {"is": "c"}]
        found.crashed_inside(c.key, {c.trace_key: "the worker died (SIGSEGV)"}, "net")
    out = query(capsys, workload.key, "--db", database, "--top", 3, *ASKED)
    assert "  tuned, 2.24× (2.06× to 2.44×); 1 crashed inside a model; 4.0 µs inside net" in out
    line = '3.0 µs isolated, crashed inside the model: the worker died (SIGSEGV)  {"is": "c"}\n'
    assert out.endswith(line)
    explained = query(capsys, workload.key, "--db", database, "--explain", *ASKED)
    assert "    1 candidate crashed inside the model: the worker died (SIGSEGV)\n" in explained


def test_explain_shows_the_space_of_the_target_asked_for(
    database: Path, workload: Workload, capsys: pytest.CaptureFixture[str]
) -> None:
    out = query(capsys, workload.key, "--db", database, "--explain", *ASKED)
    asked = str(space_for(workload, LEVEL).explain()).splitlines()[0]
    other = str(space_for(workload, Target.parse("x86-64-v4", threads=2)).explain()).splitlines()[0]
    assert asked != other
    assert f"    {asked}\n" in out


def test_a_miss_advises_to_tune_for_the_target_asked_for(
    database: Path, workload: Workload, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--db", database, "--target", "x86-64-v3", "--threads", 2)
    out = query(capsys, workload.key, *asked)
    assert f"run `autotune tune MODEL --db {database} --target x86-64-v3 --threads 2` on" in out
    (answer,) = json.loads(query(capsys, workload.key, *asked, "--json"))
    assert "--target x86-64-v3 --threads 2" in answer["message"]
    plain = query(capsys, workload.key, "--db", database)
    assert f"run `autotune tune MODEL --db {database}` on this machine" in plain
    foreign = query(capsys, workload.key, "--db", database, "--target", "aarch64")
    assert "on this machine" not in foreign
    assert "on a machine that runs code for" in foreign


def test_a_model_gets_a_line_a_dispatch(
    database: Path, workload: Workload, capsys: pytest.CaptureFixture[str]
) -> None:
    title, header, *lines, last, unchecked = query(capsys, "zoo:mlp", "--db", database, *ASKED).splitlines()
    used = divide("zoo:mlp").dispatches
    assert title.startswith(
        "x86-64-v2, 1 thread; 1 of 3 dispatches tuned; 2 default not searched; schedules: 1 exact, "
    )
    assert header.split()[:3] == ["latency", "default", "roofline"]
    assert len(lines) == len(used)
    nodes = ", ".join(used[0].origins)
    assert re.match(
        rf" +4.0 µs +9.0 µs +[\d.]+ .s  {used[0].name} \({nodes}\)  exact: tuned, 2.24× ", lines[0]
    )
    assert re.match(r" +~.+ +~.+analytic: default, not searched$", lines[1])
    assert last.startswith("2 dispatches not measured for this target: run `autotune tune zoo:mlp --db ")
    assert unchecked.startswith("not checked: whether the code that was measured is generated today")
    only, _ = query(capsys, "zoo:mlp", "--db", database, "--only", used[0].name, *ASKED).splitlines()[2:]
    assert only == lines[0]


def test_fronts_are_drawn_with_the_figures_of_the_json(
    database: Path, workload: Workload, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (workload.key, "--db", database, "--front", "--html", tmp_path / "p.html", "--json", *ASKED)
    (answer,) = json.loads(query(capsys, *words))["answers"]
    made = Outline((tmp_path / "p.html").read_text())
    assert (made.open, made.loaded, made.scripts) == ([], [], [])
    assert len([each for each in made.attributes if each["tag"] == "circle"]) == len(answer["front"]) > 0
    for point in answer["front"]:
        assert {f"{point['ratio']:.3f}", size(point["memory_bytes"]), size(point["artifact_bytes"])} <= {
            *made.texts
        }


def test_json_holds_no_texts_of_json(
    database: Path, workload: Workload, capsys: pytest.CaptureFixture[str]
) -> None:
    def texts(value: object) -> list[str]:
        if isinstance(value, dict | list):
            return [
                t for inner in (value.values() if isinstance(value, dict) else value) for t in texts(inner)
            ]
        return [value] if isinstance(value, str) else []

    found = json.loads(query(capsys, "zoo:mlp", "--db", database, "--json", "--explain", "--front", *ASKED))
    assert not [text for text in texts(found) if text[:1] in ("{", "[")]
    first, *others = found["answers"]
    assert (first["tier"], first["latency_ns"], first["default_ns"]) == ("exact", 4000.0, 9000.0)
    low, high = first["interval_ns"]
    assert 3600 < low < 3960 < 4040 < high < 4400
    assert first["best"]["config"] == {"is": "b"}
    assert first["best"]["trace"]["steps"]
    assert {other["tier"] for other in others} == {"analytic"}
    assert all(answer["python"].startswith("s") for answer in found["answers"])


def test_a_miss_says_what_is_near_and_how_it_differs(
    database: Path, workload: Workload, capsys: pytest.CaptureFixture[str]
) -> None:
    out = query(capsys, workload.key, "--db", database, "--target", "x86-64-v2", "--threads", 2)
    assert "  near: 3 runs; threads: 2 here, 1 there\n" in out
    wider = query(capsys, workload.key, "--db", database, "--target", "x86-64-v3", "--threads", 1)
    assert (
        "near: 3 runs, of no use here; cpu: x86-64-v3 here, x86-64-v2 there; instructions: also avx, "
        in wider
    )
    asked = ("--db", database, "--target", "x86-64-v3", "--threads", 1, "--json")
    (answer,) = json.loads(query(capsys, workload.key, *asked))
    (near,) = answer["near"]
    assert (near["compatible"], near["runs"]) == (False, 3)
    assert [d["field"] for d in near["differences"]] == ["cpu", "instructions", "vector_bits"]
