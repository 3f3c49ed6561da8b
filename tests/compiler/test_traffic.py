"""Sizes of requests: files of them are checked, buckets chosen by them pad least, and the budget follows them."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from onnx import TensorProto, helper

import autotune
from autotune.cli import main as cli
from autotune.compiler.dynamic.buckets import SizeRange
from autotune.compiler.dynamic.traffic import RequestTraffic, least_padding
from autotune.errors import UsageError
from autotune.tuning.jobs import tune_sizes
from autotune.tuning.jobs.budget import Budget


def file(tmp_path, *lines):
    path = tmp_path / "traffic.jsonl"
    path.write_text("\n".join(lines))
    return path


def sums():
    """Sums along an open axis: with padding there is a mask."""
    graph = helper.make_graph(
        [helper.make_node("ReduceSum", ["x"], ["s"], keepdims=1), helper.make_node("Div", ["x", "s"], ["y"])],
        "sums",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_chosen_buckets_pad_least_of_all_choices(most):
    rng = np.random.default_rng(most)
    for _ in range(20):
        sizes = rng.choice(np.arange(1, 40), 7, replace=False).tolist()
        counts = {size: int(rng.integers(0, 9)) for size in sizes}

        def padding(buckets, counts=counts):
            return sum(n * (min(b for b in buckets if b >= size) - size) for size, n in counts.items())

        found = least_padding(counts, most)
        assert len(found) <= most
        assert found[-1] == max(sizes)
        choices = [(*c, max(sizes)) for k in range(most) for c in combinations(sorted(sizes)[:-1], k)]
        assert padding(found) == min(map(padding, choices))


def test_ranges_and_weights(tmp_path):
    path = file(tmp_path, '{"sizes": {"n": 3, "m": 1}, "count": 9}', "", '{"sizes": {"m": 8, "n": 5}}')
    traffic = RequestTraffic.read(path)
    ranges = traffic.ranges({"n": SizeRange.parse("1..9"), "m": SizeRange.parse("1..8:4,8")}, 2)
    assert {symbol: each.buckets for symbol, each in ranges.items()} == {"n": (3, 9), "m": (4, 8)}
    assert traffic.weights(ranges) == Counter({(3, 4): 9, (9, 8): 1})
    assert traffic.ranges({"n": SizeRange.parse("0..9"), "m": SizeRange.parse("1..8")}, 9)["n"].buckets == (
        3,
        5,
        9,
    )


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([], "has no requests; a line is "),
        (["seq 17"], r"traffic\.jsonl:1 is no JSON"),
        (['{"sizes": {"n": 1}}', '{"n": 3}'], r'traffic\.jsonl:2 is no request: {"n": 3}'),
        (['{"sizes": {"n": -1}}'], "is no request"),
        (['{"sizes": {"n": true}}'], "is no request"),
        (['{"sizes": {"n": 1}, "count": 0}'], "is no request"),
        (['{"sizes": {"n": 1}, "often": 1}'], "is no request"),
        (['{"sizes": {}}'], "is no request"),
        (["[" * 100000], "is no JSON"),
        (['{"sizes": {"n": 10}}'], r"has a request of n = 10; the range is 1\.\.9"),
        (['{"sizes": {"m": 1}}'], "has requests of m, the ranges are of n"),
    ],
)
def test_wrong_files(tmp_path, lines, why):
    with pytest.raises(UsageError, match=why):
        RequestTraffic.read(file(tmp_path, *lines)).ranges({"n": SizeRange.parse("1..9")}, 2)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        RequestTraffic.read(tmp_path / "none")
    with pytest.raises(UsageError, match="at least 1 bucket"):
        autotune.compile_for_sizes(
            sums(), {"n": "1..9"}, traffic=RequestTraffic((({"n": 1}, 1),)), most_buckets=0
        )


def test_shares_of_the_budget():
    parts = list(tune_sizes._divided(["a", "b", "c"], [1.0, 0.0, 3.0], Budget(trials=8), 0.0))
    assert [(bucket, share, part and part.trials) for bucket, share, part in parts] == [
        ("c", 0.75, 6),
        ("a", 0.25, 2),
        ("b", 0.0, None),
    ]


@pytest.mark.usefixtures("shared_pools")
def test_buckets_are_tuned_and_their_schedules_used(tmp_path, capsys):
    """From the command line: the mask is part of the workload, and found again by `compile`."""
    path, database = tmp_path / "sums.onnx", f"sqlite:///{tmp_path / 't.db'}"
    path.write_bytes(sums().SerializeToString())
    traffic = str(file(tmp_path, '{"sizes": {"n": 5}, "count": 3}', '{"sizes": {"n": 6}, "count": 2}'))
    common = [str(path), "--shape", "n=1..40", "--traffic", traffic, "--buckets", "2", "--db", database]
    assert cli.run(["tune", *common, "--trials", "2", "--threads", "1"]) == 0
    said = capsys.readouterr().out
    assert "tuning for n = 6: 100 % of the budget, 2 trials" in said
    assert "not tuning for n = 40: no request takes this bucket" in said
    artifact = str(tmp_path / "sums.atm")
    assert cli.run(["compile", *common, "-o", artifact, "--threads", "1"]) == 0
    _, first, second = re.split("for n = ", capsys.readouterr().out)
    assert "schedules: 2 exact" in first
    assert "schedules: 2 analytic" in second
    with autotune.load(artifact) as module:
        assert module.sizes == {"n": [6, 40]}
        x = np.ones((5, 8), np.float32)
        np.testing.assert_allclose(module(x)[0], x / 40, rtol=1e-6)
