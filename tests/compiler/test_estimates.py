"""Estimates choose an algorithm only where they are clearly better than that of the direct way."""

import numpy as np
import pytest

from autotune.compiler import divide, estimate
from autotune.compiler.decision import DOUBT, decide
from autotune.compiler.standing import Source, Standing
from autotune.graph.build import GraphBuilder
from autotune.passes.alternatives import alternatives_of
from autotune.passes.preference import Preference
from autotune.target import Target


@pytest.mark.parametrize(
    ("source", "of_direct", "name"),
    [
        (Source.ESTIMATED, 0.99 / DOUBT, "matrix product"),
        (Source.ESTIMATED, 1.01 / DOUBT, "direct"),
        (Source.TOGETHER, 0.99, "matrix product"),
    ],
)
def test_an_estimate_must_be_clearly_better(monkeypatch, source, of_direct, name):
    b = GraphBuilder("pointwise")
    y = b.node("Conv", b.input("x", (1, 8, 5, 5)), b.constant("w", np.ones((8, 8, 1, 1), np.float32)))
    workload = divide(b.graph(b.node("Relu", y, name="y"))).dispatches[0].workload
    direct, product = alternatives_of(workload)
    standings = [Standing(direct, 100.0, source), Standing(product, 100.0 * of_direct, source)]
    monkeypatch.setattr(estimate, "estimated", lambda *_: standings)
    found = decide(workload, Target.parse("x86-64-v3"), None, Preference())
    assert found is not None
    assert found.chosen.name == name
    assert len(found.promising) == 2


def test_speculative_algorithms_are_estimated_for_tuning_only():
    b = GraphBuilder("strided")
    w = b.constant("w", np.ones((1, 1, 64, 32), np.float32))
    y = b.node("Conv", b.input("x", (1, 12, 12, 64)), w, layout="NHWC", strides=(2, 2))
    workload = divide(b.graph(b.node("Relu", y, name="y"))).dispatches[0].workload
    target = Target.parse("x86-64-v3")
    untuned = decide(workload, target, None, Preference())
    tuned = decide(workload, target, None, Preference(), within=10.0)
    alone = decide(workload, target, None, Preference(algorithm="implicit GEMM"))
    assert untuned is not None
    assert tuned is not None
    assert alone is not None
    last = untuned.standings[-1]
    assert (last.alternative.name, last.source) == ("implicit GEMM", Source.FLOOR)
    assert {s.source for s in (*tuned.standings, *alone.standings)} == {Source.ESTIMATED}
    assert alone.chosen.name == "implicit GEMM"
