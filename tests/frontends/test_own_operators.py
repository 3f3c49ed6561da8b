"""Operators of users: defined in a script or by a package, fused, compiled in other processes, and refused."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import autotune
from autotune import te
from autotune.errors import GraphError, ModelImportError, UnsupportedOpError, UsageError
from autotune.frontends.onnx.importer import load
from autotune.graph import ops
from autotune.graph.ops import registry
from autotune.graph.text import parse_graph, print_graph
from autotune.operators import Attribute, check, define

ROOT = Path(__file__).parents[2]
MODULE = """
from autotune import te
from autotune.operators import define
define(
    "of.package.Twice", reference=lambda arrays, attrs: [arrays[0] + arrays[0]],
    compute=lambda tensors, attrs, names: [
        te.compute(tensors[0].shape, lambda *i: tensors[0](*i) + tensors[0](*i), name=names[0])
    ],
)
"""


def added(number, arrays, attrs):
    return [arrays[0] + np.float32(attrs["much"]) + np.float32(number)]


def expressions(number, tensors, attrs, names):
    (x,) = tensors
    return [te.compute(x.shape, lambda *i: x(*i) + (attrs["much"] + number), name=names[0])]


@pytest.fixture
def plus():
    yield define(
        "test.own.Plus",
        reference=lambda *a: added(0, *a),
        compute=lambda *a: expressions(0, *a),
        attributes={"much": Attribute("float", 1.0)},
    )
    del registry._REGISTRY["test.own.Plus"]


def model(*nodes):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 6]) for name in ("x", "y")]
    graph = helper.make_graph(list(nodes), "own", values[:1], values[1:])
    domains = {node.domain for node in nodes}
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid(d, 18 if not d else 1) for d in {"", *domains}]
    )


def own(op="Plus", domain="test.own", **attrs):
    return model(
        helper.make_node("Relu", ["x"], ["h"]),
        helper.make_node(op, ["h"], ["y"], domain=domain, name="mine", **attrs),
    )


def test_it_is_fused_and_right(plus):
    graph = load(own(much=2.5))
    assert print_graph(parse_graph(print_graph(graph))) == print_graph(graph)
    module = autotune.compile(graph)
    assert len(module.image.dispatches) == 1
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    np.testing.assert_array_equal(module.run({"x": x})["y"], np.maximum(x, 0) + np.float32(2.5))


def test_mistakes_of_nodes_name_them(plus):
    with pytest.raises(
        ModelImportError, match=r"node 'mine' \(test.own.Plus\): .* no attribute 'more'; it has: much"
    ):
        load(own(more=1.0))


def test_one_that_nobody_defines():
    with pytest.raises(
        UnsupportedOpError,
        match=r"(?s)test.own::Minus: 1 node \('mine'\).*AUTOTUNE_OPERATORS",
    ):
        load(own("Minus"))
    with pytest.raises(GraphError, match=r"(?s)unknown operator 'test.own.Minus'.*AUTOTUNE_OPERATORS"):
        ops.get("test.own.Minus")


@pytest.mark.parametrize("name", ["Relu", "Plus", "com.", ".Plus", "com.example.P lus", ""])
def test_a_name_has_a_domain(name):
    with pytest.raises(UsageError, match=r"its domain, a dot and its name"):
        define(name, reference=lambda *_: [], compute=lambda *_: [])


@pytest.mark.parametrize("wrong", ["interpreted", "type"])
def test_check_finds_what_does_not_agree(wrong):
    op = define(
        "test.own.Wrong",
        reference=lambda *a: added(0.0, *a) if wrong != "type" else [a[0][0].astype(np.float64)],
        compute=lambda *a: expressions(1.0, *a),
        attributes={"much": Attribute("float", 1.0)},
    )
    try:
        with pytest.raises(Exception) as caught:
            check(op, np.zeros((2, 3), np.float32))
    finally:
        del registry._REGISTRY["test.own.Wrong"]
    if wrong == "interpreted":
        assert type(caught.value) is GraphError
        assert "result 0 interpreted differs from its reference in 6 of 6 elements, most at (0, 0)" in str(
            caught.value
        )
    else:
        assert "gave float64[2, 3] where its shape rule says float32[2, 3]" in str(caught.value)


@pytest.mark.parametrize("how", ["entry point", "setting"])
def test_other_processes_know_it(how, tmp_path):
    (tmp_path / "operators_of_a_package.py").write_text(MODULE)
    if how == "entry point":
        info = tmp_path / "of_package-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: of-package\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[autotune.operators]\nexample = operators_of_a_package\n")
    path = tmp_path / "model.onnx"
    path.write_bytes(own("Twice", "of.package").SerializeToString())
    setting = {"AUTOTUNE_OPERATORS": "operators_of_a_package"} if how == "setting" else {}
    found = subprocess.run(
        [sys.executable, "-m", "autotune.cli.main", "compile", str(path), "-o", str(tmp_path / "model.atm")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)]), **setting},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)
    np.testing.assert_array_equal(
        autotune.load(tmp_path / "model.atm").run({"x": x})["y"], 2 * np.maximum(x, 0)
    )


def test_a_module_that_cannot_be_imported(monkeypatch, tmp_path):
    (tmp_path / "broken_operators.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("AUTOTUNE_OPERATORS", "broken_operators")
    with pytest.raises(
        UsageError, match=r"AUTOTUNE_OPERATORS names module 'broken_operators', .* ZeroDivisionError"
    ):
        ops.supported("no.such.Operator")


def test_the_page_runs():
    page = ROOT / "docs" / "your-own-operators.md"
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert (failed, tried > 15) == (0, True)
    del registry._REGISTRY["com.example.Snake"], registry._REGISTRY["com.example.UnitNorm"]
