"""The registry: families, attributes, lookups."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from typing import get_args

import pytest

import autotune.graph.ops
from autotune.errors import GraphError, InternalError
from autotune.graph import ops
from autotune.graph.ir import TensorType
from autotune.graph.ops import definition

X = TensorType((2, 3), "float32")


def test_each_family_file_is_listed() -> None:
    shared = {
        "arithmetic",
        "common",
        "definition",
        "facts",
        "library_kernel",
        "minimal_filtering",
        "registry",
        "sorting",
        "wide",
        "window",
    }
    found = {m.name for m in pkgutil.iter_modules(autotune.graph.ops.__path__)}
    assert found - shared == set(ops.FAMILIES)


def test_names_are_sorted_and_supported() -> None:
    assert list(ops.names()) == sorted(ops.names())
    assert all(ops.supported(name) for name in ops.names())
    assert not ops.supported("NoSuchOperator")
    assert ops.registered() == ops.names()


def test_operators_are_loaded_when_asked_for() -> None:
    code = "from autotune.graph import ops; ops.get('Relu'); print(len(ops.registered()) < len(ops.names()))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "True\n"


def test_unknown_operator_names_near_ones() -> None:
    with pytest.raises(GraphError) as caught:
        ops.get("Sofmax")
    assert str(caught.value).startswith("unknown operator 'Sofmax'; did you mean 'Softmax'?")


def test_registering_twice_is_a_bug() -> None:
    with pytest.raises(InternalError, match="'Relu' is registered twice"):
        ops.register(ops.get("Relu"))


@pytest.mark.parametrize(
    ("op", "types", "attrs", "message"),
    [
        ("Relu", [X], {"alpha": 1.0}, "Relu has no attribute 'alpha'; it has: none"),
        ("Relu", [X, X], {}, "Relu takes 1 inputs, got 2"),
        ("Gemm", [X], {}, "Gemm takes 2 to 3 inputs, got 1"),
        ("Gemm", [X, None], {}, "Gemm: input 1 is required"),
        ("Cast", [X], {}, "Cast needs attribute 'to'"),
        ("Softmax", [X], {"axis": 1.5}, "Softmax: attribute axis = 1.5 is not of type int"),
        (
            "Gelu",
            [X],
            {"approximate": "no"},
            "Gelu: attribute approximate = 'no'; allowed: none, tanh",
        ),
    ],
)
def test_messages(op: str, types: list[TensorType], attrs: dict[str, object], message: str) -> None:
    with pytest.raises(GraphError) as caught:
        ops.get(op).complete_and_infer(types, attrs)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_attributes_take_their_declared_type() -> None:
    complete = ops.get("Gemm").canonical([X, TensorType((3, 4), "float32")], {"alpha": 2})
    assert complete == {"alpha": 2.0, "beta": 1.0, "transA": 0, "transB": 0}
    assert isinstance(complete["alpha"], float)


def test_an_operator_without_expression_says_so() -> None:
    from autotune import te

    with pytest.raises(GraphError, match="Shape has no tensor expression: it must be folded away"):
        ops.get("Shape").compute([te.placeholder((2, 3), name="x")], {}, "y")


def test_kinds_are_the_documented_ones() -> None:
    assert {ops.get(name).kind for name in ops.names()} == set(get_args(definition.Kind))
