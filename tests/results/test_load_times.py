"""What `python -m results.bench load` measures: lives of processes, and the tables of them."""

from __future__ import annotations

from autotune.bench.suites import models
from results.bench import load_times
from results.bench.load_times import MAPPED, OURS, PEER, PREPARED, SMALL, Life, Loading


def test_lives_of_a_small_model() -> None:
    (case,) = models.models(["tiny_cnn"])
    said: list[str] = []
    found = load_times.measure([case], [], 1, 1, said.append)
    assert [(each.model, each.system, len(each.lives)) for each in found] == [
        ("tiny_cnn", OURS, 1),
        ("tiny_cnn", MAPPED, 1),
        ("tiny_cnn", SMALL, 1),
    ]
    assert said == ["tiny_cnn: compiled, then loaded 1 times"]
    for each in found:
        assert each.typical("peak_bytes") >= each.typical("uss_bytes") > 1 << 20
        assert each.typical("total_ns") > each.typical("load_ns") > 0


def test_tables_compare_each_of_ours_with_each_of_the_peers() -> None:
    def loading(system: str, scale: int) -> Loading:
        return Loading("m", system, (Life(*(scale * 10**6,) * 7),))

    found = [loading(OURS, 1), loading(MAPPED, 2), loading(SMALL, 3), loading(PEER, 4), loading(PREPARED, 5)]
    first, *ratios = load_times.tables(found, "2 threads")
    assert [row[0] for row in first.rows] == [f"m, {each.system}" for each in found]
    assert [table.title for table in ratios] == [
        f"{own} ÷ {peer}, 2 threads" for own in (OURS, MAPPED, SMALL) for peer in (PEER, PREPARED)
    ]
    assert ratios[3].rows[0] == ("m", *["0.40"] * 6)
