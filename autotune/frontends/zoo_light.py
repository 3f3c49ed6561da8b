"""The ``light_*`` networks that the onnx package ships, with random weights and opset 17.

The package stores real topologies whose weights are constant fills (``ConstantOfShape``). Each fill
becomes an initialiser of random values, scaled so that activations keep their size through the net.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune.frontends.model_builder import IR_VERSION, OPSET

if TYPE_CHECKING:
    import onnx

# He initialisation's gain, lowered where residual additions would let activations grow.
HE_GAIN = 2**0.5
GAINS = {"resnet50": 1.0, "shufflenet": 0.75}


def load_light(name: str) -> onnx.ModelProto:
    """Return the network ``light_<name>`` with deterministic random weights."""
    import onnx
    from onnx import version_converter

    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    model = onnx.load(str(folder / f"light_{name}.onnx"))
    _drop_initializers_from_inputs(model.graph)
    model.ir_version = IR_VERSION
    # Converted while the weights are still fills: megabytes of random weights would only slow it.
    model = version_converter.convert_version(model, OPSET)
    _fill_weights(model.graph, zlib.crc32(name.encode()), GAINS.get(name, HE_GAIN))
    return model


def _drop_initializers_from_inputs(graph: Any) -> None:
    initialized = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in initialized]
    del graph.input[:]
    graph.input.extend(inputs)


def _fill_weights(graph: Any, seed: int, gain: float) -> None:
    """Replace every fill by an initialiser, in graph order from one generator."""
    from onnx import numpy_helper

    rng = np.random.default_rng(seed)
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    positive = _positive_vectors(graph)
    kept, filled = [], []
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in shapes:
            shape = tuple(int(extent) for extent in shapes[node.input[0]])
            weights = _weights(rng, shape, gain, node.output[0] in positive)
            filled.append(numpy_helper.from_array(weights, node.output[0]))
        else:
            kept.append(node)
    used = {name for node in kept for name in node.input}
    initializers = [tensor for tensor in graph.initializer if tensor.name in used] + filled
    del graph.node[:]
    graph.node.extend(kept)
    del graph.initializer[:]
    graph.initializer.extend(initializers)


def _positive_vectors(graph: Any) -> set[str]:
    """Return the per-channel values that multiply: scales and variances of batch norms, operands of Mul."""
    positive = set()
    for node in graph.node:
        if node.op_type == "BatchNormalization":
            positive |= {node.input[1], node.input[4]}
        elif node.op_type == "Mul":
            positive |= set(node.input)
    for node in reversed(graph.node):
        if node.op_type == "Unsqueeze" and node.output[0] in positive:
            positive.add(node.input[0])
    return positive


def _weights(
    rng: np.random.Generator, shape: tuple[int, ...], gain: float, positive: bool
) -> np.ndarray[Any, np.dtype[np.float32]]:
    if positive:
        return rng.uniform(0.8, 1.2, shape).astype(np.float32)
    values = rng.standard_normal(shape, dtype=np.float32)
    fan_in = int(np.prod(shape[1:]))
    return values * np.float32(gain * fan_in**-0.5 if len(shape) > 1 else 0.05)


__all__ = ["load_light"]
