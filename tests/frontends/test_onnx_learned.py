"""Operators of ai.onnx.ml, alongside NumPy, scikit-learn and, where it is installed, ONNX Runtime."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from autotune.errors import UnsupportedOpError
from autotune.frontends.onnx import importer as frontend
from autotune.graph import evaluate
from tests.frontends.foreign_nodes import LEARNED, agree, node_model, normal, seeds
from tests.frontends.foreign_nodes import refused as refused_in

SEEDS = seeds(150)
FLOATS = ("float32", "float64", "int32", "int64")
learned = partial(agree, domain=LEARNED)
refused = partial(refused_in, domain=LEARNED)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def logistic(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


TRANSFORMS = {"NONE": lambda x: x, "LOGISTIC": logistic, "SOFTMAX": softmax}


def rows(rng: Any, *shape: int, dtype: str = "float32") -> Any:
    return (rng.standard_normal(shape) * (1 if "float" in dtype else 5)).astype(dtype)


@pytest.mark.parametrize("seed", SEEDS)
def test_columns_are_scaled_and_filled(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, columns = (int(each) for each in rng.integers(1, 9, 2))
    x = rows(rng, n, columns, dtype=str(rng.choice(FLOATS)))
    many = columns if rng.integers(2) else 1
    offset, scale = normal(rng, many), normal(rng, many)
    wanted = {"y": (x.astype(np.float32) - offset) * scale}
    learned("Scaler", [("x", x)], wanted, offset=offset.tolist(), scale=scale.tolist())
    for norm, divisor in (("L1", np.abs(x).sum(1)), ("L2", np.sqrt((x * x).sum(1))), ("MAX", x.max(1))):
        divisor = np.where(divisor == 0, 1, divisor)[:, None]
        learned("Normalizer", [("x", x)], {"y": x / divisor.astype(np.float32)}, norm=norm, tolerance=1e-4)
    threshold = float(rng.choice([0.0, 0.3]))
    name = "doubles" if x.dtype == np.float64 else "y"
    if x.dtype == np.float32:
        wanted = {name: (x > np.float32(threshold)).astype(x.dtype)}
        learned("Binarizer", [("x", x)], wanted, (name,), threshold=threshold)
    values = rng.integers(0, 9, many).tolist()
    if x.dtype == np.int64:
        x[rng.random(x.shape) < 0.3] = 7
        wanted = {"labels": np.where(x == 7, values, x)}
        learned(
            "Imputer", [("x", x)], wanted, ("labels",), imputed_value_int64s=values, replaced_value_int64=7
        )
    elif x.dtype == np.float32:
        x[rng.random(x.shape) < 0.3] = np.nan
        wanted = {"y": np.where(np.isnan(x), values, x)}
        learned(
            "Imputer",
            [("x", x)],
            wanted,
            imputed_value_floats=[float(v) for v in values],
            replaced_value_float=np.nan,
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_vectors_are_joined_and_taken_apart(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, widths = int(rng.integers(1, 6)), rng.integers(1, 5, int(rng.integers(1, 4)))
    arrays = [rows(rng, n, int(w)) for w in widths]
    cut = [int(max(1, w + rng.integers(-1, 2))) for w in widths]
    parts = [
        np.pad(a, ((0, 0), (0, max(0, c - a.shape[1]))))[:, :c] for a, c in zip(arrays, cut, strict=True)
    ]
    operands = [(f"x{i}", a) for i, a in enumerate(arrays)]
    learned("FeatureVectorizer", operands, {"y": np.concatenate(parts, 1)}, inputdimensions=cut)
    x, places = rows(rng, n, 6), rng.integers(0, 6, int(rng.integers(1, 5)))
    learned("ArrayFeatureExtractor", [("x", x), ("i", places)], {"y": x[:, places]})
    learned("ArrayFeatureExtractor", [("x", x[0]), ("i", places)], {"y": x[:1, places]})


@pytest.mark.parametrize("seed", SEEDS)
def test_categories_are_encoded(seed: int) -> None:
    rng = np.random.default_rng(seed)
    keys = rng.permutation(20)[: int(rng.integers(1, 9))]
    x = rng.integers(0, 20, tuple(rng.integers(1, 5, 2)))
    wanted = (x[..., None] == keys).astype(np.float32)
    learned("OneHotEncoder", [("x", x)], {"y": wanted}, cats_int64s=keys.tolist(), zeros=1)
    learned("OneHotEncoder", [("x", x.astype(np.float32))], {"y": wanted}, cats_int64s=keys.tolist(), zeros=1)
    values, default = rng.integers(0, 99, len(keys)), int(rng.integers(-3, 0))
    table = dict(zip(keys.tolist(), values.tolist(), strict=True))
    found = np.vectorize(lambda each: table.get(each, default))(x)
    given = {"keys_int64s": keys.tolist(), "values_int64s": values.tolist(), "default_int64": default}
    learned("LabelEncoder", [("x", x)], {"labels": found}, ("labels",), **given)
    given = {"keys_floats": [*keys[1:].astype(float), np.nan], "values_floats": values.astype(float).tolist()}
    floats = np.where(x == keys[0], np.nan, x).astype(np.float32)
    table = dict(zip(keys[1:].tolist(), values.tolist(), strict=False))
    found = np.vectorize(lambda each: values[-1] if np.isnan(each) else table.get(each, -0.0))(floats)
    learned("LabelEncoder", [("x", floats)], {"y": found.astype(np.float32)}, **given)
    tables = {
        "keys_tensor": numpy_helper.from_array(keys),
        "values_tensor": numpy_helper.from_array(values),
        "default_tensor": numpy_helper.from_array(np.array([-7])),
    }
    table = dict(zip(keys.tolist(), values.tolist(), strict=True))
    found = np.vectorize(lambda each: table.get(each, -7))(x)
    learned("LabelEncoder", [("x", x)], {"labels": found}, ("labels",), judge=False, **tables)


@pytest.mark.parametrize("seed", SEEDS)
def test_linear_models(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, features, targets = (int(each) for each in rng.integers(1, 7, 3))
    x = rows(rng, n, features, dtype=str(rng.choice(FLOATS)))
    weights, offsets = normal(rng, targets, features), normal(rng, targets)
    y = x.astype(np.float32) @ weights.T + offsets
    given: dict[str, Any] = {"coefficients": weights.ravel().tolist(), "intercepts": offsets.tolist()}
    if x.dtype == np.float32:
        transform = str(rng.choice(["NONE", "SOFTMAX"])) if targets > 1 else "NONE"
        wanted = {"y": TRANSFORMS[transform](y)}
        learned("LinearRegressor", [("x", x)], wanted, targets=targets, post_transform=transform, **given)
    transform = str(rng.choice([*TRANSFORMS]))
    labels = rng.permutation(30)[:targets] if targets > 1 else np.array([4, 9])
    place = y.argmax(1) if targets > 1 else (y[:, 0] > 0).astype(int)
    if targets > 1:
        scores = TRANSFORMS[transform](y)
    else:  # only one transform changes a single score
        y = logistic(y) if transform == "LOGISTIC" else y
        scores = np.concatenate([1 - y, y], 1)
    wanted = {"labels": labels[place], "y": scores}
    names = ("labels", "y")
    learned(
        *("LinearClassifier", [("x", x)], wanted, names),
        classlabels_ints=labels.tolist(),
        post_transform=transform,
        tolerance=1e-4,
        **given,
    )


def kernel(kind: str, x: Any, vectors: Any, gamma: float, offset: float, degree: float) -> Any:
    if kind == "RBF":
        return np.exp(-gamma * ((x[:, None] - vectors) ** 2).sum(-1))
    dot = x @ vectors.T
    return {
        "LINEAR": dot,
        "POLY": (gamma * dot + offset) ** degree,
        "SIGMOID": np.tanh(gamma * dot + offset),
    }[kind]


@pytest.mark.parametrize("seed", SEEDS)
def test_support_vectors_of_regressors(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, features, count = (int(each) for each in rng.integers(1, 7, 3))
    x, vectors, weights = normal(rng, n, features), normal(rng, count, features), normal(rng, count)
    kind, params = str(rng.choice(["LINEAR", "POLY", "RBF", "SIGMOID"])), [0.3, 0.5, 2.0]
    one_class = int(rng.integers(2))
    y = kernel(kind, x, vectors, *params) @ weights[:, None] + np.float32(0.2)
    learned(
        *("SVMRegressor", [("x", x)], {"y": np.where(y > 0, 1, -1) if one_class else y}),
        kernel_type=kind,
        kernel_params=params,
        n_supports=count,
        support_vectors=vectors.ravel().tolist(),
        coefficients=weights.tolist(),
        rho=[0.2],
        one_class=one_class,
        tolerance=1e-4,
    )
    weights = normal(rng, features)
    learned(
        *("SVMRegressor", [("x", x)], {"y": x @ weights[:, None] + np.float32(0.2)}),
        kernel_type="LINEAR",
        kernel_params=params,
        coefficients=weights.tolist(),
        rho=[0.2],
        tolerance=1e-4,
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_support_vectors_of_classifiers(seed: int) -> None:
    """As scikit-learn's, whose decisions are pairs of classes."""
    from sklearn.svm import SVC

    rng = np.random.default_rng(seed)
    classes = int(rng.integers(2, 5))
    labels = np.sort(rng.permutation(30)[:classes])
    y = np.concatenate([np.arange(classes), rng.integers(0, classes, 30)])
    data = normal(rng, len(y), 4) + y[:, None]
    kind = str(rng.choice(["linear", "poly", "rbf", "sigmoid"]))
    model = SVC(kernel=kind, gamma=0.2, coef0=0.3, degree=2, decision_function_shape="ovo").fit(
        data, labels[y]
    )
    x = normal(rng, 5, 4) * 3
    decisions = model.decision_function(x).reshape(5, -1)
    # scikit-learn turns the sign where there are two classes
    scores = np.concatenate([decisions, -decisions], 1) if classes == 2 else decisions
    sign = -1 if classes == 2 else 1
    wanted = {"labels": model.predict(x), "y": scores}
    proba = {"prob_a": [-1.5], "prob_b": [0.2]} if classes == 2 and seed % 2 else {}
    if proba:
        p = logistic(-(-decisions * -1.5 + 0.2))
        wanted["y"] = np.concatenate([p, 1 - p], 1)
    learned(
        *("SVMClassifier", [("x", x)], wanted, ("labels", "y")),
        kernel_type=kind.upper(),
        kernel_params=[0.2, 0.3, 2.0],
        support_vectors=model.support_vectors_.ravel().tolist(),
        vectors_per_class=model.n_support_.tolist(),
        coefficients=(sign * model.dual_coef_).ravel().tolist(),
        rho=(sign * model.intercept_).tolist(),
        classlabels_ints=labels.tolist(),
        post_transform="NONE",
        tolerance=1e-3,
        near=5e-2 if proba else 3e-3,  # it stops early
        **proba,
    )


def test_liblinear_classifiers() -> None:
    rng = np.random.default_rng(0)
    for labels in ([3, 5], [3, 5, 8]):
        x, planes = normal(rng, 20, 4), normal(rng, len(labels), 4)
        given: dict[str, Any] = {
            "coefficients": planes.ravel().tolist(),
            "rho": [0.1],
            "classlabels_ints": labels,
        }
        given |= {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0]}
        learned("SVMClassifier", [("x", x)], {"y": x @ planes.T + np.float32(0.1)}, ("labels", "y"), **given)


def test_a_map_at_the_end_is_a_tensor() -> None:
    nodes = [
        helper.make_node("Scaler", ["x"], ["p"], domain=LEARNED, offset=[1.0], scale=[2.0]),
        helper.make_node("ZipMap", ["p"], ["maps"], domain=LEARNED, classlabels_strings=["no", "yes"]),
    ]
    key_and_value = helper.make_map_type_proto(8, helper.make_tensor_type_proto(1, []))
    maps = helper.make_value_info("maps", helper.make_sequence_type_proto(key_and_value))
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [3, 2])], [maps])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(LEARNED, 1)]
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    found = evaluate.run(frontend.load(helper.make_model(graph, opset_imports=opsets)), {"x": x})
    np.testing.assert_array_equal(found["maps"], (x - 1) * 2)


ROW = np.zeros((1, 3), np.float32)
TWO = {"outputs": ("labels", "y")}


@pytest.mark.parametrize(
    ("op", "attrs", "words"),
    [
        ("Scaler", {"offset": "much"}, "Scaler"),
        ("Normalizer", {"norm": "L3"}, "norm is 'L3'; it is one of MAX, L1, L2"),
        (
            "OneHotEncoder",
            {"cats_strings": ["a"]},
            "attribute 'cats_strings' has strings, which are not supported",
        ),
        ("LinearRegressor", {"coefficients": [1.0]}, "1 coefficients are not 1 times the features of x"),
        ("LabelEncoder", {}, "At least one of keys_tensor"),
        ("Imputer", {}, "attribute 'imputed_value_floats' is missing"),
        (
            "SVMClassifier",
            {"classlabels_ints": [0, 1], **TWO},
            "it has two or more classlabels_ints, and rho",
        ),
        ("TreeEnsembleClassifier", {"classlabels_strings": ["a"], **TWO}, "export it with zipmap=False"),
        ("TreeEnsembleRegressor", {}, "it has no nodes"),
        (
            "TreeEnsembleRegressor",
            {"aggregate_function": "MEAN"},
            "aggregate_function is 'MEAN'; it is one of",
        ),
    ],
)
def test_what_does_not_fit_is_one_error(op: str, attrs: dict[str, Any], words: str) -> None:
    assert words in refused(op, ROW, **attrs)


def test_texts_are_encoded_before_the_model() -> None:
    with pytest.raises(UnsupportedOpError) as raised:
        frontend.load(node_model("CategoryMapper", [("x", ROW)], domain=LEARNED))
    text = str(raised.value)
    assert "ai.onnx.ml::CategoryMapper: 1 node ('node')" in text
    assert "encode texts and dictionaries as numbers before the model" in text
    assert "entry point" not in text
