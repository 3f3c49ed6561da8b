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
        (TimeSource.ESTIMATED, 0.99 / DOUBT, "winograd F(2x2)"),
        (TimeSource.ESTIMATED, 1.01 / DOUBT, "direct"),
    ],
)
def test_an_estimate_must_be_clearly_better(monkeypatch, source, of_direct, name):
    b = GraphBuilder("windows")
    w = b.constant("w", np.ones((3, 3, 8, 8), np.float32))
    y = b.node("Conv", b.input("x", (1, 12, 12, 8)), w, layout="NHWC")
    workload = divide(b.graph(b.node("Relu", y, name="y"))).dispatches[0].workload
    direct, other = options_of(workload, speculative=False)[:2]
    times = [OptionTime(direct, 100.0, source), OptionTime(other, 100.0 * of_direct, source)]
    monkeypatch.setattr(estimate, "estimated", lambda *_: times)
    (found,) = rank([workload], Target.parse("x86-64-v3"), None, Preference()).values()
    assert found.chosen.name == name
    assert len(found.promising) == 2


def test_speculative_algorithms_are_estimated_for_tuning_only():
    b = GraphBuilder("strided")
    w = b.constant("w", np.ones((1, 1, 64, 32), np.float32))
    y = b.node("Conv", b.input("x", (1, 24, 24, 64)), w, layout="NHWC", strides=(2, 2))
    workload = divide(b.graph(b.node("Relu", y, name="y"))).dispatches[0].workload
    target = Target.parse("x86-64-v3")

    def found(preference: Preference, within: float = 1.0) -> Ranking | None:
        return rank([workload], target, None, preference, within=within).get(workload.key)

    assert found(Preference()) is None, "there is nothing to choose from"
    tuned, alone = found(Preference(), within=10.0), found(Preference(algorithm="implicit GEMM"))
    assert tuned is not None
    assert alone is not None
    assert {time.source for time in alone.times} == {TimeSource.ESTIMATED}
    assert {time.option.name: time.source for time in tuned.times}["implicit GEMM"] is TimeSource.ESTIMATED
    assert alone.chosen.name == "implicit GEMM"
