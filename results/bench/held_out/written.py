"""Models that PyTorch's exporters do not write: of language models' own exporters and of scikit-learn's, and a
recurrence of thousands of steps, which one of them unrolls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune.frontends import zoo_decoders
from autotune.frontends.model_builder import ModelBuilder
from autotune.graph.ir import Array

if TYPE_CHECKING:
    import onnx

_FEATURES, _WIDTH = 32, 128


def llama_int4(new: int, places: int) -> tuple[onnx.ModelProto, Mapping[str, Array]]:
    """Four layers of Llama with weights of four bits and GroupQueryAttention, whose cache is half full."""
    sizes = zoo_decoders.Decoder("llama", 4, 1024, 16, 4, 2816, 4096, places, 4)
    rng = np.random.default_rng(0)
    mask = np.zeros((1, places), np.int64)
    mask[:, : places // 2 + new] = 1
    inputs: dict[str, Array] = {
        "input_ids": rng.integers(0, sizes.words, (1, new)),
        "attention_mask": mask,
    }
    for layer in range(sizes.layers):
        for part in ("key", "value"):
            shape = (1, sizes.groups, places, sizes.size)
            inputs[f"past_key_values.{layer}.{part}"] = rng.standard_normal(shape, np.float32)
    return _of_length(zoo_decoders.decoder(sizes), new), inputs


def _of_length(model: onnx.ModelProto, new: int) -> onnx.ModelProto:
    """Return the model for so many words."""
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_value = new
    return model


def lstm(steps: int, layers: int) -> tuple[onnx.ModelProto, Mapping[str, Array]]:
    """A stack of LSTMs of width 128 over many steps of 64 features, as PyTorch's exporter of traces writes it."""
    b = ModelBuilder("lstm")
    y, inside = b.input("x", (steps, 1, 64)), 64
    zero = b.constant("zero", np.zeros((1, 1, _WIDTH), np.float32))
    along = b.constant("directions", np.array([1]))
    for layer in range(layers):
        parts = [
            b.normal(f"{layer}.{name}", (1, *shape), _WIDTH**-0.5)
            for name, shape in (
                ("W", (4 * _WIDTH, inside)),
                ("R", (4 * _WIDTH, _WIDTH)),
                ("B", (8 * _WIDTH,)),
            )
        ]
        made = b.node("LSTM", [y, *parts, "", zero, zero], f"{layer}.Y", hidden_size=_WIDTH)
        y, inside = b.node("Squeeze", [made, along], f"{layer}.y"), _WIDTH
    return b.finish([y]), {"x": b.rng.standard_normal((steps, 1, 64), np.float32)}


def forest(trees: int, depth: int, rows: int) -> tuple[onnx.ModelProto, Mapping[str, Array]]:
    """A random forest of three classes, as skl2onnx writes it: full trees, numbered by their levels."""
    b = ModelBuilder("forest")
    x = b.input("X", (rows, _FEATURES))
    b.nodes(
        "TreeEnsembleClassifier",
        [x],
        ["label", "probabilities"],
        domain="ai.onnx.ml",
        **_forest(b, trees, depth),
    )
    model = b.finish(["probabilities"], shapes={"probabilities": (rows, 3)})
    return model, {"X": b.rng.standard_normal((rows, _FEATURES), np.float32)}


def _forest(b: ModelBuilder, trees: int, depth: int) -> dict[str, Any]:
    nodes, inner = 2 ** (depth + 1) - 1, 2**depth - 1
    at = np.tile(np.arange(nodes), trees)
    owner, leaf = np.repeat(np.arange(trees), nodes), at >= inner
    shares = b.rng.dirichlet((1, 1, 1), int(leaf.sum())) / trees
    each: dict[str, Any] = {
        "nodes_treeids": owner,
        "nodes_nodeids": at,
        "nodes_featureids": np.where(leaf, 0, b.rng.integers(0, _FEATURES, len(at))),
        "nodes_values": np.where(leaf, 0.0, b.rng.standard_normal(len(at))),
        "nodes_truenodeids": np.where(leaf, 0, 2 * at + 1),
        "nodes_falsenodeids": np.where(leaf, 0, 2 * at + 2),
        "class_treeids": np.repeat(owner[leaf], 3),
        "class_nodeids": np.repeat(at[leaf], 3),
        "class_ids": np.tile(np.arange(3), int(leaf.sum())),
        "class_weights": shares.reshape(-1),
    }
    return {
        **{name: array.tolist() for name, array in each.items()},
        "nodes_modes": np.where(leaf, "LEAF", "BRANCH_LEQ").tolist(),
        "classlabels_int64s": [0, 1, 2],
        "post_transform": "NONE",
    }


__all__ = ["forest", "llama_int4", "lstm"]
