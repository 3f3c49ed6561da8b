"""A model whose layers are switched between float32, shorter weights, bfloat16 and eight bits when it runs.

One compilation serves all choices of layers: a choice costs a forward pass a sample, not a compilation. Numbers are
those of the quantised model but for the order of sums, integers of biases, and ranges that a join of fewer values has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune.compiler.request import CompileRequest
from autotune.compiler.shared import SharedWork
from autotune.graph.ir import ABSENT, Array
from autotune.quantization.bias_correction import bias_place, correct
from autotune.quantization.choice import QuantizationChoice, weight_axis
from autotune.quantization.network import Network
from autotune.quantization.precision import BFLOAT16, STORED_TYPES
from autotune.quantization.quantize import CalibratedModel
from autotune.quantization.replaced import REPLACED, is_replaceable, real_weights
from autotune.quantization.write import (
    activation,
    rounded_weights,
    short_activation,
    splice,
    steps_of,
    stored_weights,
)
from autotune.tuning.api import module_of
from autotune.tuning.measure.samples import open_sizes, outputs_of

if TYPE_CHECKING:
    import onnx

_PRODUCT, _VALUE, _SHORT_VALUE = "product", "value", "short value"
_WEIGHTS = {**STORED_TYPES, BFLOAT16: "bfloat16"}
Part = tuple[str, str]
"""Weights and bias of the product that makes a value; the value itself, in eight bits or in bfloat16; or weights of
such a product in the type of a precision."""


class SwitchedModel:
    """The compiled model; ``floats`` are the outputs of products that are not in eight bits.

    ``stored`` are the other precisions that products may have: bfloat16, or weights that are stored shorter
    (:mod:`autotune.quantization.precision`). It is compiled with the ``shared`` work.
    """

    def __init__(
        self,
        calibrated: CalibratedModel,
        samples: Mapping[str, Array],
        threads: int | None = None,
        stored: Mapping[str, Sequence[str]] | None = None,
        shared: SharedWork | None = None,
    ) -> None:
        self.calibrated = calibrated
        model, self._switches = switched(calibrated, stored or {})
        shapes = open_sizes(model, samples)
        self._module = module_of(CompileRequest(model, shapes=shapes, threads=threads, shared=shared))

    @property
    def products(self) -> tuple[str, ...]:
        """Return the outputs of all products that can be quantised."""
        return tuple(node.output[0] for node in self.calibrated.choice().products)

    def run(
        self,
        feeds: Sequence[Mapping[str, Array]],
        floats: Collection[str],
        stored: Mapping[str, str] | None = None,
    ) -> list[dict[str, Array]]:
        """Return the outputs for each of the inputs; ``stored`` has precisions of some of ``floats``."""
        stored = stored or {}
        parts = _parts(self.calibrated.choice(floats)) | {(kind, name) for name, kind in stored.items()}
        parts |= {
            (_SHORT_VALUE, value)
            for value in _short_values(self.calibrated, [n for n, kind in stored.items() if kind == BFLOAT16])
            if (_VALUE, value) not in parts
        }
        on = {name: np.asarray(part in parts) for part, name in self._switches.items()}
        return outputs_of(self._module, ({**feed, **on} for feed in feeds))


def _parts(choice: QuantizationChoice) -> set[Part]:
    return {(_PRODUCT, node.output[0]) for node in choice.products} | {
        (_VALUE, name) for name in choice.values
    }


def _short_values(calibrated: CalibratedModel, products: Collection[str]) -> list[str]:
    """Return the values that are in bfloat16 where the products of these outputs are."""
    others = [node.output[0] for node in calibrated.choice().products if node.output[0] not in products]
    return list(calibrated.choice(others).values)


def switched(
    calibrated: CalibratedModel, stored: Mapping[str, Sequence[str]]
) -> tuple[onnx.ModelProto, dict[Part, str]]:
    """Return the model, and the name of the input, a bool, that quantises each part, or stores its weights shorter."""
    import onnx

    network, choice = calibrated.network.copy(), calibrated.choice()
    of_kind = {node.output[0]: _possible(network, node, stored) for node in choice.products}
    shorter = {(kind, product) for product, kinds in of_kind.items() for kind in kinds}
    short = _short_values(calibrated, [name for name, kinds in stored.items() if BFLOAT16 in kinds])
    switches = {
        (kind, name): network.fresh(f"{name}.{kind}.switch")
        for kind, name in sorted(_parts(choice) | shorter | {(_SHORT_VALUE, value) for value in short})
    }
    before: dict[int, list[Any]] = {}
    by_output = {node.output[0]: node for node in network.nodes}
    for product in choice.products:
        node = by_output[product.output[0]]
        _switched_product(network, node, switches, calibrated, before, of_kind[node.output[0]])
    made = {}
    for value, step in steps_of(choice, calibrated.statistics.ranges).items():
        real, nodes = activation(network, value, *step)
        name, where = _where(network, switches[_VALUE, value], real, value)
        made[value] = name, [*nodes, where]
    for value in short:
        real, nodes = short_activation(network, value)
        off, others = made.get(value, (value, []))
        name, where = _where(network, switches[_SHORT_VALUE, value], real, off)
        made[value] = name, [*others, *nodes, where]
    splice(network, made, before)
    _switch_activations(network, switches)
    model = network.model()
    model.graph.input.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.BOOL, ()) for name in switches.values()
    )
    return model, switches


def _switched_product(
    network: Network,
    node: Any,
    switches: Mapping[Part, str],
    calibrated: CalibratedModel,
    before: dict[int, list[Any]],
    stored: Sequence[str],
) -> None:
    """Switch the weights of a product and, with bias correction, its bias."""
    axis = weight_axis(network, node)
    assert axis is not None, "chosen as a product"
    product = node.output[0]
    switch = switches[_PRODUCT, product]
    place = bias_place(network, network.readers(), node) if calibrated.correct_biases else None
    if place is not None:
        _switched_bias(network, node, *place, switch, calibrated, before)
    weights = node.input[1]
    array, nodes = network.arrays[weights], before.setdefault(id(node), [])
    made = {switches[kind, product]: _short(node, array, axis, kind) for kind in stored}
    made[switch] = rounded_weights(array, axis).astype(np.float32)
    for each, rounded in made.items():
        on = network.constant(f"{weights}.rounded", rounded)
        node.input[1], where = _where(network, each, on, node.input[1])
        nodes.append(where)


def _possible(network: Network, node: Any, stored: Mapping[str, Sequence[str]]) -> list[str]:
    """Return those precisions that a product can have: a convolution becomes no other operator."""
    kinds = stored.get(node.output[0], ())
    return [kind for kind in kinds if kind not in REPLACED or is_replaceable(network, node)]


def _short(node: Any, array: Array, axis: int, kind: str) -> Array:
    """Return the real numbers of a product's weights in a precision."""
    if kind in REPLACED:
        return real_weights(kind, node, array)
    return stored_weights(array, axis, _WEIGHTS[kind])


def _switch_activations(network: Network, switches: Mapping[Part, str]) -> None:
    """Switch what products read to bytes of a range that is known when the model runs."""
    dynamic = {
        name: switch
        for (kind, name), switch in switches.items()
        if kind in REPLACED and REPLACED[kind].is_dynamic
    }
    nodes = []
    for node in network.nodes:
        if node.output and (switch := dynamic.get(node.output[0])):
            nodes += _dynamic_range(network, node, switch)
        nodes.append(node)
    network.nodes = nodes


def _dynamic_range(network: Network, node: Any, switch: str) -> list[Any]:
    """Return the nodes before a product that make what it reads then, with the switch."""
    from onnx import helper

    value = node.input[0]
    parts = [network.fresh(f"{value}.{each}") for each in ("bytes", "step", "zero", "real")]
    node.input[0], where = _where(network, switch, parts[-1], value)
    return [
        helper.make_node("DynamicQuantizeLinear", [value], parts[:3], name=parts[0]),
        helper.make_node("DequantizeLinear", parts[:3], parts[3:], name=parts[-1]),
        where,
    ]


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
