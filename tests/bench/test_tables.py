"""Pages of results: Markdown, numbers, and what stands in a side-by-side table."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.bench import columns, machine
from autotune.bench.experiment import Column, FrameRows, Record, TableView, at, frame_of, mean_over, over
from autotune.bench.tables import (
    Document,
    Table,
    duration,
    geometric_mean,
    number,
    percent,
    ratio,
    scientific,
)
from autotune.errors import InternalError, UsageError

LABELS = {"peer": "Peer", "other": "Other", "copy": "copy"}


def case(name: str, family: str = "A", failure: str = "", **times: float) -> list[Record]:
    """Records with the given minima in ns; medians are a tenth above."""
    about = {"family": family, "case": name, "threads": 2, "flops": 1000, "bytes": 4000}
    records: list[Record] = []
    if failure:
        records.append({**about, "contender": "default", "kind": "own", "failure": failure})
    for who, ns in times.items():
        found = {**about, "contender": who, "min_ns": ns, "median_ns": 1.1 * ns, "runs": 5}
        if who in columns.OWN:
            found |= {"kind": "own", "kinds_ns": {"pool": ns}, "compile_s": 0.5}
            found |= {"default_to_tuned": 0.8} if who == "tuned" else {}
        else:
            found |= {"kind": "floor" if who == "copy" else "peer", "label": LABELS[who], "error": 1e-6}
        records.append(found)
    return records


ONE = case("one", default=2000, tuned=1000, peer=1000, other=4000)
TWO = case("two", "B", default=4000, peer=1000, other=500)
THREE = case("three", "B", failure="BuildError: no code", peer=1000)


def table(view: TableView, *cases: list[Record]) -> Table:
    (made,) = view.tables(frame_of([record for records in cases for record in records]))
    return made


def test_rows_are_found_by_what_they_have() -> None:
    rows = FrameRows([*ONE, *TWO])
    assert [len(some) for some in rows.by("case").values()] == [4, 3]
    assert rows.where(contender="peer").all("min_ns") == [1000, 1000]
    assert (rows.get("min_ns"), rows.get("nothing")) == (2000, None)
    assert at("min_ns", case="two", contender="other")(rows) == 500
    assert mean_over(("case",), at("min_ns", contender="default"))(rows) == pytest.approx(8e6**0.5)
    assert over(at("min_ns", contender="tuned"), "flops")(rows) == 1.0
    assert over(at("min_ns", contender="nobody"), "flops")(rows) is None


def test_a_view_has_a_table_for_each_and_closing_rows() -> None:
    records = [{"t": t, "name": name, "x": x} for t in (1, 2) for name, x in (("a", 2.0), ("b", 8.0))]
    cells = (Column("name", "name"), Column("x", lambda rows: max(rows.all("x")), number(1), geometric_mean))
    view = TableView("T {t}", ("name",), cells, ("t",), last="mean", overall="all", notes=("a note",))
    first, second = view.tables(frame_of(records))
    assert (first.title, second.title, first.notes) == ("T 1", "T 2", ("a note",))
    assert first.rows == (("a", "2.0"), ("b", "8.0"), ("mean", "4.0"), ("all", "8.0"))
    some = TableView("T", ("name",), cells, where=lambda rows: rows.get("name") == "c")
    assert list(some.tables(frame_of(records))) == []


def test_what_is_missing_in_a_frame_stays_missing_and_counts_stay_counts() -> None:
    frame = frame_of([{"a": 1}, {"a": None, "b": (1, 2)}])
    assert frame.to_dict("records") == [{"a": 1, "b": None}, {"a": None, "b": (1, 2)}]
    assert isinstance(frame["a"][0], int)


def test_the_best_of_ours_is_compared_with_the_best_peer() -> None:
    first, second, third = map(FrameRows, (ONE, TWO, THREE))
    assert (columns.ours(first).get("contender"), columns.ours(second).get("contender")) == (
        "tuned",
        "default",
    )
    assert [columns.to_best(rows) for rows in (first, second, third)] == [1.0, 8.0, None]
    assert columns.best_peer(FrameRows(case("one", default=2000, copy=500))) is None, "a floor is no peer"


def test_side_by_side_has_every_peer_and_the_means() -> None:
    extras = (Column("GFLOP/s", columns.rate(), number(1)),)
    made = table(columns.side_by_side("T, {threads}", "case", extras), ONE, TWO, THREE)
    assert made.title == "T, 2 threads"
    assert made.columns == (
        "case", "default", "tuned", "Peer", "Other", "÷ best", "÷ best (medians)", "default speed ÷ tuned",
        "GFLOP/s", "max. rel. error",
    )  # fmt: skip
    one, two, three, mean = made.rows
    assert one[:3] == ("A one", "2.00 µs (2.20 µs)", "1.00 µs (1.10 µs)")
    assert one[5:] == ("1.00", "1.00", "0.80", "1.0", "1.0e-06")
    assert two[2] == "–"
    assert three[1:5] == ("failed", "failed", "1.00 µs (1.10 µs)", "–")
    assert mean == ("geometric mean", "", "", "", "", "2.83", "2.83", "0.80", "", "1.0e-06")
    assert columns.GAIN_NOTE in made.notes
    assert "three, autotune: BuildError: no code" in made.notes


def test_outputs_that_differ_are_pointed_out() -> None:
    errors = {"peer": 0.5, "other": float("nan")}
    wrong = [{**row, "error": errors.get(row["contender"])} for row in ONE]
    notes = table(columns.side_by_side("T", "case"), wrong).notes
    assert "one: our output and that of peer differ by 5.0e-01" in notes
    assert "one: our output and that of other differ by nan" in notes


def test_without_peers_there_are_no_ratios() -> None:
    records = case("one", default=2000, copy=500)
    share = (Column("% of copy", columns.share_of("copy"), percent(unit="")),)
    made = table(columns.side_by_side("T", "case", share), records)
    assert made.columns == ("case", "default", "copy", "% of copy")
    assert made.rows[0][-1] == "25"


def test_families_have_geometric_means() -> None:
    made = table(columns.families("F"), ONE, TWO, THREE)
    assert made.columns == ("family", "cases", "÷ Peer", "÷ Other", "÷ best peer", "default speed ÷ tuned")
    assert made.rows == (
        ("A", "1", "1.00", "0.25", "1.00", "0.80"),
        ("B", "2", "4.00", "8.00", "8.00", "–"),
        ("all", "3", "2.00", "1.41", "2.83", "0.80"),
    )


def test_shares_of_a_floor_have_means_and_the_least() -> None:
    slow, fast = case("slow", default=4000, copy=1000), case("fast", "B", default=1000, copy=1000)
    made = table(columns.floor_families("F", "copy"), slow, fast)
    assert made.columns == ("family", "cases", "% of copy, geometric mean", "least")
    assert made.rows == (("A", "1", "25", "25"), ("B", "1", "100", "100"), ("all", "2", "50", "25"))


def test_native_ratios_have_means_and_the_largest() -> None:
    native = {"tuned": 100.0, "peer": 200.0}
    timed = [{**row, "native_ns": native.get(row["contender"])} for row in ONE]
    made = table(columns.native_families("N", "peer"), timed, TWO)
    assert made.rows == (("A", "1", "0.50", "0.50"), ("B", "1", "–", "–"), ("all", "2", "0.50", "0.50"))


def test_kernel_families_are_shares() -> None:
    made = table(columns.kernel_families("K"), ONE)
    assert made.columns == ("model", "pool")
    assert made.rows == (("one", "100.0"),)


def test_family_gains_are_milliseconds_before_and_after() -> None:
    kinds = {"default": {"pool": 4e6, "softmax": 1e6}, "tuned": {"pool": 2e6, "contraction": 5e5}}
    tuned = [{**row, "kinds_ns": kinds.get(row["contender"])} for row in ONE]
    made = table(columns.family_gains("G"), tuned, TWO)
    assert made.columns == ("model", "contraction", "pool", "softmax", "all")
    cells = ("0.00 → 0.50", "4.00 → 2.00", "1.00 → 0.00", "5.00 → 2.50")
    assert made.rows == (("one", *cells), ("all", *cells))
    assert list(columns.family_gains("G").tables(frame_of(TWO))) == []


def test_a_page_names_the_command_and_the_machine(tmp_path: Path) -> None:
    table = Table("Times", ("case", "ns"), (("a|b", "1"),), ("a note",))
    page = Document("Title", "autotune bench x", machine.facts(), (table,), [1], "About it.")
    path = tmp_path / "results" / "x.md"
    page.write(path)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# Title\n\nAbout it.\n\n```\nautotune bench x\n```\n\n- processor: ")
    assert "\n- date: 20" in text
    assert "## Times\n\n| case | ns |\n| --- | ---: |\n| a/b | 1 |\n\n- a note\n" in text
    assert page.to_json()["data"] == [1]
    with pytest.raises(UsageError, match="cannot write"):
        page.write(path / "below a file.md")


def test_a_row_of_another_length_is_our_mistake() -> None:
    with pytest.raises(InternalError, match="2 columns, but a row is"):
        Table("T", ("a", "b"), (("1",),))


def test_numbers_are_short() -> None:
    assert [duration(ns) for ns in (None, 12.3, 4.2e6, 123.4e6, 2e9)] == [
        "–", "12 ns", "4.20 ms", "123 ms", "2.00 s",
    ]  # fmt: skip
    assert (ratio(None), ratio(0.666)) == ("–", "0.67")
    assert scientific(None) == "–"
    assert geometric_mean([]) is None
    assert geometric_mean([2.0, None, 8.0]) == pytest.approx(4.0)


def test_versions_of_peers_join_the_facts() -> None:
    facts = machine.with_peers({"date": "today"}, {"ONNX Runtime": "1.0", "autotune": "0.1"})
    assert facts == {"date": "today", "peers": "ONNX Runtime 1.0"}
    assert machine.with_peers({"date": "today"}, {"autotune": "0.1"}) == {"date": "today"}


def test_views_of_rows_of_several_kinds_show_theirs() -> None:
    records = [{"of": "a", "name": "x", "n": 1}, {"of": "b", "name": "x", "n": 2}]
    cells = (Column("name", "name"), Column("n", "n"))
    for kind, shown in (("a", "1"), ("b", "2")):
        (made,) = TableView("T", ("name",), cells, of=kind).tables(frame_of(records))
        assert made.rows == (("x", shown),)
