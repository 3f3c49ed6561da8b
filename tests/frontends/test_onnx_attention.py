"""ONNX's Attention: its definition is expanded, then recognised as one region where it can be."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from autotune.compiler.dividing import divide
from autotune.compiler.driver import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.runtime.module import Module


def model(*shapes: tuple[int, ...], flags: bool = False, **attrs: Any) -> Any:
    """One Attention of the inputs q, k, v and, with a fourth shape, a mask, of bools with ``flags``."""
    names = ["q", "k", "v", "mask"][: len(shapes)]
    inputs = [
        helper.make_tensor_value_info(
            name, TensorProto.BOOL if flags and name == "mask" else TensorProto.FLOAT, shape
        )
        for name, shape in zip(names, shapes, strict=True)
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("Attention", names, ["y"], **attrs)
    graph = helper.make_graph([node], "attention", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


HEADS = ((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 6))
SQUARE = ((1, 2, 7, 8),) * 3
FLAT = ((2, 5, 24), (2, 7, 24), (2, 7, 18))


@pytest.mark.parametrize(
    ("shapes", "attrs", "kinds"),
    [
        (HEADS, {}, ["attention"]),
        (HEADS, {"scale": 0.25}, ["attention"]),
        (SQUARE, {"is_causal": 1}, ["attention"]),
        (FLAT, {"q_num_heads": 3, "kv_num_heads": 3}, ["attention"]),
        (((1, 4, 5, 8), (1, 2, 7, 8), (1, 2, 7, 6)), {}, ["attention"]),
        ((*HEADS, (5, 7)), {}, ["attention"]),
        ((*SQUARE, (7, 7)), {"is_causal": 1}, ["attention"]),
    ],
    ids=["heads", "scale", "causal", "flat", "shared keys", "mask", "causal mask"],
)
def test_it_computes_what_the_reference_does(
    shapes: tuple[tuple[int, ...], ...], attrs: dict[str, Any], kinds: list[str]
) -> None:
    proto = model(*shapes, **attrs)
    assert [d.workload.kind for d in divide(proto).dispatches] == kinds
    rng = np.random.default_rng(0)
    names = ["q", "k", "v", "mask"]
    inputs = {n: rng.standard_normal(s).astype(np.float32) for n, s in zip(names, shapes, strict=False)}
    (expected,) = ReferenceEvaluator(proto).run(None, inputs)
    with Module(compile_in_detail(CompileRequest(proto, threads=1)).image) as module:
        np.testing.assert_allclose(module.run(inputs)["y"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("flags", [False, True], ids=["added", "flags"])
def test_a_row_of_which_a_mask_keeps_nothing_gives_zeros(flags: bool) -> None:
    proto = model(*HEADS, (5, 7), flags=flags)
    rng = np.random.default_rng(0)
    inputs: dict[str, Any] = {
        n: rng.standard_normal(s).astype(np.float32) for n, s in zip("qkv", HEADS, strict=True)
    }
    kept = np.arange(35).reshape(5, 7) % 3 > 0
    kept[2] = False
    inputs["mask"] = kept if flags else np.where(kept, 0, -np.inf).astype(np.float32)
    (expected,) = ReferenceEvaluator(proto).run(None, inputs)
    compiled = compile_in_detail(CompileRequest(proto, threads=1)).image
    assert [d.kind for d in compiled.dispatches] == ["attention"]
    with Module(compiled) as module:
        result = module.run(inputs)["y"]
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    assert not result[:, :, 2].any()
