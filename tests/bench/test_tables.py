"""Pages of results: Markdown, numbers, and what stands in a side-by-side table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.bench import machine, report
from autotune.bench.own import Own
from autotune.bench.problem import Case, Problem
from autotune.bench.result import Result
from autotune.bench.side_by_side import CompetitorResult
from autotune.bench.tables import Document, Table, duration, geometric_mean, ratio, scientific
from autotune.database.records import Latency, Ratio
from autotune.errors import InternalError, UsageError
from autotune.tuning.gain import Gain

GAIN = Gain(Latency(9, 1900, 2100, 0.0), Latency(9, 1600, 1700, 0.0), Ratio(0.8, (0.7, 0.9)), 9)
"""In turns in fresh processes, where the readings of single ones say half of the time."""


def build() -> Problem:
    raise AssertionError("tables build no problem")


def result(name: str, family: str = "A", failure: str = "", **times: float) -> Result:
    """A result with the given minima in ns; medians are a tenth above."""
    readings = {
        who: CompetitorResult(Latency(5, ns, 1.1 * ns, 0.0), kinds={"pool": ns}) for who, ns in times.items()
    }
    errors = {who: 1e-6 for who in times if who not in ("default", "tuned")}
    own = Own((), 0.5, 1, 1, GAIN if "tuned" in times else None)
    return Result(Case(family, name, build), 2, 1000, 4000, readings, errors, own, failure)


RESULTS = [
    result("one", default=2000, tuned=1000, peer=1000, other=4000),
    result("two", "B", default=4000, peer=1000, other=500),
    result("three", "B", failure="BuildError: no code", peer=1000),
]
NATIVE = {"default": 100.0, "peer": 200.0}
LABELS = {"peer": "Peer", "other": "Other"}


def test_a_result_compares_the_best_of_ours_with_the_best_peer() -> None:
    first, second, third = RESULTS
    assert (first.ours_name, second.ours_name) == ("tuned", "default")
    assert (first.ratio(), second.ratio(), third.ratio()) == (1.0, 8.0, None)
    assert first.ratio("default") == 2.0
    assert first.default_to_tuned == 0.8
    assert second.default_to_tuned is None


def test_side_by_side_has_every_peer_and_the_means() -> None:
    table = report.side_by_side("T", RESULTS, LABELS, [("GFLOP/s", report.gigaflops)])
    assert table.columns == (
        "case", "default", "tuned", "Peer", "Other", "÷ best", "÷ best (medians)", "default speed ÷ tuned",
        "GFLOP/s", "max. rel. error",
    )  # fmt: skip
    one, two, three, mean = table.rows
    assert one[:3] == ("A one", "2.00 µs (2.20 µs)", "1.00 µs (1.10 µs)")
    assert one[5:] == ("1.00", "1.00", "0.80", "1.0", "1.0e-06")
    assert two[2] == "–"
    assert three[1:5] == ("failed", "failed", "1.00 µs (1.10 µs)", "–")
    assert mean == ("geometric mean", "", "", "", "", "2.83", "2.83", "0.80", "", "1.0e-06")
    assert report.GAIN_NOTE in table.notes
    assert "three, autotune: BuildError: no code" in table.notes


def test_outputs_that_differ_are_pointed_out() -> None:
    wrong = replace(RESULTS[0], errors={"peer": 0.5, "other": float("nan")})
    notes = report.side_by_side("T", [wrong], LABELS).notes
    assert "one: our output and that of peer differ by 5.0e-01" in notes
    assert "one: our output and that of other differ by nan" in notes


def test_without_peers_there_are_no_ratios() -> None:
    table = report.side_by_side("T", [result("one", default=2000, copy=500)], {"copy": "copy"})
    assert table.columns == ("case", "default", "copy")
    percent = report.percent_of("copy")
    assert percent(result("one", default=2000, copy=500)) == "25"


def test_families_have_geometric_means() -> None:
    table = report.families("F", RESULTS, LABELS)
    assert table.columns == ("family", "cases", "÷ Peer", "÷ Other", "÷ best peer", "default speed ÷ tuned")
    assert table.rows == (
        ("A", "1", "1.00", "0.25", "1.00", "0.80"),
        ("B", "2", "4.00", "8.00", "8.00", "–"),
        ("all", "3", "2.00", "1.41", "2.83", "0.80"),
    )


def test_shares_of_a_floor_have_means_and_the_least() -> None:
    slow, fast = result("slow", default=4000, copy=1000), result("fast", "B", default=1000, copy=1000)
    table = report.floor_families("F", [slow, fast], "copy")
    assert table.columns == ("family", "cases", "% of copy, geometric mean", "least")
    assert table.rows == (("A", "1", "25", "25"), ("B", "1", "100", "100"), ("all", "2", "50", "25"))


def test_native_ratios_have_means_and_the_largest() -> None:
    timed = replace(RESULTS[0], readings={who: CompetitorResult(native_ns=ns) for who, ns in NATIVE.items()})
    table = report.native_families("N", [timed, RESULTS[1]], "peer")
    assert table.rows == (("A", "1", "0.50", "0.50"), ("B", "1", "–", "–"), ("all", "2", "0.50", "0.50"))
    assert report.native_of("peer")(timed) == "200 ns"
    assert report.native_ratio_to("peer")(timed) == "0.50"


def test_kernel_families_are_shares() -> None:
    table = report.kernel_families("K", RESULTS[:1])
    assert table.columns == ("model", "pool")
    assert table.rows == (("one", "100.0"),)


def test_family_gains_are_milliseconds_before_and_after() -> None:
    slow, fast = {"pool": 4e6, "softmax": 1e6}, {"pool": 2e6, "contraction": 5e5}
    readings = {"default": CompetitorResult(kinds=slow), "tuned": CompetitorResult(kinds=fast)}
    tuned = replace(RESULTS[0], readings=readings)
    table = report.family_gains("G", [tuned, RESULTS[1]])
    assert table is not None
    assert table.columns == ("model", "contraction", "pool", "softmax", "all")
    cells = ("0.00 → 0.50", "4.00 → 2.00", "1.00 → 0.00", "5.00 → 2.50")
    assert table.rows == (("one", *cells), ("all", *cells))
    assert report.family_gains("G", [RESULTS[1]]) is None


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
