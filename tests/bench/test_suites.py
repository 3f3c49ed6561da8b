"""Both forms of every problem compute the same, and the suite has the operators it promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from autotune.bench.problem import BenchmarkCase, Problem
from autotune.bench.suites import gemm, models, operators
from autotune.bench.suites.convolutions import Convolution, capsule, convolution, transposed
from autotune.bench.suites.dense import attention_scores, matmul, norm, softmax
from autotune.compiler import divide
from autotune.graph import evaluate
from results.bench import memory_operators as memory
from results.bench.quantised import operators as quantised

SMALL: dict[str, Callable[[], Problem]] = {
    "1-D": lambda: convolution(Convolution((9,), 4, 6, 3, 2, 1), 0),
    "2-D": lambda: convolution(Convolution((7, 6), 3, 5, 3, 2, 1), 1),
    "3-D": lambda: convolution(Convolution((4, 5, 6), 2, 3, 3, 1, 1), 2),
    "grouped": lambda: convolution(Convolution((6, 6), 8, 4, 3, 1, 1, groups=4), 3),
    "dilated": lambda: convolution(Convolution((9, 9), 3, 4, 3, 1, 2, dilation=2), 4),
    "depthwise": lambda: convolution(Convolution((6, 6), 5, 5, 3, 2, 1, groups=5), 5),
    "batch norm": lambda: convolution(Convolution((6, 6), 3, 4, 3, 1, 1), 6, normalised=True),
    "transposed": lambda: transposed(Convolution((3, 4), 5, 17, 4, 2, 1), 7),
    "transposed, few outputs": lambda: transposed(Convolution((3, 4), 5, 2, 4, 2, 1), 7),
    "transposed, 1-D": lambda: transposed(Convolution((5,), 4, 3, 3, 2, 1), 7),
    "capsule": lambda: capsule(Convolution((6, 5), 2, 3, 3, 2, 1), 8),
    "matmul": lambda: matmul((4, 5, 6), 9, batch=(2,)),
    "scores": lambda: attention_scores((2, 5, 3, 4), 10),
    "norm": lambda: norm((2, 5, 6), 11),
    "softmax": lambda: softmax((5, 6), 12),
}


def both(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Outputs of our graph, and of the peers' model in our layout, by NumPy."""
    results = evaluate.run(problem.graph, problem.inputs)
    (ours,) = (results[name] for name in problem.graph.outputs)
    feeds = {name: problem.peer_input(name) for name in problem.inputs}
    (theirs,) = ReferenceEvaluator(problem.model).run(None, feeds)
    return ours, problem.our_output(theirs)


@pytest.mark.parametrize("build", SMALL.values(), ids=SMALL.keys())
def test_both_forms_of_an_operator_agree(build: Callable[[], Problem]) -> None:
    ours, theirs = both(build())
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", list(memory.cases(0.05)), ids=lambda case: f"{case.family} {case.name}")
def test_both_forms_of_a_memory_operator_agree(case: BenchmarkCase) -> None:
    ours, theirs = both(case.build())
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_the_suite_has_four_operators_a_family() -> None:
    counts = Counter(case.family for case in operators.cases())
    assert set(counts) == set(operators.FAMILIES) == set(operators.SHAPES)
    assert {family: n for family, n in counts.items() if family != "ODD"} == dict.fromkeys(
        [family for family in operators.FAMILIES if family != "ODD"], 4
    )
    names = [f"{case.family} {case.name}" for case in operators.cases()]
    assert len(set(names)) == len(names)
    assert "T2D (1,32,32,64,3,4,2,1)" in names


def test_operators_are_the_same_every_time_and_differ_from_each_other() -> None:
    first, again = (operators.case("C2D", (1, 7, 7, 8, 8, 3, 1, 1)).build() for _ in range(2))
    other = operators.case("C2D", (1, 7, 7, 8, 8, 1, 1, 0)).build()
    np.testing.assert_array_equal(first.inputs["x"], again.inputs["x"])
    np.testing.assert_array_equal(first.graph.constants["w"], again.graph.constants["w"])
    assert not np.array_equal(first.inputs["x"], other.inputs["x"])


def test_operations_and_bytes_are_those_of_the_operator() -> None:
    problem = operators.case("GMM", (1, 8, 16, 4)).build()
    assert problem.flops == 2 * 8 * 16 * 4
    assert problem.bytes == 4 * (8 * 4 + 4 * 16 + 8 * 16)
    assert len(divide(problem.graph).dispatches) == 1


def test_the_smallest_of_a_family_is_the_one_with_fewest_operations() -> None:
    (case,) = operators.smallest(operators.cases(["SFM"]))
    assert case.name == "(256,256)"


def test_sizes_of_products_are_square_or_odd() -> None:
    found = {case.name: case.family for case in gemm.cases((512, 13, 1000))}
    assert found == {"matmul 512": "square", "matmul 13": "odd", "matmul 1000": "odd"}


def test_quantised_problems_have_float32_twins_of_as_many_operations() -> None:
    found = {(case.family, case.name): case for case in quantised.cases()}
    for image in quantised.IMAGES[3:9:5]:
        integer, real = (found[family, str(image)].build() for family in (quantised.INTEGER, quantised.FLOAT))
        assert integer.flops == pytest.approx(real.flops, rel=0.1)  # but for the bias
    assert quantised.matmul(256, quantised.INTEGER).flops == 2 * 256**3


def test_a_model_is_the_same_for_everybody() -> None:
    problem = models.model("tiny_cnn").build()
    assert problem.model is not None
    assert [value.name for value in problem.model.graph.input] == list(problem.graph.inputs)
    assert set(models.DEFAULT).isdisjoint({"tiny_cnn"})
