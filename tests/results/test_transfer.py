"""``python -m results.bench transfer``: its shapes, and a small version of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from autotune.bench.experiment import frame_of
from autotune.cli import main as cli
from autotune.compiler import Compilation, divide
from autotune.compiler.tiers import Tier
from autotune.database import Database
from autotune.database.near import sizes_of
from autotune.database.records import SAME_CODE, Ratio
from autotune.graph.ir import Graph
from autotune.target import Target
from autotune.tuning.measure.whole_model import Profile
from results.bench import neighbours, transfer
from results.bench.__main__ import command
from results.bench.transfer import Expectation, Row
from tests.compiler.test_tiers import tuned


@pytest.mark.parametrize("family", neighbours.PAIRS)
def test_what_was_tuned_is_of_the_same_structure_in_other_sizes(family: str) -> None:
    pairs = neighbours.pairs([family])[family]
    known, asked = (
        [d.workload for d in divide(neighbours.model(family, shapes)).dispatches]
        for shapes in ([pair.known for pair in pairs], [pair.asked for pair in pairs])
    )
    assert len(known) == len(asked) == len(pairs) == 3
    assert not {w.key for w in known} & {w.key for w in asked}
    assert [sizes_of(w.text).structure for w in known] == [sizes_of(w.text).structure for w in asked]


SHAPES = count(1)


def row(asked: Ratio, *expectations: Expectation, tier: Tier = Tier.SHAPE) -> Row:
    default = Ratio(1.25, (1.2, 1.3))
    return Row(
        "softmax",
        (8, 8),
        (next(SHAPES), 8),
        (tier.value,),
        ("direct", "direct"),
        1e3,
        asked,
        default,
        expectations,
    )


def test_means_are_of_speeds_and_of_what_a_neighbour_serves() -> None:
    found = [
        row(SAME_CODE, Expectation("nearest shape", 1e3, 1.2e3)),
        row(Ratio(1.21, (1.1, 1.3)), Expectation("nearest shape", 1e3, 5e3, 0.8, 0.7)),
        row(Ratio(2.0, (1.9, 2.1)), tier=Tier.ANALYTIC),
    ]
    assert [Row.from_json(json.loads(json.dumps(one.to_json()))) for one in found] == found
    table, expected = transfer.EXPERIMENT.tables(frame_of(transfer.records_of(found, 2)))
    assert table.title == "Speed, 2 threads"
    assert [line[5] for line in table.rows[:3]] == ["1.00", "0.83 (0.77 to 0.91)", "0.50 (0.48 to 0.53)"]
    nearest, every = table.rows[3:]
    assert (nearest[0], every[0]) == ("nearest shape", "all")
    assert nearest[5].startswith("0.909 ")
    assert table.notes[0] == "nearest shape: the 2 of 3 shapes that a neighbour serves"
    assert {line[0]: line[1::4] for line in expected.rows} == {
        "ratio to the default": ("1", "1 of 1"),
        "latency": ("2", "1 of 2"),
    }
    unserved = transfer.EXPERIMENT.tables(frame_of(transfer.records_of(found[2:], 2)))[0].rows[1]
    assert (unserved[0], *unserved[5:]) == ("nearest shape", "–", "–")


def fake_job(graph: Graph, *, database: Path, threads: int, **_: object) -> None:
    """Return the remains of a job that found half the default's latency for a known shape, and nothing for another."""
    with Database(database) as store:
        for dispatch in divide(graph).dispatches:
            gain = 0.5 if "known" in database.name else 1.0
            tuned(store, dispatch.workload, Target.parse("host", threads), gain)


def fake_readings(versions: Sequence[Compilation], processes: int) -> list[Profile]:
    """The default takes 1000 ns, a neighbour's schedule 600 and what its own job left 500."""
    return [
        Profile([(d.name, d.workload.key) for d in version.partition.dispatches], np.full((30, 1), ns))
        for version, ns in zip(versions, (1000.0, 600.0, 500.0), strict=True)
    ]


def test_a_family_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "tune", fake_job)
    monkeypatch.setattr(transfer, "_profiles", fake_readings)
    pairs = neighbours.pairs(["softmax"], 1)
    ((found,),) = transfer.measured(pairs, 8, 1, 6, tmp_path)
    assert (found.known, found.shape, found.tuned_ns) == ((512, 512), (512, 384), 500)
    assert (found.tiers, found.options) == ((Tier.SHAPE.value,), ("direct", "direct"))
    assert (found.asked.median, found.default) == (1.2, SAME_CODE)
    (expectation,) = found.expectations
    assert (expectation.ns, expectation.ratio) == (600, 0.6)
    assert expectation.expected_ratio is not None
    monkeypatch.setattr(transfer, "tune", None)
    assert [*transfer.measured(pairs, 8, 1, 6, tmp_path)] == [[found]]


@pytest.mark.slow
def test_one_shape_of_a_few_trials(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_HOME", str(tmp_path / "home"))
    page = tmp_path / "transfer.md"
    options = ["--shapes", "1", "--trials", "8", "--processes", "1", "--threads", "1", "--json"]
    assert (
        cli.run(["transfer", "softmax", *options, "-o", str(page)], command, "python -m results.bench") == 0
    )
    row, *_ = json.loads(capsys.readouterr().out)["data"]
    assert row["tuned_ns"] > 0
    assert set(row["tiers"]) <= {Tier.SHAPE.value, Tier.ANALYTIC.value}
    assert "| softmax 512×384 | 512×512 |" in page.read_text(encoding="utf-8")
