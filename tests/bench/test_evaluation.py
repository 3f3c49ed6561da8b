"""Cost models judged on recordings: tables, numbers, and a page that needs nothing else."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from autotune.bench.charts import Bars, Chart
from autotune.cli.main import run
from cost_models import contenders, folds
from cost_models.dataset import COLUMNS
from cost_models.evaluate import judge
from tests.bench.test_replay import made
from tests.cost_models.synthetic_runs import measured


def test_recordings_are_labelled_alone_or_as_a_job_scores_them() -> None:
    recording, raw = made(), made().today[1]
    alone, inside = (recording.training_table(inside=choice) for choice in (False, True))
    assert tuple(alone) == COLUMNS
    np.testing.assert_array_equal(alone.ratio, raw.ratio)
    read = raw.inside.notna()
    np.testing.assert_array_equal(inside.ratio[read], raw.inside[read])
    np.testing.assert_array_equal(inside.ratio[~read], np.maximum(1, raw.ratio[~read]))
    assert inside.noise[read].max() < alone.noise.min(), "rounds inside a model say more"


def test_recordings_that_were_not_read_inside_a_model_keep_what_is_faster_than_the_default() -> None:
    recording = made()
    unread = replace(recording, table=recording.table.assign(inside=np.nan))
    assert unread.table.ratio.min() < 1
    np.testing.assert_array_equal(unread.training_table(inside=True).ratio, unread.table.ratio)


def test_contenders_are_judged_on_what_they_have_not_seen() -> None:
    data = measured().take(measured().valid)
    names = (contenders.RANDOM, contenders.ANALYTIC, contenders.KNOBS, "pairs")
    found = contenders.scores(data, folds.by_workload(data.workloads, ""), names, rounds=15)
    pairwise = {name: judge(scores, data).interval("pairwise") for name, scores in found.items()}
    assert pairwise["random"].low < 0.5 < pairwise["random"].high
    assert pairwise["random"].high < pairwise["analytic"].low
    assert pairwise["analytic"].high < pairwise["pairs"].low
    assert pairwise["analytic"].high < pairwise["knobs"].low, "the hidden cost is one of knobs"


def test_evaluate_prints_tables_and_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = Path(__file__).parent.parent.parent / "results" / "runs" / "avx512-zen5"
    few = tmp_path / "few"
    few.mkdir()
    for name in ("encoder-002-attention-separate-attention-000-transpose", "squeezenet-001-conv-add-relu"):
        (few / f"{name}.parquet").write_bytes((results / f"{name}.parquet").read_bytes())
    page = tmp_path / "page.html"
    arguments = [
        "models",
        "evaluate",
        "--recordings",
        str(few),
        "--rounds",
        "5",
        "--json",
        "--html",
        str(page),
    ]
    assert run([*arguments, "--rankings", "random,analytic"]) == 0
    found = json.loads(capsys.readouterr().out)["data"]
    assert [one["held out by"] for one in found] == ["workload", "model"]
    assert found[0]["judged"]["analytic"]["workloads"] == 2
    assert set(found[0]["judged"]["analytic"]["models"]) == {"encoder", "squeezenet"}
    text = page.read_text()
    assert text.count("<svg") == 5
    assert not re.search(r"<script|href=|src=|url\(", text)
    for svg in re.findall(r"<svg.*?</svg>", text):
        ElementTree.fromstring(svg)


def test_what_is_unknown_or_too_little_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made().write(tmp_path)
    assert run(["models", "evaluate", "--recordings", str(tmp_path), "--rankings", "oracle"]) == 2
    assert "unknown ranking 'oracle'" in capsys.readouterr().err
    assert run(["models", "evaluate", "--recordings", str(tmp_path)]) == 2
    assert "fewer than two workloads have runs" in capsys.readouterr().err


def test_charts_stay_on_the_paper_and_escape_names() -> None:
    line = (np.asarray([1.0, 2.0]), np.asarray([5.0, 5.0]))
    for drawn in (
        Chart("t", "x", "y", {"<a>": line, "b": line}),
        Chart("t", "x", "y", {"a": (np.zeros(0), np.zeros(0))}, dots=True, diagonal=True),
        Bars("t", {"a&b": 1.0, "c": 0.0}),
        Bars("t", {}),
    ):
        assert "nan" not in drawn.svg()
        ElementTree.fromstring(drawn.svg())
