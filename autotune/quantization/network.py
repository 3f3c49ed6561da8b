"""An ONNX model while it is quantised: nodes, initialisers as arrays, and who reads what."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune.frontends.onnx.read import LoadedModel, ModelSource, read_model
from autotune.graph.ir import ABSENT, Array, fresh_name

if TYPE_CHECKING:
    import onnx

LEAST_OPSET, OPSET = 13, 17
"""Scales along an axis came with the first; older models are converted to the second."""


@dataclass(frozen=True)
class Quantization:
    """A QDQ model, and how many of its products and values are of eight bits."""

    model: onnx.ModelProto
    products: int
    values: int

    def called(self, name: str) -> onnx.ModelProto:
        """Return the model, which reports and databases call so from now on."""
        self.model.graph.name = name
        return self.model


@dataclass
class Network:
    """The main graph of a model. Subgraphs are left as they are; what they read keeps its name."""

    proto: onnx.ModelProto
    nodes: list[Any]
    arrays: dict[str, Array]
    taken: set[str]

    @classmethod
    def read(cls, source: ModelSource) -> Network:
        """Read a model as `autotune compile` takes it.

        Raises as :func:`autotune.frontends.onnx.importer.load` does.
        """
        from onnx import numpy_helper

        proto = _modern(read_model(source))
        arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
        nodes = []
        for node in proto.graph.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                arrays[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
            else:
                nodes.append(node)
        values = {value for node in nodes for value in (*node.input, *node.output)}
        return cls(proto, nodes, arrays, values | arrays.keys() | {v.name for v in proto.graph.input})

    def copy(self) -> Network:
        """Return a network that may be changed without this one; arrays, which are only ever replaced, are shared."""
        nodes = [copy.deepcopy(node) for node in self.nodes]
        return replace(self, nodes=nodes, arrays=dict(self.arrays), taken=set(self.taken))

    @property
    def inputs(self) -> list[str]:
        """Inputs that are no initialisers."""
        return [value.name for value in self.proto.graph.input if value.name not in self.arrays]

    @property
    def outputs(self) -> list[str]:
        return [value.name for value in self.proto.graph.output]

    def producers(self) -> dict[str, Any]:
        """Return the node that makes each value."""
        return {value: node for node in self.nodes for value in node.output if value != ABSENT}

    def readers(self) -> dict[str, list[Any]]:
        """Return the nodes that read each value, subgraphs' reads among those of their node; graph
        outputs are not counted."""
        found: dict[str, list[Any]] = {}
        for node in self.nodes:
            for value in {*node.input, *_captured(node)} - {ABSENT}:
                found.setdefault(value, []).append(node)
        return found

    def only_reader(self, readers: dict[str, list[Any]], value: str) -> Any | None:
        """Return the one node that reads a value, if nothing else does."""
        found = readers.get(value, [])
        return found[0] if len(found) == 1 and value not in self.outputs else None

    def constant(self, name: str, array: Array) -> str:
        """Return a new initialiser, of a name like ``name``."""
        fresh = self.fresh(name)
        self.arrays[fresh] = array
        return fresh

    def fresh(self, name: str) -> str:
        """Return a name that nothing has, like ``name``."""
        fresh = fresh_name(name, self.taken)
        self.taken.add(fresh)
        return fresh

    def model(self, outputs: Iterable[str] = ()) -> onnx.ModelProto:
        """Return the model as it is now, with more ``outputs`` beside its own."""
        import onnx
        from onnx import numpy_helper

        made = onnx.ModelProto()
        made.CopyFrom(self.proto)
        graph = made.graph
        for field in ("node", "initializer", "value_info"):
            graph.ClearField(field)
        graph.node.extend(self.nodes)
        read = {value for node in self.nodes for value in (*node.input, *_captured(node))} | {*self.outputs}
        graph.initializer.extend(
            numpy_helper.from_array(np.asarray(array, order="C"), name)
            for name, array in self.arrays.items()
            if name in read
        )
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
        return made


def _modern(model: LoadedModel) -> Any:
    """Return a copy of a model with its data in it, of an opset that has scales along an axis."""
    import onnx
    from onnx import external_data_helper, version_converter

    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    if model.folder is not None:
        external_data_helper.load_external_data_for_model(proto, str(model.folder))
    return proto if model.opset >= LEAST_OPSET else version_converter.convert_version(proto, OPSET)


def _captured(node: Any) -> set[str]:
    """Return values that the subgraphs of a node read."""
    found: set[str] = set()
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            for inner in graph.node:
                found |= {*inner.input} | _captured(inner)
            found |= {value.name for value in graph.output}
    return found


def attribute(node: Any, name: str, default: Any) -> Any:
    """Return an attribute of a node."""
    from onnx import helper

    for each in node.attribute:
        if each.name == name:
            return helper.get_attribute_value(each)
    return default


__all__ = ["Network", "Quantization", "attribute"]
