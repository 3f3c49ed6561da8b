"""Trees and forests of ai.onnx.ml, alongside their definition, scikit-learn and, where installed, ONNX Runtime."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

import autotune
from tests.frontends.foreign_nodes import LEARNED, agree, node_model, normal, seeds
from tests.frontends.foreign_nodes import refused as refused_in
from tests.frontends.test_onnx_learned import TRANSFORMS, logistic

learned = partial(agree, domain=LEARNED)
refused = partial(refused_in, domain=LEARNED)
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
COMPARE = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
NODES = (
    "treeids",
    "nodeids",
    "featureids",
    "modes",
    "values",
    "truenodeids",
    "falsenodeids",
    "missing_value_tracks_true",
)


@dataclass
class Tree:
    """A leaf with weights by target, or a node with two trees below."""

    weights: dict[int, float] = field(default_factory=dict)
    feature: int = 0
    mode: int = 0
    value: float = 0.0
    missing: bool = False
    below: tuple[Tree, Tree] | None = None
    members: tuple[float, ...] = ()

    def walk(self, x: Any) -> dict[int, float]:
        """The weights of the leaf that a row reaches."""
        if self.below is None:
            return self.weights
        value = x[self.feature]
        holds = (
            value in self.members if self.mode == 6 else COMPARE[self.mode](value, x.dtype.type(self.value))
        )
        return self.below[0 if holds or (self.missing and np.isnan(value)) else 1].walk(x)


def grown(rng: Any, depth: int, features: int, targets: int, modes: int, missing: bool, whole: bool) -> Tree:
    """A random tree whose thresholds are among few numbers, so that rows are equal to them.

    Leaves have a weight for each target if ``whole``, else for some.
    """
    if not depth or rng.random() < 0.15:
        chosen = range(targets) if whole else rng.permutation(targets)[: rng.integers(1, targets + 1)]
        return Tree({int(t): float(np.float32(rng.standard_normal())) for t in chosen})
    below = tuple(grown(rng, depth - 1, features, targets, modes, missing, whole) for _ in range(2))
    return Tree(
        feature=int(rng.integers(features)),
        mode=int(rng.integers(modes)),
        value=float(rng.integers(-2, 3)) / 2,
        missing=bool(missing and rng.integers(2)),
        below=(below[0], below[1]),
        members=tuple(float(v) for v in rng.permutation(np.arange(-1, 2))[: rng.integers(1, 4)]),
    )


def listed(trees: list[Tree], prefix: str) -> dict[str, Any]:
    """The attributes of trees before opset 5."""
    lists: dict[str, list[Any]] = {f"nodes_{name}": [] for name in NODES}
    leaves: dict[str, list[Any]] = {f"{prefix}_{n}": [] for n in ("treeids", "nodeids", "ids", "weights")}

    def put(tree: Tree, number: int, place: int) -> int:
        """List a tree whose root has a number; returns the next one."""
        after = place + 1
        mode = "LEAF" if tree.below is None else MODES[tree.mode]
        row = [number, place, tree.feature, mode, tree.value, 0, 0, int(tree.missing)]
        at = len(lists["nodes_modes"])
        for name, value in zip(NODES, row, strict=True):
            lists[f"nodes_{name}"].append(value)
        for target, weight in tree.weights.items():
            for name, value in zip(leaves, (number, place, target, weight), strict=True):
                leaves[name].append(value)
        for side, each in zip(("true", "false"), tree.below or (), strict=False):
            lists[f"nodes_{side}nodeids"][at] = after
            after = put(each, number, after)
        return after

    for number, tree in enumerate(trees):
        put(tree, number, 0)
    return {**lists, **leaves}


def summed(trees: list[Tree], x: Any, targets: int, aggregate: str) -> Any:
    """The weights of the leaves that rows reach, joined by their definition; 0 where there are none."""
    y = np.zeros((len(x), targets))
    for n, row in enumerate(x):
        found = [tree.walk(row) for tree in trees]
        for target in range(targets):
            values = [each[target] for each in found if target in each]
            join = {"SUM": sum, "AVERAGE": sum, "MIN": min, "MAX": max}[aggregate]
            y[n, target] = join(values) if values else 0
    return y / len(trees) if aggregate == "AVERAGE" else y


def data(rng: Any, rows: int, features: int, missing: bool, dtype: str = "float32") -> Any:
    x = (rng.integers(-3, 4, (rows, features)) / 2).astype(dtype)
    x[rng.random(x.shape) < 0.3 * missing] = np.nan
    return x


def judged(trees: list[Tree]) -> bool:
    """ONNX Runtime takes one weight of a tree that is a leaf, and refuses one in the form of opset 5."""
    return all(tree.below for tree in trees)


@pytest.mark.parametrize("seed", seeds(80))
def test_regressors(seed: int) -> None:
    rng = np.random.default_rng(seed)
    features, targets, count = int(rng.integers(1, 6)), int(rng.integers(1, 4)), int(rng.choice([1, 3, 11]))
    missing, modes = bool(rng.integers(2)), int(rng.choice([1, 6]))
    trees = [
        grown(rng, int(rng.integers(0, 5)), features, targets, modes, missing, bool(seed % 2))
        for _ in range(count)
    ]
    trees = [tree for tree in trees if tree.below or not seed % 2] or trees
    aggregate = str(rng.choice(["SUM", "AVERAGE", "MIN", "MAX"]))
    x = data(rng, int(rng.choice([1, 7, 16])), features, missing, str(rng.choice(["float32", "float64"])))
    y = summed(trees, x, targets, aggregate)
    base = normal(rng, targets).tolist() if rng.integers(2) else []
    y = y + base if base else y
    transform = str(rng.choice(["NONE", "SOFTMAX", "LOGISTIC"])) if targets > 1 else "NONE"
    attrs = listed(trees, "target") | ({"base_values": base} if base else {})
    learned(
        *("TreeEnsembleRegressor", [("x", x)], {"y": TRANSFORMS[transform](y)}),
        aggregate_function=aggregate,
        n_targets=targets,
        post_transform=transform,
        judge=judged(trees) and (bool(seed % 2) or not base),  # it adds no base where there is no weight
        tolerance=1e-4,
        **attrs,
    )


@pytest.mark.parametrize("seed", seeds(80))
def test_classifiers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    features, classes = int(rng.integers(1, 6)), int(rng.choice([2, 3, 5]))
    single = classes == 2  # one score for both
    missing, modes = bool(rng.integers(2)), int(rng.choice([1, 6]))
    trees = [grown(rng, 3, features, 1 if single else classes, modes, missing, True) for _ in range(3)]
    positive = bool(rng.integers(2))
    for tree in trees if positive else ():
        absolute(tree)
    x, labels = data(rng, 9, features, missing), rng.permutation(30)[:classes]
    y = summed(trees, x, 1 if single else classes, "SUM")
    transform = str(rng.choice(["NONE", "LOGISTIC"] if single else ["NONE", "SOFTMAX", "LOGISTIC"]))
    if single:
        place = (y[:, 0] > (0.5 if positive else 0)).astype(int)
        both = np.concatenate([1 - y if positive else -y, y], 1)
        scores = logistic(np.concatenate([-y, y], 1)) if transform == "LOGISTIC" else both
    else:
        place, scores = y.argmax(1), TRANSFORMS[transform](y)
    learned(
        *("TreeEnsembleClassifier", [("x", x)], {"labels": labels[place], "y": scores}, ("labels", "y")),
        classlabels_int64s=labels.tolist(),
        post_transform=transform,
        tolerance=1e-4,
        **listed(trees, "class"),
    )


def absolute(tree: Tree) -> None:
    """Make the weights of a tree positive."""
    tree.weights = {target: abs(weight) for target, weight in tree.weights.items()}
    for each in tree.below or ():
        absolute(each)


def listed_by_tensors(trees: list[Tree], dtype: str) -> dict[str, Any]:
    """The attributes of trees of opset 5, whose leaves have one weight."""
    nodes: list[list[Any]] = []
    leaves: list[tuple[int, float]] = []
    members: list[float] = []

    def put(tree: Tree) -> tuple[int, bool]:
        """List a tree; returns its number, and whether it is a leaf."""
        if tree.below is None:
            leaves.extend(tree.weights.items())
            return len(leaves) - 1, True
        row = [tree.mode, tree.value, tree.feature, int(tree.missing), 0, 0, 0, 0]
        nodes.append(row)
        number = len(nodes) - 1
        row[4], row[5] = put(tree.below[0])
        row[6], row[7] = put(tree.below[1])
        return number, False

    roots = []
    for tree in trees:
        number, leaf = put(tree)
        if leaf:  # a node that goes to it either way
            nodes.append([0, 0.0, 0, 0, number, True, number, True])
            number = len(nodes) - 1
        roots.append(number)
    names = (
        "modes",
        "splits",
        "featureids",
        "missing_value_tracks_true",
        "truenodeids",
        "trueleafs",
        "falsenodeids",
        "falseleafs",
    )
    by_name = dict(zip(names, zip(*nodes, strict=True), strict=True))
    found: dict[str, Any] = {f"nodes_{name}": [int(v) for v in by_name[name]] for name in names[2:]}
    for name, kind in (("modes", "uint8"), ("splits", dtype)):
        found[f"nodes_{name}"] = numpy_helper.from_array(np.array(by_name[name], kind))
    sets = [each for each in walked(trees) if each.mode == 6]
    for each in sets:
        members += [*each.members, np.nan]
    if sets:
        found["membership_values"] = numpy_helper.from_array(np.array(members, dtype))
    found["leaf_targetids"] = [target for target, _ in leaves]
    found["leaf_weights"] = numpy_helper.from_array(np.array([weight for _, weight in leaves], dtype))
    return {**found, "tree_roots": roots}


def walked(trees: list[Tree]) -> list[Tree]:
    """All inner nodes, in the order in which they are listed."""
    return [each for tree in trees if tree.below for each in (tree, *walked([*tree.below]))]


@pytest.mark.parametrize("seed", seeds(80))
def test_ensembles_of_opset_5(seed: int) -> None:
    rng = np.random.default_rng(seed)
    features, targets, dtype = (
        int(rng.integers(1, 5)),
        int(rng.integers(1, 4)),
        str(rng.choice(["float32", "float64"])),
    )
    missing, modes = bool(rng.integers(2)), int(rng.choice([1, 6, 7]))
    trees = [
        grown(rng, 3, features, targets, modes, missing, whole=False)
        for _ in range(int(rng.choice([1, 4, 9])))
    ]
    for tree in trees:
        single(tree)
    number = int(rng.integers(4))
    x = data(rng, int(rng.choice([1, 6])), features, missing, dtype)
    y = summed(trees, x, targets, ("AVERAGE", "SUM", "MIN", "MAX")[number])
    name = "doubles" if dtype == "float64" else "y"
    attrs = listed_by_tensors(trees, dtype)
    learned(
        *("TreeEnsemble", [("x", x)], {name: y}, (name,)),
        judge=judged(trees) and modes < 7,  # it takes numbers for integers there
        aggregate_function=number,
        n_targets=targets,
        tolerance=1e-4,
        **attrs,
    )


def single(tree: Tree) -> None:
    """Leave one weight to each leaf."""
    tree.weights = dict([*tree.weights.items()][:1])
    for each in tree.below or ():
        single(each)


def fitted(count: int, rows: int = 600, depth: int | None = None) -> tuple[Any, Any, dict[str, Any]]:
    """A forest fitted on small images of digits, these, and the attributes that exporters write."""
    from sklearn.datasets import load_digits
    from sklearn.ensemble import RandomForestClassifier

    x, y = load_digits(return_X_y=True)
    x = x.astype(np.float32)
    forest = RandomForestClassifier(count, max_depth=depth, random_state=0, n_jobs=1).fit(x[:rows], y[:rows])
    trees = [of_arrays(each.tree_, count) for each in forest.estimators_]
    return forest, x[rows:], listed(trees, "class")


def of_arrays(tree: Any, count: int, place: int = 0) -> Tree:
    """A tree of scikit-learn, whose leaves have their share of a forest's probabilities."""
    left, right = tree.children_left[place], tree.children_right[place]
    if left < 0:
        shares = tree.value[place, 0] / tree.value[place, 0].sum() / count
        return Tree({c: float(p) for c, p in enumerate(shares)})
    below = of_arrays(tree, count, left), of_arrays(tree, count, right)
    return Tree(feature=int(tree.feature[place]), value=float(tree.threshold[place]), below=below)


@pytest.mark.registers
@pytest.mark.parametrize(
    ("count", "batch"), [(20, 1), (20, 40), pytest.param(500, 200, marks=pytest.mark.slow)]
)
def test_forests_of_scikit_learn(count: int, batch: int) -> None:
    forest, x, attrs = fitted(count)
    proto = node_model(
        "TreeEnsembleClassifier",
        [("x", x[:batch])],
        ("labels", "y"),
        domain=LEARNED,
        classlabels_int64s=[*range(10)],
        **attrs,
    )
    module = autotune.compile(proto)
    labels, scores = module(x[:batch])
    np.testing.assert_allclose(scores, forest.predict_proba(x[:batch]), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(labels, forest.predict(x[:batch]))


@pytest.mark.registers
def test_the_number_of_rows_may_be_open() -> None:
    rng = np.random.default_rng(0)
    trees = [grown(rng, 4, 3, 2, 6, True, whole=True) for _ in range(9)]
    x = data(rng, 3, 3, missing=True)
    proto = node_model(
        "TreeEnsembleRegressor", [("x", x)], domain=LEARNED, n_targets=2, **listed(trees, "target")
    )
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    module = autotune.compile_for_sizes(proto, {"rows": "1..4:2,4"})
    for count in (1, 3):
        (y,) = module(x[:count])
        np.testing.assert_allclose(y, summed(trees, x[:count], 2, "SUM"), rtol=1e-4, atol=1e-4)


ROW = np.zeros((1, 3), np.float32)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"nodes_modes": ["BRANCH_LEQ", "TWIG", "LEAF"]}, "a node has mode 'TWIG'; it is one of"),
        ({"nodes_featureids": [9, 0, 0]}, "a node has feature 9; x is float32[1, 3]"),
        ({"nodes_truenodeids": [7, 0, 0]}, "nodes_truenodeids names node 7 of tree 0, which is not there"),
        ({"nodes_truenodeids": [2, 0, 0]}, "tree 0 has 2 nodes that are below no other"),
        ({"nodes_values": [0.0]}, "lists of its nodes are not of one length"),
        ({"nodes_nodeids": [0, 1, 1]}, "two of its nodes have the same number"),
        ({"target_ids": [0, 5]}, "target_ids are from 0 to 0"),
        ({"base_values": [1.0, 2.0]}, "it has 2 base_values for 1 targets"),
    ],
)
def test_tables_that_do_not_fit_are_refused(change: dict[str, Any], words: str) -> None:
    tree = Tree(below=(Tree({0: 1.0}), Tree({0: 2.0})))
    assert words in refused(
        "TreeEnsembleRegressor", ROW, n_targets=1, **{**listed([tree], "target"), **change}
    )
