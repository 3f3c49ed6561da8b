"""Estimates choose an algorithm only where they are clearly better than that of the direct way."""

import numpy as np
import pytest

from autotune.compiler import divide, estimate
from autotune.compiler.estimate import OptionTime, TimeSource
from autotune.compiler.plan import DOUBT, Ranking, rank
from autotune.graph.build import GraphBuilder
from autotune.passes.options import options_of
from autotune.passes.preference import Preference
from autotune.target import Target


@pytest.mark.parametrize(
    ("source", "of_direct", "name"),
    [
        (TimeSource.ESTIMATED, 0.99 / DOUBT, "matrix product"),
        (TimeSource.ESTIMATED, 1.01 / DOUBT, "direct"),
    ],
)
def test_an_estimate_must_be_clearly_better(monkeypatch, source, of_direct, name):
    b = GraphBuilder("pointwise")
    y = b.node("Conv", b.input("x", (1, 8, 5, 5)), b.constant("w", np.ones((8, 8, 1, 1), np.float32)))
    workload = divide(b.graph(b.node("Relu", y, name="y"))).dispatches[0].workload
    direct, product = options_of(workload, speculative=False)
    times = [OptionTime(direct, 100.0, source), OptionTime(product, 100.0 * of_direct, source)]
    monkeypatch.setattr(estimate, "estimated", lambda *_: times)
    (found,) = rank([workload], Target.parse("x86-64-v3"), None, Preference()).values()
    assert found.chosen.name == name
    assert len(found.promising) == 2


def test_speculative_algorithms_are_estimated_for_tuning_only():
    b = GraphBuilder("strided")
    w = b.constant("w", np.ones((1, 1, 64, 32), np.float32))
    y = b.node("Conv", b.input("x", (1, 12, 12, 64)), w, layout="NHWC", strides=(2, 2))
    workload = divide(b.graph(b.node("Relu", y, name="y"))).dispatches[0].workload
    target = Target.parse("x86-64-v3")

    def found(preference: Preference, within: float = 1.0) -> Ranking | None:
        return rank([workload], target, None, preference, within=within).get(workload.key)

    untuned = found(Preference())
    assert untuned is not None
    assert "implicit GEMM" not in {time.option.name for time in untuned.times}
    tuned, alone = found(Preference(), within=10.0), found(Preference(algorithm="implicit GEMM"))
    assert tuned is not None
    assert alone is not None
    assert {time.source for time in alone.times} == {TimeSource.ESTIMATED}
    assert {time.option.name: time.source for time in tuned.times}["implicit GEMM"] is TimeSource.ESTIMATED
    assert alone.chosen.name == "implicit GEMM"
