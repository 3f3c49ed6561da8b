"""Models of one node of another domain than ONNX's, beside NumPy and, with ``--peer-python``, ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from autotune.errors import ModelImportError
from autotune.frontends.onnx import importer as frontend
from autotune.graph import evaluate
from tests.frontends.judge import Judge

DOMAIN = "com.microsoft"
LEARNED = "ai.onnx.ml"
TOLERANCE = 2e-5
JUDGE: Judge | None = None
"""Judges too where a Python with ONNX Runtime is given."""
_TYPES = {"labels": 7, "doubles": 11, "integers": 6}
"""Element types of results by their names; others are float32."""


def seeds(many: int, few: int = 6) -> list[Any]:
    """Return numbers of random problems; all but the first few are slow."""
    return [pytest.param(n, marks=[pytest.mark.slow] if n >= few else []) for n in range(many)]


def node_model(
    op: str,
    operands: Sequence[tuple[str, Any]],
    outputs: Sequence[str] = ("y",),
    fixed: Sequence[str] = (),
    domain: str = DOMAIN,
    **attrs: Any,
) -> Any:
    """Return a model of one node; an operand without an array is absent, those of ``fixed`` are constants."""
    names = [name if array is not None else "" for name, array in operands]
    while names and not names[-1]:
        names.pop()
    node = helper.make_node(op, names, list(outputs), name="node", domain=domain, **attrs)
    arrays = {name: array for name, array in operands if array is not None}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in arrays.items()
        if name not in fixed
    ]
    made = [helper.make_tensor_value_info(name, _TYPES.get(name, 1), None) for name in outputs if name]
    constants = [numpy_helper.from_array(arrays[name], name) for name in fixed if name in arrays]
    graph = helper.make_graph([node], "one", inputs, made, constants)
    learned = 5 if op in ("LabelEncoder", "TreeEnsemble") else 3
    opsets = [helper.make_opsetid(*each) for each in (("", 21), (DOMAIN, 1), (LEARNED, learned))]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def agree(
    op: str,
    operands: Sequence[tuple[str, Any]],
    wanted: Mapping[str, Any],
    outputs: Sequence[str] = ("y",),
    fixed: Sequence[str] = (),
    judge: bool = True,
    domain: str = DOMAIN,
    tolerance: float = TOLERANCE,
    near: float = 1e-3,
    **attrs: Any,
) -> Any:
    """Check the results of a node against what is wanted and, for the ``judge``, ONNX Runtime; return the model."""
    proto = node_model(op, operands, outputs, fixed, domain, **attrs)
    feed = {name: array for name, array in operands if array is not None and name not in fixed}
    graph = frontend.load(proto)
    found = evaluate.run(graph, feed)
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=tolerance, atol=tolerance, err_msg=name)
    if judge and JUDGE is not None:
        results = JUDGE.run(proto, feed)
        for name, array in zip([o for o in outputs if o], results, strict=True):
            np.testing.assert_allclose(
                found[name], array, rtol=near, atol=near / 10, err_msg=f"{name} of ORT"
            )
    return proto


def normal(rng: Any, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


def refused(op: str, *arrays: Any, error: type[Exception] = ModelImportError, **attrs: Any) -> str:
    fixed = attrs.pop("fixed", ())
    operands = [(f"x{n}", array) for n, array in enumerate(arrays)]
    with pytest.raises(error) as raised:
        frontend.load(node_model(op, operands, fixed=fixed, **attrs))
    return str(raised.value)
