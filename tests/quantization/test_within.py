"""Quantised models keep their error budget on inputs that they have not seen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

import numpy as np
import onnx
import pytest

from autotune.cli import main
from autotune.compiler.request import CompileRequest
from autotune.errors import InputError, UsageError
from autotune.frontends import zoo
from autotune.frontends.model_builder import ModelBuilder
from autotune.graph.ir import Array
from autotune.quantization.latencies import MixedModel
from autotune.quantization.precision import FLOAT32, INT8
from autotune.quantization.quantize import CalibratedModel, calibrate_model
from autotune.quantization.switched import SwitchedModel
from autotune.quantization.within import PrecisionSearch, quantize_within
from autotune.tuning.api import compile
from autotune.tuning.measure import error_budget
from autotune.tuning.measure.error_budget import Accuracy, relative
from autotune.tuning.measure.samples import Samples, input_shapes, outputs_of

SIDE = (3, 16, 16)


def images(sets: int, seed: int = 0) -> dict[str, Array]:
    return {"x": np.random.default_rng(seed).standard_normal((sets, *SIDE), dtype=np.float32)}


def errors_of(
    model: onnx.ModelProto, quantised: onnx.ModelProto, given: Mapping[str, Array], accuracy: Accuracy
) -> Array:
    """Return the error of each input set, by both models as they are compiled."""
    samples = Samples.of(given, input_shapes(model, given))
    outputs = [outputs_of(compile(each, threads=1), samples.sets) for each in (model, quantised)]
    return accuracy.each(outputs[0], outputs[1], samples.labels)


@pytest.fixture(scope="module")
def tiny() -> CalibratedModel:
    return calibrate_model(zoo.load("tiny_cnn"), images(8), threads=1)


def test_a_switched_model_computes_what_the_quantised_one_does(tiny: CalibratedModel) -> None:
    """All in float32 outputs are the model's, and of single layers within half of what the layer changes."""
    feeds = [{"x": each[None]} for each in images(4, 1)["x"]]
    model = SwitchedModel(tiny, images(1), threads=1)
    plain = model.run(feeds, model.products)
    wanted = compile(zoo.load("tiny_cnn"), threads=1)
    for feed, outputs in zip(feeds, plain, strict=True):
        assert relative(wanted.run(feed), outputs) < 1e-5
    for product in model.products[::3]:
        floats = [other for other in model.products if other != product]
        quantised = compile(tiny.written(floats).model, threads=1)
        for feed, before, outputs in zip(feeds, plain, model.run(feeds, floats), strict=True):
            assert relative(quantised.run(feed), outputs) < 0.5 * relative(before, outputs) + 1e-6


def test_what_is_written_for_all_layers_is_what_quantize_writes(tiny: CalibratedModel) -> None:
    some = tiny.written(tiny.choice().products[0].output[:1])
    assert tiny.written().products == some.products + 1 == len(tiny.choice().products)


@pytest.mark.parametrize("budget", ["6e-3", "cosine=0.99998"])
def test_the_budget_holds_on_other_inputs(budget: str) -> None:
    accuracy, model = Accuracy.of(budget), zoo.load("tiny_cnn")
    found = quantize_within(model, images(24), accuracy, threads=1)
    assert found.chosen_by.holds
    assert found.held_back.holds
    assert found.held_back.sets == 12
    assert found.floats
    assert found.quantization.products
    others = errors_of(model, found.quantization.model, images(64, 7), accuracy)
    assert (others <= accuracy.limit).mean() >= (found.held_back.within or 1)


def test_a_wide_budget_keeps_nothing_in_float32_and_an_impossible_one_is_an_error() -> None:
    model = zoo.load("tiny_cnn")
    wide = quantize_within(model, images(4), Accuracy.of(0.5), threads=1)
    assert wide.floats == ()
    with pytest.raises(UsageError, match="nothing can be quantised within the accuracy 1e-09"):
        quantize_within(model, images(4), Accuracy.of(1e-9), threads=1)


def test_what_products_take_in_each_precision_is_known_by_the_analytic_model(tiny: CalibratedModel) -> None:
    mixed = MixedModel(tiny, CompileRequest("zoo:tiny_cnn", threads=1), images(1))
    plain, eight = (mixed.predicted_alone(one) for one in (FLOAT32, INT8))
    assert list(plain.products) == list(mixed.products)
    assert 0 < sum(plain.products.values()) <= plain.total_ns
    assert plain.products != eight.products


def test_a_trained_net_keeps_its_labels() -> None:
    pytest.importorskip("sklearn")
    from results.bench.quantised.digits import digits

    source = digits()
    seen = {"image": source.held_back[:200, 0], "labels": source.labels[:200]}
    unseen = {"image": source.held_back[200:, 0], "labels": source.labels[200:]}
    for budget in ("top1=5%", "8e-3"):
        accuracy = Accuracy.of(budget)
        found = quantize_within(source.model, seen, accuracy, threads=1)
        errors = errors_of(source.model, found.quantization.model, unseen, accuracy)
        kept = errors.mean() <= accuracy.limit if accuracy.is_mean else (errors <= accuracy.limit).mean()
        assert kept >= (found.held_back.within or 1)


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        np.savez(tmp_path / f"{number}.npz", **images(4, number))
    arguments = ["quantize", "zoo:tiny_cnn", "-o", str(tmp_path / "q.onnx"), "--threads", "1"]
    arguments += ["--accuracy", "3e-2"]
    assert main.run([*arguments, "--data", str(tmp_path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)["accuracy"]
    assert facts["budget"] == "0.03"
    assert facts["held_back"]["holds"]
    assert (facts["chosen_by"]["sets"], facts["held_back"]["sets"]) == (6, 6)
    low, high = facts["held_back"]["interval"]
    assert 0 < low <= high <= facts["held_back"]["error"] <= 3e-2
    onnx.checker.check_model(str(tmp_path / "q.onnx"), full_check=True)
    assert main.run(arguments) == 0
    found = capsys.readouterr()
    assert "warning: no data was given: 32 sets of random inputs stand in for it" in found.err
    assert "products stay in float32" in found.out
    assert "error on held-back inputs 0.0" in found.out


def test_wrong_budgets_and_data_are_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["quantize", "zoo:tiny_cnn", "-o", str(tmp_path / "q.onnx")]
    assert main.run(arguments) == 2
    assert "samples of the inputs are needed to quantise by: give --data" in capsys.readouterr().err
    assert main.run([*arguments, "--accuracy", "good"]) == 2
    assert "accuracy 'good' is no error budget" in capsys.readouterr().err
    with pytest.raises(InputError, match="at least 2 input sets"):
        quantize_within(zoo.load("tiny_cnn"), images(1), Accuracy.of("1e-2"), threads=1)


def test_no_input_set_is_run_after_one_beyond_the_budget(tiny: CalibratedModel) -> None:
    mixed = MixedModel(tiny, CompileRequest("zoo:tiny_cnn", threads=1), images(1))
    seen = Samples(tuple({"x": each[None]} for each in images(6, 2)["x"]))
    search = PrecisionSearch(mixed, seen, 4, Accuracy.of(1.0), faster=False)
    names = mixed.products
    choices = [
        {**dict.fromkeys(names, FLOAT32), **dict.fromkeys(names[:count], INT8)} for count in range(len(names))
    ]
    errors = [search.expected(each) for each in choices]
    assured = [error_budget.assured(search.accuracy, search.errors(each), search.further) for each in choices]
    assert all(more >= less for more, less in zip(assured, errors, strict=True))
    for holds, found in ((search.holds, errors), (search.assures, assured)):
        search.accuracy = Accuracy.of(float(np.median(found)))
        with mock.patch.object(search.model, "run", wraps=search.model.run) as run:
            assert [holds(each) for each in choices] == [each <= search.accuracy.limit for each in found]
        assert max(found) > search.accuracy.limit
        assert run.call_count <= len(choices) * len(seen.sets)
        if holds == search.holds:
            assert run.call_count < len(choices) * len(seen.sets)


def test_labels_are_kept_on_unseen_inputs_and_too_few_inputs_are_one_error() -> None:
    """A classifier of random weights, whose classes are close: chosen by the share that is seen, more than the budget
    of other inputs changed."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(shape, np.float32) / 8 for shape in ((64, 64), (64, 64), (64, 10))]
    b = ModelBuilder("classifier")
    value = b.input("x", (1, 64))
    for at, each in enumerate(weights):
        value = b.node("MatMul", [value, b.constant(f"w{at}", each)], f"y{at}")
    model = b.finish([value])
    x, budget = rng.standard_normal((1200, 64), np.float32), Accuracy.of("top1=10%")
    found = quantize_within(model, {"x": x[:400]}, budget, threads=1)
    assert found.held_back.bound is not None
    assert found.held_back.error < found.held_back.bound <= 0.1
    assert errors_of(model, found.quantization.model, {"x": x[400:]}, budget).mean() <= 0.1
    with pytest.raises(
        InputError, match=r"(?s)10 held-back input sets cannot show .* give at least 84 input sets"
    ):
        quantize_within(model, {"x": x[:20]}, budget, threads=1)
