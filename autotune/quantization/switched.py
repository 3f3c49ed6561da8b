"""A model whose layers are switched between float32 and eight bits when it runs.

One compilation serves all choices of layers: a choice costs a forward pass a sample, not a compilation. Numbers are
those of the quantised model but for the order of sums, integers of biases, and ranges that a join of fewer values has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune.graph.ir import ABSENT, Array
from autotune.quantization.bias_correction import bias_place, correct
from autotune.quantization.choice import QuantizationChoice, weight_axis
from autotune.quantization.network import Network
from autotune.quantization.quantize import CalibratedModel
from autotune.quantization.write import activation, rounded_weights, splice, steps_of
from autotune.tuning.measure.samples import open_sizes

if TYPE_CHECKING:
    import onnx

_PRODUCT, _VALUE = "product", "value"
Part = tuple[str, str]
"""Weights and bias of the product that makes a value, or the value itself."""


class SwitchedModel:
    """The compiled model; ``floats`` are the outputs of products that stay in float32."""

    def __init__(
        self, calibrated: CalibratedModel, samples: Mapping[str, Array], threads: int | None = None
    ) -> None:
        from autotune.tuning.api import compile

        self.calibrated = calibrated
        model, self._switches = switched(calibrated)
        self._module = compile(model, shapes=open_sizes(model, samples), threads=threads)

    @property
    def products(self) -> tuple[str, ...]:
        """Return the outputs of all products that can be quantised."""
        return tuple(node.output[0] for node in self.calibrated.choice().products)

    def run(self, feeds: Sequence[Mapping[str, Array]], floats: Collection[str]) -> list[dict[str, Array]]:
        """Return the outputs for each of the inputs."""
        parts = _parts(self.calibrated.choice(floats))
        on = {name: np.asarray(part in parts) for part, name in self._switches.items()}
        return [
            {name: np.array(array) for name, array in self._module.run({**feed, **on}).items()}
            for feed in feeds
        ]


def _parts(choice: QuantizationChoice) -> set[Part]:
    return {(_PRODUCT, node.output[0]) for node in choice.products} | {
        (_VALUE, name) for name in choice.values
    }


def switched(calibrated: CalibratedModel) -> tuple[onnx.ModelProto, dict[Part, str]]:
    """Return the model, and the name of the input, a bool, that quantises each part."""
    import onnx

    network, choice = calibrated.network.copy(), calibrated.choice()
    switches = {part: network.fresh(f"{part[1]}.{part[0]}.switch") for part in sorted(_parts(choice))}
    before: dict[int, list[Any]] = {}
    by_output = {node.output[0]: node for node in network.nodes}
    for product in choice.products:
        node = by_output[product.output[0]]
        _switched_product(network, node, switches[_PRODUCT, node.output[0]], calibrated, before)
    made = {}
    for value, step in steps_of(choice, calibrated.statistics.ranges).items():
        real, nodes = activation(network, value, *step)
        name, where = _where(network, switches[_VALUE, value], real, value)
        made[value] = name, [*nodes, where]
    splice(network, made, before)
    model = network.model()
    model.graph.input.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.BOOL, ()) for name in switches.values()
    )
    return model, switches


def _switched_product(
    network: Network, node: Any, switch: str, calibrated: CalibratedModel, before: dict[int, list[Any]]
) -> None:
    """Switch the weights of a product and, with bias correction, its bias."""
    axis = weight_axis(network, node)
    assert axis is not None, "chosen as a product"
    place = bias_place(network, network.readers(), node) if calibrated.correct_biases else None
    if place is not None:
        _switched_bias(network, node, *place, switch, calibrated, before)
    weights = node.input[1]
    rounded = rounded_weights(network.arrays[weights], axis).astype(np.float32)
    node.input[1], where = _where(network, switch, network.constant(f"{weights}.rounded", rounded), weights)
    before.setdefault(id(node), []).append(where)


def _switched_bias(
    network: Network,
    product: Any,
    holder: Any,
    index: int,
    switch: str,
    calibrated: CalibratedModel,
    before: dict[int, list[Any]],
) -> None:
    plain = holder.input[index] if index < len(holder.input) else ABSENT
    correct(network, [product], calibrated.statistics.means)
    corrected = holder.input[index] if index < len(holder.input) else ABSENT
    if corrected == plain:
        return
    if plain == ABSENT:
        plain = network.constant(f"{corrected}.none", np.zeros_like(network.arrays[corrected]))
    holder.input[index], where = _where(network, switch, corrected, plain)
    before.setdefault(id(holder), []).append(where)


def _where(network: Network, switch: str, on: str, off: str) -> tuple[str, Any]:
    from onnx import helper

    name = network.fresh(f"{off}.switched")
    return name, helper.make_node("Where", [switch, on, off], [name], name=name)


__all__ = ["SwitchedModel", "switched"]
