"""The operators against ONNX's own node cases: models with inputs and expected outputs.

A case that the import refuses (an operator or element type that is not supported) does not count;
one that is imported must give ONNX's numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from autotune.errors import ModelImportError
from autotune.frontends.onnx import importer as frontend
from autotune.graph import Graph, evaluate
from autotune.graph.verify import verify

NEWEST_OPSET = 23
LEFT_OUT = ("sequence", "window")  # no tensors; attention windows came after that opset
LEAST = 900  # cases that are imported; there were 1000 when this was written


def node_cases() -> Iterator[Any]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    for case in cases:
        if not any(word in case.name for word in LEFT_OUT):
            yield case


def with_constants(model: Any, arrays: list[Any]) -> Any:
    """The model with its integer and scalar inputs as constants: axes, shapes, bounds."""
    import onnx

    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for declared, array in zip(model.graph.input, arrays, strict=False):
        if array.dtype.kind == "i" or array.ndim == 0:
            fixed.graph.initializer.append(onnx.numpy_helper.from_array(array, declared.name))
    return fixed


def imported(case: Any, arrays: list[Any]) -> Graph | None:
    for opset in case.model.opset_import:
        if not opset.domain:
            opset.version = min(opset.version, NEWEST_OPSET)
    for model in (case.model, with_constants(case.model, arrays)):
        try:
            return frontend.load(model)
        except ModelImportError:
            continue
    return None


@pytest.mark.slow
def test_imported_cases_give_onnx_numbers() -> None:
    wrong, right = [], 0
    for case in node_cases():
        given, expected = case.data_sets[0]
        arrays = [np.asarray(a) for a in given if isinstance(a, np.ndarray | np.generic)]
        graph = imported(case, arrays) if len(arrays) == len(given) else None
        if graph is None:
            continue
        verify(graph)
        names = [declared.name for declared in case.model.graph.input]
        feed = {k: a for k, a in zip(names, arrays, strict=False) if k in graph.inputs}
        with np.errstate(all="ignore"):
            found = evaluate.run(graph, feed)
        right += 1
        wrong += [
            f"{case.name}: {name}"
            for name, wanted in zip(graph.outputs, expected, strict=True)
            if not close(found[name], np.asarray(wanted), case)
        ]
    assert not wrong
    assert right >= LEAST


def close(found: Any, wanted: Any, case: Any) -> bool:
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return False
    if found.dtype == bool:
        return bool((found == wanted).all())
    loose = {"float16": 2e-3, "bfloat16": 2**-7}.get(found.dtype.name, 1e-6)  # halves: one rounding
    return np.allclose(found, wanted, max(case.rtol, loose), max(case.atol, loose), equal_nan=True)
