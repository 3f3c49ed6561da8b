"""A model whose layers are switched between float32, shorter weights, bfloat16 and eight bits when it runs.

One compilation serves all choices of layers: a choice costs a forward pass a sample, not a compilation. Weights are
inputs, so that a pass reads those of its choice and no others. Numbers are
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
from autotune.quantization.precision import BFLOAT16, FLOAT32, INT8, STORED_TYPES
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
"""The bias of the product that makes a value, as it is with weights of eight bits; the value itself, in eight bits or
in bfloat16; or what a product reads, in the type of a precision."""


class SwitchedWeights:
    """The weights of a product in each precision, made when they are first asked for."""

    def __init__(self, input: str, node: Any, array: Array, axis: int, kinds: Sequence[str]) -> None:
        self.input, self.kinds = input, (FLOAT32, INT8, *kinds)
        self._node, self._axis, self._made = node, axis, {FLOAT32: array}

    def of(self, kind: str) -> Array:
        """Return them in a precision, in float32 where the product cannot have it."""
        kind = kind if kind in self.kinds else FLOAT32
        if kind not in self._made:
            self._made[kind] = np.ascontiguousarray(self._rounded(kind), np.float32)
        return self._made[kind]

    def _rounded(self, kind: str) -> Array:
        array = self._made[FLOAT32]
        if kind == INT8:
            return rounded_weights(array, self._axis)
        if kind in REPLACED:
            return real_weights(kind, self._node, array)
        return stored_weights(array, self._axis, _WEIGHTS[kind])


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
        model, self._switches, self._weights = switched(calibrated, stored or {})
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
        stored, choice = stored or {}, self.calibrated.choice(floats)
        parts = _parts(choice) | {(kind, name) for name, kind in stored.items()}
        parts |= {
            (_SHORT_VALUE, value)
            for value in _short_values(self.calibrated, [n for n, kind in stored.items() if kind == BFLOAT16])
            if (_VALUE, value) not in parts
        }
        on = {name: np.asarray(part in parts) for part, name in self._switches.items()}
        kinds = {**stored, **{node.output[0]: INT8 for node in choice.products}}
        on |= {each.input: each.of(kinds.get(name, FLOAT32)) for name, each in self._weights.items()}
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
) -> tuple[onnx.ModelProto, dict[Part, str], dict[str, SwitchedWeights]]:
    """Return the model; the name of the input, a bool, that quantises each part; and the weights of each product, which
    are inputs too."""
    import onnx

    network, choice = calibrated.network.copy(), calibrated.choice()
    of_kind = {node.output[0]: _possible(network, node, stored) for node in choice.products}
    dynamic = {(kind, name) for name, kinds in of_kind.items() for kind in kinds if _is_dynamic(kind)}
    short = _short_values(calibrated, [name for name, kinds in stored.items() if BFLOAT16 in kinds])
    switches = {
        (kind, name): network.fresh(f"{name}.{kind}.switch")
        for kind, name in sorted(_parts(choice) | dynamic | {(_SHORT_VALUE, value) for value in short})
    }
    before: dict[int, list[Any]] = {}
    by_output = {node.output[0]: node for node in network.nodes}
    weights = dict[str, SwitchedWeights]()
    for product in choice.products:
        node = by_output[product.output[0]]
        _switched_bias(network, node, switches[_PRODUCT, node.output[0]], calibrated, before)
        weights[node.output[0]] = _switched_weights(network, node, of_kind[node.output[0]])
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
    model.graph.input.extend(
        onnx.helper.make_tensor_value_info(each.input, onnx.TensorProto.FLOAT, each.of(FLOAT32).shape)
        for each in weights.values()
    )
    return model, switches, weights


def _switched_weights(network: Network, node: Any, stored: Sequence[str]) -> SwitchedWeights:
    """Make an input of the weights of a product."""
    axis = weight_axis(network, node)
    assert axis is not None, "chosen as a product"
    array = network.arrays[node.input[1]]
    node.input[1] = network.fresh(f"{node.input[1]}.weights")
    return SwitchedWeights(node.input[1], node, array, axis, stored)


def _possible(network: Network, node: Any, stored: Mapping[str, Sequence[str]]) -> list[str]:
    """Return those precisions that a product can have: a convolution becomes no other operator."""
    kinds = stored.get(node.output[0], ())
    return [kind for kind in kinds if kind not in REPLACED or is_replaceable(network, node)]


def _is_dynamic(kind: str) -> bool:
    """Return whether what a product reads becomes bytes when the model runs."""
    return kind in REPLACED and REPLACED[kind].is_dynamic


def _switch_activations(network: Network, switches: Mapping[Part, str]) -> None:
    """Switch what products read to bytes of a range that is known when the model runs."""
    dynamic = {name: switch for (kind, name), switch in switches.items() if _is_dynamic(kind)}
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
    switch: str,
    calibrated: CalibratedModel,
    before: dict[int, list[Any]],
) -> None:
    """Switch the bias of a product, with bias correction."""
    place = bias_place(network, network.readers(), product) if calibrated.correct_biases else None
    if place is None:
        return
    holder, index = place
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
