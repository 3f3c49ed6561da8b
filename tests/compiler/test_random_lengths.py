"""Random graphs that compute lengths are refused, or right: whatever is found, ONNX's reference finds too."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from autotune.compiler.dynamic.load import load
from autotune.errors import ModelImportError
from autotune.graph import evaluate
from autotune.runtime.counted import CountedOutput, parts
from tests.compiler.random_lengths import LengthGraph
from tests.seeds import seeds

BLOCK, REFUSED = 10, 7


def is_right(seed: int) -> bool:
    """Check one graph; return whether it could be loaded."""
    grown = LengthGraph(seed)
    made = grown.model()
    try:
        graph = load(made)
    except ModelImportError:
        return False
    reference = ReferenceEvaluator(made)
    for x in grown.requests():
        values = evaluate.run(graph, {"x": x})
        found = parts([values[name] for name in graph.outputs], [CountedOutput(*c) for c in graph.counted])
        for name, one, wanted in zip(graph.outputs, found, reference.run(None, {"x": x}), strict=False):
            np.testing.assert_allclose(one, wanted, 1e-3, 1e-3, err_msg=f"seed {seed}, {name}")
    return True


@pytest.mark.parametrize("block", seeds(1, 60))
def test_lengths_are_those_of_the_reference(block: int) -> None:
    right = sum(map(is_right, range(BLOCK * block, BLOCK * block + BLOCK)))
    assert right >= BLOCK - REFUSED
