"""Models compiled within an error budget: what is chosen is in the artifact, measured, and never slower by estimate."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from jsonschema import Draft202012Validator

import autotune
from autotune.cli import main
from autotune.cli.schemas import schema
from autotune.compiler.dividing import divide
from autotune.compiler.request import CompileRequest
from autotune.compiler.sites.decision import model_row
from autotune.database import Database
from autotune.database.records import Comparison, Latency, Ratio
from autotune.errors import DatabaseError, InputError, UsageError
from autotune.frontends.model_builder import ModelBuilder
from autotune.frontends.models import load
from autotune.graph.ir import Array
from autotune.passes.options import allowed
from autotune.passes.preference import TOLERANCE
from autotune.quantization.compiling import compile_within
from autotune.quantization.front import (
    PRECISION,
    PrecisionPoint,
    faster,
    front,
    rows_of,
    stored_points,
    weights_of,
)
from autotune.quantization.latencies import MixedModel, PredictedLatencies
from autotune.quantization.precision import (
    BFLOAT16,
    DECLARED_ERRORS,
    FLOAT32,
    INT8,
    PrecisionOption,
    PrecisionStep,
    further,
    hull,
    in_order,
    products_in,
    taken,
)
from autotune.quantization.quantize import calibrate_model
from autotune.quantization.replaced import REPLACED
from autotune.quantization.switched import SwitchedModel
from autotune.quantization.tuning import tune_within
from autotune.quantization.within import precisions_of
from autotune.target import Target
from autotune.tuning.compiling import compile_request
from autotune.tuning.measure.error_budget import NOTED, Accuracy, relative
from autotune.tuning.measure.gain import Gain

ROWS = 1
WIDE = 640


def dense(widths: tuple[int, ...] = (64, WIDE, WIDE, 16)) -> onnx.ModelProto:
    """Return products of one row; the weights of the middle one are large enough to be stored shorter."""
    m = ModelBuilder("dense")
    value = m.input("x", (ROWS, widths[0]))
    for i, (inner, columns) in enumerate(pairwise(widths)):
        weights = m.normal(f"w{i}", (inner, columns), (2 / inner) ** 0.5)
        value = m.node("Relu", [m.node("MatMul", [value, weights], f"product{i}")], f"y{i}")
    return m.finish([value])


def rows(count: int, seed: int = 0, width: int = 64) -> dict[str, Array]:
    return {"x": np.random.default_rng(seed).standard_normal((count, width), dtype=np.float32)}


def errors(one: autotune.Module, other: autotune.Module, given: Mapping[str, Array]) -> list[float]:
    outputs = ([dict(model.run({"x": x[None]})) for x in given["x"]] for model in (one, other))
    return [relative(*pair) for pair in zip(*outputs, strict=True)]


def options(*given: tuple[str, float, float]) -> list[PrecisionOption]:
    return [PrecisionOption(*each) for each in given]


def test_steps_are_those_of_the_hull_and_taken_by_worth() -> None:
    a = hull(
        "a",
        options((INT8, 1, 8), ("bfloat16 weights", 2, 7), ("float16 weights", 3, 1), (FLOAT32, 4, 0)),
        0.1,
    )
    assert [(step.before, step.after) for step in a] == [
        (INT8, "float16 weights"),
        ("float16 weights", FLOAT32),
    ]
    b = hull("b", options((INT8, 5, 2), (FLOAT32, 5, 0)), 0.5)
    assert b == [PrecisionStep("b", INT8, FLOAT32, 4.0)]
    steps = in_order([*a, *b])
    assert [step.product for step in steps] == ["b", "a", "a"]
    first = {"a": INT8, "b": INT8}
    assert taken(first, steps[:2]) == {"a": "float16 weights", "b": FLOAT32}
    assert further({"a": INT8, "b": FLOAT32}, steps, 1) == {"a": "float16 weights", "b": FLOAT32}
    assert further(first, steps, 9) == {"a": FLOAT32, "b": FLOAT32}


def test_an_exact_option_of_no_cost_is_one_step() -> None:
    found = hull("y", options((INT8, 1, 1), ("float16 weights", 2, 0), (FLOAT32, 3, 0)), 0.1)
    assert [step.after for step in found] == ["float16 weights", FLOAT32]


def test_products_in_bfloat16_are_those_of_the_switched_model() -> None:
    """Of two products of three the values between them are rounded, too; a model so written is compiled as it says."""
    model, given = dense(), rows(4)
    calibrated = calibrate_model(model, given, threads=1)
    first, second, _ = (node.output[0] for node in calibrated.choice().products)
    chosen = {first: BFLOAT16, second: BFLOAT16}
    switched = SwitchedModel(calibrated, given, 1, {name: [BFLOAT16] for name in chosen})
    written = calibrated.written(switched.products, short=[*chosen])
    assert sum(node.op_type == "Cast" for node in written.model.graph.node) == 4
    module = autotune.compile(written.model, threads=1)
    feeds = [{"x": x[None]} for x in given["x"]]
    plain = switched.run(feeds, switched.products)
    for feed, before, found in zip(feeds, plain, switched.run(feeds, switched.products, chosen), strict=True):
        changed = relative(before, found)
        assert 0 < changed < 2e-2
        assert relative(found, module.run(feed)) < 0.1 * changed


def test_bfloat16_is_a_precision_where_the_target_multiplies_it() -> None:
    model, given = dense((64, 256, 256, 16)), rows(8)
    for features, has in (("avx2", False), ("avx512bf16", True), ("amx-bf16", True)):
        target = replace(Target.detect(1), features=(features,))
        request = CompileRequest(model, target=target)
        mixed = MixedModel(calibrate_model(model, given, threads=1), request, given)
        assert (BFLOAT16 in precisions_of(mixed)) is has


def test_stored_weights_of_a_switched_model_are_those_that_are_compiled() -> None:
    model, given = dense(), rows(4)
    calibrated = calibrate_model(model, given, threads=1)
    product = calibrated.choice().products[1].output[0]
    labels = list(DECLARED_ERRORS)
    switched = SwitchedModel(calibrated, given, 1, {product: labels})
    feeds = [{"x": x[None]} for x in given["x"]]
    plain = switched.run(feeds, switched.products)
    for label in labels:
        outputs = switched.run(feeds, switched.products, {product: label})
        request = CompileRequest(model, threads=1, tolerance=DECLARED_ERRORS[label], algorithm=label)
        stored = autotune.Module(compile_request(request).model)
        for feed, before, found in zip(feeds, plain, outputs, strict=True):
            changed = relative(before, found)
            assert 0 < changed < DECLARED_ERRORS[label]
            assert relative(found, stored.run(feed)) < max(0.02 * changed, 2e-6)


@pytest.mark.parametrize("precision", REPLACED)
@pytest.mark.parametrize("of_another", [FLOAT32, INT8])
def test_products_of_another_operator_are_as_the_switched_model_has_them(
    precision: str, of_another: str
) -> None:
    m = ModelBuilder("gemms")
    value = m.node(
        "Gemm",
        [m.input("x", (3, 96)), m.normal("w", (48, 96), 0.1), m.normal("b", (48,), 0.1)],
        "y",
        transB=1,
    )
    value = m.node(
        "Conv",
        [
            m.node("Reshape", [value, m.constant("s", np.array([3, 48, 1, 1]))], "r"),
            m.normal("k", (40, 48, 1, 1), 0.1),
        ],
        "z",
    )
    value = m.node("Reshape", [value, m.constant("t", np.array([3, 40]))], "q")
    model = m.finish([m.node("MatMul", [value, m.normal("v", (40, 8), 0.1)], "end")])
    given = {"x": np.random.default_rng(0).standard_normal((12, 96), dtype=np.float32)}
    calibrated = calibrate_model(model, given, threads=1)
    mixed = MixedModel(calibrated, CompileRequest(model, threads=1), given)
    assert mixed.products == ("y", "z", "end")
    switched = SwitchedModel(calibrated, given, 1, {each: [precision] for each in mixed.products})
    chosen = {"y": precision, "z": of_another, "end": precision}
    feeds = [{"x": x} for x in given["x"].reshape(4, 3, 96)]
    floats = [product for product, one in chosen.items() if one != INT8]
    expected = switched.run(feeds, floats, {"y": precision, "end": precision})
    plain = switched.run(feeds, mixed.products)
    request = mixed.request(chosen)
    operators = {node.op_type for node in request.model.graph.node}  # type: ignore[union-attr]
    assert operators & {"DynamicQuantizeMatMul", "MatMulNBits"}
    with autotune.Module(compile_request(request).model) as module:
        for feed, wanted, before in zip(feeds, expected, plain, strict=True):
            changed = relative(before, wanted)
            assert 1e-3 < changed < 0.3
            assert relative(wanted, module.run(feed)) < 0.2 * changed


def test_a_budget_holds_on_other_inputs_and_stands_in_the_artifact(tmp_path: Path) -> None:
    model = dense()
    made = autotune.compile(model, threads=1, accuracy=1e-2, data=rows(16))
    unseen = errors(autotune.compile(model, threads=1), made, rows(32, 7))
    assert max(unseen) <= 1e-2
    made.save(tmp_path / "m.atm")
    again = autotune.load(tmp_path / "m.atm")
    assert errors(made, again, rows(2)) == [0, 0]


def latencies(
    request: CompileRequest, products: Sequence[str], converting: float = 0.0
) -> PredictedLatencies:
    """Return latencies of a machine on which a product takes 1 in int8, 2 with shorter weights and 3 in float32."""
    model: Any = request.model
    made = {node.output[0] for node in model.graph.node if node.op_type == "DequantizeLinear"}
    quantised = {
        node.output[0] for node in model.graph.node if node.op_type == "MatMul" and {*node.input} & made
    }
    other = 2.0 if request.tolerance > TOLERANCE or request.tolerances else 3.0
    found = {product: 1.0 if product in quantised else other for product in products}
    return PredictedLatencies(sum(found.values()) + converting * bool(quantised), found)


def test_precisions_are_as_fast_as_the_budget_allows_and_never_slower_than_float32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request, given = CompileRequest(dense(), threads=1), rows(8)
    monkeypatch.setattr("autotune.quantization.latencies._predicted", latencies)
    wide, narrow, none = (compile_within(request, Accuracy.of(limit), given) for limit in (0.5, 1e-3, 1e-9))
    assert {*wide.precisions.values()} == {INT8}
    assert {*narrow.precisions.values()} <= {"float16 weights", FLOAT32}
    assert products_in(narrow.precisions, "float16 weights")
    assert {*none.precisions.values()} == {FLOAT32}
    monkeypatch.setattr("autotune.quantization.latencies._predicted", partial(latencies, converting=100.0))
    assert not products_in(compile_within(request, Accuracy.of(0.5), given).precisions, INT8)


def test_shorter_weights_are_allowed_for_the_products_that_have_them_alone() -> None:
    model, given = dense((64, WIDE, WIDE, WIDE, 16)), rows(2)
    mixed = MixedModel(calibrate_model(model, given, threads=1), CompileRequest(model, threads=1), given)
    request = mixed.request({**mixed.in_float32, mixed.products[1]: "float16 weights"})
    assert request.tolerances == {}  # products 1 and 2 are one workload
    both = dict.fromkeys(mixed.products[1:3], "float16 weights")
    request = mixed.request({**mixed.in_float32, **both})
    parts = divide(model)
    offered = [
        any(option.name == "float16 weights" for option in allowed(dispatch.workload, request.preference))
        for dispatch in parts.dispatches
    ]
    assert offered == [False, True, True, False]


def test_the_error_is_noted_in_the_artifact() -> None:
    done = compile_within(CompileRequest(dense(), threads=1), Accuracy.of(1e-2), rows(16))
    within = done.within
    assert within is not None
    assert within.predicted_ns <= within.float32_ns
    assert within.held_back.holds
    noted = json.loads(done.compiled.cases[0].done.image.metadata[NOTED])
    assert noted["held_back"]["error"] == within.held_back.error
    assert noted["precisions"] == dict(within.precisions)


def test_a_budget_that_nothing_keeps_is_float32_as_it_is() -> None:
    model, given = dense((64, 96, 16)), rows(4)
    made = autotune.compile(model, threads=1, accuracy=1e-9, data=given)
    assert errors(autotune.compile(model, threads=1), made, given) == [0.0] * 4


def test_sizes_that_a_model_leaves_open_are_those_of_the_request() -> None:
    m = ModelBuilder("open")
    x = m.input("x", ("rows", 32))
    model = m.finish([m.node("MatMul", [x, m.normal("w", (32, 8), 0.2)], "y")])
    given = {"x": np.random.default_rng(0).standard_normal((8, 32), dtype=np.float32)}
    made = autotune.compile(model, threads=1, shapes={"rows": 2}, accuracy=0.1, data=given)
    assert made.run({"x": given["x"][:2]})["y"].shape == (2, 8)


def test_a_model_without_products_is_compiled_as_ever() -> None:
    m = ModelBuilder("plain")
    model = m.finish([m.node("Relu", [m.input("x", (1, 64))], "y")])
    done = compile_within(CompileRequest(model, threads=1), Accuracy.of(1e-2), None)
    assert done.within is None
    assert done.lines == "accuracy 0.01: all in float32, no product has constant float32 weights"


def store(path: Path, points: list[tuple[PrecisionPoint, float]], model: onnx.ModelProto) -> None:
    """Store points with ratios to float32, as if a job had measured them."""
    graph, target = load(model), CompileRequest(model, threads=1).one_target()
    measured = [
        (point, {"latency": Latency(5, 1.0, 100 * ratio, 0.1), "ratio": Ratio(ratio)})
        for point, ratio in points
    ]
    row = model_row(graph)
    with Database(path) as database:
        database.add_target(target)
        database.add_workload(row)
        rows = rows_of(measured, {"latency": Latency(5, 1.0, 100.0, 0.1)})
        database.compared(row.key, target.key, PRECISION, rows, graph.name)


def test_the_fastest_measured_point_within_the_budget_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, path = dense(), tmp_path / "tuning.db"
    products = [node.output[0] for node in calibrate_model(model, rows(2), threads=1).choice().products]

    def point(precision: str, weights: str, error: float = 0.02) -> PrecisionPoint:
        precisions = {**dict.fromkeys(products, FLOAT32), products[1]: precision}
        return PrecisionPoint(
            precisions, "0.1", Accuracy.of(0.1).judged(np.array([0.0001, error])), False, weights
        )

    own = weights_of(model)
    points = [
        (point("float16 weights", own, 5e-4), 0.8),
        (point(INT8, own), 0.5),
        (point(INT8, "of others"), 0.1),
    ]
    store(path, points, model)
    request = CompileRequest(model, threads=1, database=path)
    assert [each.over_float32 for each in faster(stored_points(request))] == [0.5, 0.8]
    assert [each.over_float32 for each in front(stored_points(request))] == [0.5, 0.8]
    wide, narrow = (compile_within(request, Accuracy.of(each), rows(16)) for each in ("5e-2", "1e-3"))
    assert (wide.precisions[products[1]], narrow.precisions[products[1]]) == (INT8, "float16 weights")
    assert "measured by an earlier job: 50 ns, 0.50 of float32" in wide.lines
    onnx.save(model, tmp_path / "m.onnx")
    given = ["query", str(tmp_path / "m.onnx"), "--db", str(path), "--threads", "1", "--front"]
    assert main.run(given) == 0
    assert "0.50 of float32, unconfirmed; error 0.02 (0.1, held-back inputs)" in capsys.readouterr().out
    assert main.run([*given, "--json", "--html", str(tmp_path / "front.html")]) == 0
    document = json.loads(capsys.readouterr().out)
    Draft202012Validator(schema("query")).validate(document)
    drawn = [(each["over_float32"]["ratio"], each["error"]["error"]) for each in document["precisions"]]
    assert sorted(drawn) == [(0.5, 0.02), (0.8, 5e-4)]
    page = (tmp_path / "front.html").read_text()
    assert page.count("<circle") == 2
    assert page.count("<td>yes</td>") == 2


def test_what_a_job_measures_is_stored_and_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = CompileRequest(dense(), threads=1, database=tmp_path / "tuning.db")
    gain = Gain(Latency(5, 90.0, 100.0, 1.0), Latency(5, 60.0, 70.0, 1.0), Ratio(0.7, (0.6, 0.8)), 9)
    monkeypatch.setattr("autotune.quantization.latencies._predicted", latencies)
    monkeypatch.setattr("autotune.quantization.tuning.gain_of", lambda *given: gain)
    asked = list[tuple[list[str], float]]()

    def tuned(models: Sequence[Any], tolerance: float) -> Any:
        asked.append(([model.graph.name for model in models], tolerance))
        return SimpleNamespace(stopped=False)

    budgets = [Accuracy.of(limit) for limit in (1e-3, 0.5, 0.6, 1e-9)]
    _, points = tune_within(request, budgets, rows(8), tuned)
    names = ["dense", "model 'dense' within 0.001", "model 'dense' within 0.5"]
    assert asked == [(names, DECLARED_ERRORS["float16 weights"])]
    assert [point.over_float32 for point in points] == [0.7, 0.7]
    assert {point.name for point in stored_points(request)} == {point.name for point in points}
    taken = compile_within(request, Accuracy.of(0.5), rows(8))
    assert taken.point in stored_points(request)


def test_a_damaged_point_is_a_damaged_database() -> None:
    with pytest.raises(DatabaseError, match="a precision of 'm' is damaged: there is no such precision"):
        PrecisionPoint.of(Comparison("x", "y", inside="m", detail='{"precisions": {"y": "int3"}}'))


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(dense((64, 96, 16)), tmp_path / "m.onnx")
    np.savez(tmp_path / "data.npz", **rows(8))
    arguments = ["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.atm"), "--threads", "1"]
    arguments += ["--accuracy", "cosine=0.999"]
    assert main.run([*arguments, "--data", str(tmp_path / "data.npz"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)["accuracy"]
    assert facts["budget"] == "cosine=0.999"
    assert facts["held_back"]["holds"]
    assert not facts["random_inputs"]
    assert main.run(["explain", str(tmp_path / "m.atm")]) == 0
    assert "accuracy cosine=0.999: error on held-back inputs" in capsys.readouterr().out
    assert main.run(arguments) == 0
    found = capsys.readouterr()
    assert "warning: no data was given: 32 sets of random inputs stand in for it" in found.err
    assert "error on held-back inputs" in found.out


def test_what_does_not_go_together_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = dense((64, 96, 16))
    with pytest.raises(UsageError, match="data are for an accuracy, which is not given"):
        autotune.compile(model, data=rows(2))
    with pytest.raises(UsageError, match="tolerance given together with an accuracy"):
        autotune.compile(model, accuracy=1e-2, data=rows(2), tolerance=1e-3)
    with pytest.raises(UsageError, match="not for objective memory"):
        autotune.compile(model, accuracy=1e-2, data=rows(2), objective="memory")
    with pytest.raises(InputError, match="at least 2 input sets"):
        autotune.compile(model, accuracy=1e-2, data=rows(1))
    assert main.run(["compile", "zoo:tiny_cnn", "-o", str(tmp_path / "m.atm"), "--data", "x.npz"]) == 2
    assert "--data is for --accuracy, which is not given" in capsys.readouterr().err
