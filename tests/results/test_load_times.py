"""The measurements of `python -m results.bench load`: lives of processes, and the tables of them."""

from __future__ import annotations

from autotune.bench.experiment import FrameRows, Record, frame_of
from results.bench import load_times
from results.bench.load_times import MAPPED, OURS, PEER, PREPARED, SMALL, typical

TIMES = ("import_ns", "load_ns", "run_ns", "total_ns", "processor_ns", "pss_bytes", "uss_bytes", "peak_bytes")


def test_lives_of_a_small_model() -> None:
    said: list[str] = []
    (found,) = load_times.measure(said.append, ["tiny_cnn"], 1, 1, "none", [])
    assert [(each["model"], each["system"], each["round"]) for each in found] == [
        ("tiny_cnn", OURS, 1),
        ("tiny_cnn", MAPPED, 1),
        ("tiny_cnn", SMALL, 1),
    ]
    assert said == ["tiny_cnn: compiled, then loaded 1 times"]
    for each in found:
        assert each["peak_bytes"] >= each["uss_bytes"] > 1 << 20
        assert each["total_ns"] > each["load_ns"] > 0


def test_tables_compare_each_of_ours_with_each_of_the_peers() -> None:
    systems = {OURS: 1, MAPPED: 2, SMALL: 3, PEER: 4, PREPARED: 5}
    found: list[Record] = [
        {"model": "m", "threads": 2, "system": name, **dict.fromkeys(TIMES, scale * 10**6)}
        for name, scale in systems.items()
    ]
    first, *ratios = load_times.EXPERIMENT.tables(frame_of(found))
    assert [row[0] for row in first.rows] == [f"m, {name}" for name in systems]
    assert [table.title for table in ratios] == [
        f"{own} ÷ {peer}, 2 threads" for own in (OURS, MAPPED, SMALL) for peer in (PEER, PREPARED)
    ]
    assert ratios[3].rows[0] == ("m", *["0.40"] * 6)
    assert len(load_times.EXPERIMENT.tables(frame_of(found[:3]))) == 1, "there is nobody to compare with"


def test_the_median_of_lives_is_typical() -> None:
    rows = FrameRows([{"load_ns": ns} for ns in (3, 1, 2)])
    assert typical("load_ns")(rows) == 2
