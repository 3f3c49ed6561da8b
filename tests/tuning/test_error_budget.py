"""Error budgets: what texts mean, what errors and their intervals are, and inputs from files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from autotune.errors import InputError, UsageError
from autotune.frontends.model_builder import ModelBuilder
from autotune.graph.ir import Array
from autotune.tuning.measure.error_budget import (
    CHOICES,
    Accuracy,
    assured,
    cosine,
    expected,
    lost_labels,
    relative,
)
from autotune.tuning.measure.samples import Samples, input_shapes, random_samples, read_samples


@pytest.mark.parametrize(
    ("text", "kind", "limit"),
    [
        ("1e-2", "relative", 0.01),
        ("2%", "relative", 0.02),
        ("cosine=0.999", "cosine", 0.001),
        ("top1=0.5%", "top1", 0.005),
        ("top1=0.01", "top1", 0.01),
        ("top1=0", "top1", 0.0),
    ],
)
def test_texts_are_read_and_written(text: str, kind: str, limit: float) -> None:
    budget = Accuracy.of(text)
    assert budget.kind == kind
    assert budget.limit == pytest.approx(limit)
    again = Accuracy.of(str(budget))
    assert (again.kind, again.limit) == (kind, pytest.approx(limit))
    assert Accuracy.of(budget) is budget


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "nan", "inf", "good", "top1", "top1=", "top1=100%", "cosine=2", "top5=1%", "=1"]
)
def test_other_texts_are_one_error(text: str) -> None:
    with pytest.raises(UsageError) as found:
        Accuracy.of(text)
    assert str(found.value) == (
        f"accuracy {text!r} is no error budget\n  one of 1e-2 (the largest relative error of outputs), "
        "cosine=0.999 (the least cosine) and top1=0.5% (the share of labels that may be lost)"
    )


def test_the_worst_output_counts() -> None:
    reference = {"a": np.array([3.0, 4.0]), "b": np.array([1.0, 0.0])}
    outputs = {"a": np.array([3.0, 4.5]), "b": np.array([1.0, 0.3])}
    assert relative(reference, outputs) == pytest.approx(0.3)
    assert cosine(reference, outputs) == pytest.approx(1 - 1 / np.hypot(1, 0.3))
    assert relative(reference, reference) == cosine(reference, reference) == 0


def test_tiny_angles_are_not_lost() -> None:
    one = np.random.default_rng(0).standard_normal(1000)
    other = one + 1e-9 * np.random.default_rng(1).standard_normal(1000)
    assert 1e-19 < cosine({"y": one}, {"y": other}) < 1e-17


@pytest.mark.parametrize("bad", [[np.nan, 1.0], [np.inf, 1.0], [0.0, 0.0]])
def test_what_is_not_finite_or_zero_on_one_side_is_infinitely_far(bad: list[float]) -> None:
    good, odd = {"y": np.ones(2)}, {"y": np.array(bad)}
    assert relative(odd, good) == np.inf
    assert relative(odd, odd) == (np.inf if np.isnan(bad[0]) else 0)
    assert cosine(good, odd) == np.inf


def test_labels_that_are_lost() -> None:
    reference = {"y": np.eye(4)}
    outputs = {"y": np.eye(4)[[0, 1, 3, 2]]}
    assert lost_labels(reference, outputs) == 0.5
    assert lost_labels(reference, outputs, np.array([0, 1, 2, 0])) == pytest.approx(0.25)
    assert lost_labels(reference, outputs, np.array([0, 1, 3, 2])) == -0.5
    with pytest.raises(InputError, match="3 labels were given for the 4 rows of output 'y'"):
        lost_labels(reference, outputs, np.arange(3))


def test_a_function_with_a_limit() -> None:
    def apart(reference: Mapping[str, Array], outputs: Mapping[str, Array]) -> float:
        return float(np.abs(reference["y"] - outputs["y"]).max())

    budget = Accuracy.of((apart, 0.5))
    errors = budget.each([{"y": np.zeros(2)}] * 2, [{"y": np.ones(2)}, {"y": np.full(2, np.nan)}])
    assert errors.tolist() == [1.0, np.inf]
    assert not budget.judged(errors).holds


def test_the_mean_of_a_function_with_a_limit() -> None:
    def differs(reference: Mapping[str, Array], outputs: Mapping[str, Array]) -> float:
        return float(reference["y"].argmax() != outputs["y"].argmax())

    one, other = {"y": np.array([1.0, 0.0])}, {"y": np.array([0.0, 1.0])}
    budget = Accuracy.of((differs, 0.1, "mean"))
    errors = budget.each([one] * 20, [other, *[one] * 19])
    found = budget.judged(errors)
    assert (found.error, found.holds, expected(budget, errors, 100)) == (0.05, False, 0.05)
    assert found.bound == assured(budget, errors, 100) == pytest.approx(0.279, abs=1e-3)
    assert found.interval == pytest.approx((0.0013, 0.249), abs=1e-3)
    assert not Accuracy.of((differs, 0.1)).judged(errors).holds
    with pytest.raises(UsageError, match="is no error budget"):
        Accuracy.of((differs, 0.1, "median"))


def test_intervals_cover_what_they_are_of() -> None:
    """In 400 draws the 95 % interval of a median, and of a mean of lost labels, has it within in at least 93 %."""
    rng = np.random.default_rng(0)
    medians, means = 0, 0
    for _ in range(400):
        found = Accuracy.of("1").judged(rng.lognormal(-5, 1, 24)).interval
        assert found is not None
        medians += found[0] <= np.exp(-5) <= found[1]
        low, high = Accuracy.of("top1=1%").judged(
            rng.choice([1.0, 0.0, -1.0], 40, p=[0.1, 0.85, 0.05])
        ).interval or (1, 0)
        means += low <= 0.05 <= high
    assert medians >= 372
    assert means >= 372


def test_no_loss_in_a_few_inputs_does_not_say_that_there_is_none() -> None:
    found = Accuracy.of("top1=1%").judged(np.zeros(20))
    assert found.error == 0
    assert found.interval == (0, pytest.approx(1 - 0.025 ** (1 / 20)))
    worst = Accuracy.of("1e-2").judged(np.full(20, 1e-3))
    assert worst.within == pytest.approx(0.05 ** (1 / 20))
    assert Accuracy.of("1e-2").judged(np.full(3, 1e-3)).interval is None
    several = Accuracy.of((relative, 0.01, "mean")).judged(np.random.default_rng(0).uniform(0, 0.1, 50))
    assert several.interval is not None
    assert 0.03 < several.interval[0] < several.error < several.interval[1] < 0.07


def test_the_worst_of_further_inputs_is_expected_above_half_of_what_comes() -> None:
    rng, budget = np.random.default_rng(0), Accuracy.of("1e-2")
    held = 0
    for _ in range(1000):
        seen, further = rng.lognormal(-5, 0.3, (2, 16))
        held += further.max() <= expected(budget, seen, 16)
    assert 500 <= held <= 700
    assert expected(budget, np.array([0.1]), 5) == 0.1
    assert expected(budget, np.zeros(4), 5) == 0
    assert expected(Accuracy.of("top1=1%"), np.array([0.0, 1.0]), 5) == 0.5


def test_the_share_of_further_inputs_is_below_the_bound_of_the_best_of_several_choices() -> None:
    """In 2,000 draws, of choices of which each changes a label a little too often, one passes in at most 5 %."""
    rng, budget = np.random.default_rng(0), Accuracy.of("top1=2%")
    draws = (rng.random((2000, CHOICES, 400)) < 0.0201).astype(float)
    fewest = draws[np.arange(2000), draws.sum(-1).argmin(-1)]
    passed = sum(budget.judged(errors).holds for errors in fewest)
    assert 0 < passed <= 100
    assert (fewest.mean(-1) <= 0.02).mean() > 0.9, "which the shares of what was seen would let pass"


def test_so_many_input_sets_are_enough_as_are_asked_for() -> None:
    budget, one = Accuracy.of("top1=2%"), np.array([1.0, 0.0])
    with pytest.raises(InputError) as found:
        budget.check_enough(one, 64)
    assert str(found.value) == (
        "64 held-back input sets cannot show a mean error of at most 0.02: without any error among them that of others "
        "may be up to 0.066, with 95% confidence\n  give at least 434 input sets, or allow 0.067; half of the input "
        "sets are held back"
    )
    budget.check_enough(one, 217)
    assert budget.judged(np.zeros(217)).holds
    assert not budget.judged(np.zeros(216)).holds
    with pytest.raises(InputError, match=r"\n  allow 0\.067; half"):
        Accuracy.of("top1=0").check_enough(one, 64)


def test_errors_of_a_mean_that_are_small_need_few_inputs() -> None:
    budget = Accuracy.of((relative, 0.01, "mean"))
    errors = np.random.default_rng(0).uniform(0.004, 0.008, 32)
    budget.check_enough(errors, 32)
    found = budget.judged(errors)
    assert found.holds
    assert found.bound is not None
    assert found.error < found.bound < 0.008


def test_samples_split_in_two_always_alike() -> None:
    arrays = {"x": np.arange(10)[:, None], "labels": np.arange(10)}
    seen, held = Samples.of(arrays, {"x": (1, 1)}).split()
    again, _ = Samples.of(arrays, {"x": (1, 1)}).split()
    assert (len(seen.sets), len(held.sets)) == (5, 5)
    np.testing.assert_array_equal(seen.arrays["x"], again.arrays["x"])
    assert sorted([*seen.arrays["x"][:, 0], *held.arrays["x"][:, 0]]) == [*range(10)]
    for half in (seen, held):
        assert half.labels is not None
        assert [int(each[0]) for each in half.labels] == half.arrays["x"][:, 0].tolist()


def test_arrays_that_are_no_inputs_and_labels_that_do_not_fit_are_one_error() -> None:
    x = np.zeros((4, 2))
    with pytest.raises(
        InputError, match="the data has 'z', which is no input of the model\n  its inputs are x"
    ):
        Samples.of({"x": x, "z": x}, {"x": (1, 2)})
    with pytest.raises(
        InputError, match="'labels' are 3 of int64, not whole numbers, as many for each of the 4"
    ):
        Samples.of({"x": x, "labels": np.arange(3)}, {"x": (1, 2)})
    with pytest.raises(InputError, match="'labels' are 4 of float64"):
        Samples.of({"x": x, "labels": np.zeros(4)}, {"x": (1, 2)})


def test_files_of_a_folder_follow_one_another(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no \.npz files"):
        read_samples(tmp_path)
    for number in (1, 0):
        np.savez(tmp_path / f"{number}.npz", x=np.full((2, 3), number, np.float32), n=np.array(7))
    found = read_samples(tmp_path)
    assert found["x"][:, 0].tolist() == [0, 0, 1, 1]
    assert found["n"] == 7
    np.savez(tmp_path / "2.npz", x=np.zeros((2, 4), np.float32), n=np.array(7))
    with pytest.raises(InputError, match=r"2.npz: 'x' is float32 \(2, 4\), in 0.npz float32 \(2, 3\)"):
        read_samples(tmp_path)
    np.savez(tmp_path / "2.npz", y=np.zeros(3))
    with pytest.raises(InputError, match=r"2\.npz has y, but 0\.npz has n, x"):
        read_samples(tmp_path)


def test_random_inputs_are_of_the_models_types_and_shapes() -> None:
    b = ModelBuilder("open")
    x = b.input("x", ("batch", 3))
    model = b.finish([b.node("Relu", [x], "y")])
    found = random_samples(model, 5)
    assert (found["x"].shape, found["x"].dtype) == ((5, 3), np.float32)
    assert input_shapes(model, found) == {"x": (1, 3)}
    b = ModelBuilder("wide")
    wide = b.finish([b.node("Relu", [b.input("x", (1, "width"))], "y")])
    with pytest.raises(InputError, match="there is no data, and input 'x' leaves sizes open"):
        random_samples(wide)
