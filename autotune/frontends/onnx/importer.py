"""ONNX models (opset 7 to 28) as graphs.

Initialisers become constants; what depends on shapes only (Shape, Gather of it, Concat of that, ...)
is evaluated here, so that the graph has parameters as attributes. Model functions are expanded, and
so are, to any depth, ONNX operators that are unknown here but have a definition in terms of known ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from autotune.errors import ComputedLengthError, GraphError, ModelImportError
from autotune.files import is_in_file
from autotune.frontends.onnx.affinity import device_in
from autotune.frontends.onnx.budget import MAX_EVALUATED_BYTES, Expansion
from autotune.frontends.onnx.composed import COMPOSED, SEVERAL_OUTPUTS
from autotune.frontends.onnx.constants import SPECIAL, attribute_value, fold_special
from autotune.frontends.onnx.control import CONTROL, control
from autotune.frontends.onnx.counted import Counted, carried
from autotune.frontends.onnx.declared import (
    bounds_in,
    check_declared,
    check_inputs,
    declared_shapes,
    given_value,
)
from autotune.frontends.onnx.diverging import ImportStep, ShapesDifferError, import_in_order
from autotune.frontends.onnx.domains import DEFINED
from autotune.frontends.onnx.emit import Emitter
from autotune.frontends.onnx.foreign import GRAPH_DOMAIN, ForeignNode
from autotune.frontends.onnx.functions import Definition, definition_of
from autotune.frontends.onnx.lengths import Length, Lengths
from autotune.frontends.onnx.nodes import OnnxNode, convert, size_rules
from autotune.frontends.onnx.old_versions import BROADCASTING, OLD, compose_broadcast, modernise
from autotune.frontends.onnx.read import (
    LoadedModel,
    ModelSource,
    TensorReader,
    element_dtype,
    read_model,
)
from autotune.frontends.onnx.schema import check_form, check_node, node_name
from autotune.frontends.onnx.scope import Importing, NodeLists
from autotune.frontends.onnx.sequences import SEQUENCES, is_of_sequences, sequence_node
from autotune.frontends.onnx.support import check_supported, is_known, operator_of
from autotune.frontends.sizes import Given, InputSizes
from autotune.graph import ops
from autotune.graph.build import complete_node
from autotune.graph.ir import ABSENT, Array, Attr, Attrs, Graph, Node, TensorType, fresh_name
from autotune.graph.ops.block_products import STORED_WEIGHTS
from autotune.graph.ops.loop import is_evaluable, is_loop

_LOG = logging.getLogger("autotune.frontends")
MAX_FOLDED_BYTES = 1 << 16
"""Results of constant nodes up to this size are evaluated at import; passes do the larger ones."""
MAX_VALUE_BYTES = 1 << 40
"""Far beyond the memory of any machine that this is for; sizes and addresses stay far below 2^63."""


def load(
    source: ModelSource | LoadedModel,
    *,
    shapes: Given | None = None,
    values: Mapping[str, Array] | None = None,
) -> Graph:
    """Import a model: a path, ``"zoo:NAME"``, the bytes of a file, an ``onnx.ModelProto``, or what was read of one.

    ``shapes`` gives sizes that the model leaves open: of a dimension by its name, or the shape of an input by the
    input's (:mod:`autotune.frontends.sizes`). ``values`` gives inputs that are
    constant from here on, such as a shape or axes that decide what is compiled: the graph has no such inputs.

    Raises:
        UsageError: no such file or zoo model; ``shapes`` or ``values`` name nothing of the model, or do not fit.
        UnknownParameterError: what is compiled depends on inputs without a value.
        UnsupportedOpError: operators that are not supported, all listed.
        ModelImportError: anything else in the model that cannot be imported.
    """
    model = source if isinstance(source, LoadedModel) else read_model(source)
    return _Importer(model, shapes or {}, dict(values or {})).run()


@dataclass(frozen=True)
class Traced:
    """An imported model, with the nodes that were evaluated: what each constant was made by.

    ``folded`` are nodes of the graph IR by each of their results, and ``Shape``, ``Size`` and ``Range`` as ONNX writes
    them. ``types`` and ``constants`` are also those that the graph needs no more. ``rules`` are the names of
    rules by which padding and places follow from sizes, such as SAME_UPPER, by the values that such a node makes.
    """

    graph: Graph
    folded: Mapping[str, Node]
    types: Mapping[str, TensorType]
    constants: Mapping[str, Array]
    rules: Mapping[str, Sequence[str]] = field(default_factory=dict)
    lengths: Mapping[str, Length] = field(default_factory=dict)
    """Lengths that the model computes, by their symbols."""
    parts: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Of each result of a node that stands for a cut to such a length: the axis, and the symbol."""
    outputs: int | None = None
    """The number of the model's own outputs, where those behind them are lengths."""

    @property
    def bounds(self) -> dict[str, int]:
        """The most that each length may be."""
        return {symbol: length.bound for symbol, length in self.lengths.items()}


@dataclass(frozen=True)
class Begun:
    """Types, constants and loops of an import that may have left out nodes."""

    types: Mapping[str, TensorType]
    constants: Mapping[str, Array]
    loops: Mapping[str, Attrs]
    """The attributes of each loop, by its first result."""

    @classmethod
    def of(
        cls, types: Mapping[str, TensorType], constants: Mapping[str, Array], nodes: Iterable[Node]
    ) -> Begun:
        """Return what is known of the values of some nodes."""
        return cls(types, constants, {node.outputs[0]: node.attrs for node in nodes if is_loop(node)})


def load_traced(model: LoadedModel, shapes: Given, assumed: Mapping[str, int] | None = None) -> Traced:
    """Return :func:`load`, which evaluates larger constants too, says how each came about, and computes both branches
    of what it cannot decide: what is inside of one graph cannot be compared with that of other sizes.

    With ``assumed``, lengths that are computed count as sizes: of the symbols in it these, of others their bounds.
    """
    lengths = None if assumed is None else Lengths(assumed)
    importer = _Importer(model, shapes, {}, MAX_EVALUATED_BYTES, both_branches=True, lengths=lengths)
    graph = importer.run()
    traced = Traced(graph, importer.folded, importer.types, importer.constants, importer.rules)
    if lengths is None:
        return traced
    own = len(model.proto.graph.output)
    return replace(traced, lengths=lengths.found, parts=lengths.parts, outputs=own)


def load_begun(model: LoadedModel, shapes: Given, assumed: Mapping[str, int]) -> Begun:
    """Return types, constants and loops of :func:`load_traced`, of a model that may be none at such lengths: of the
    nodes that can be."""
    importer = _Importer(model, shapes, {}, MAX_EVALUATED_BYTES, both_branches=True, lengths=Lengths(assumed))
    importer.skipped = (ModelImportError,)  # no elements, which an operator may not take
    with suppress(ModelImportError):
        importer.run()
    return Begun.of(importer.types, importer.constants, importer.lists.all())


class _Importer:
    """State of one import. The graph grows node by node, with all types known."""

    def __init__(
        self,
        model: LoadedModel,
        shapes: Given,
        values: dict[str, Array],
        most_folded: int = MAX_FOLDED_BYTES,
        both_branches: bool = False,
        lengths: Lengths | None = None,
    ) -> None:
        self.lengths = lengths
        """Lengths that are computed, where they count as sizes."""
        self.skipped: tuple[type[ModelImportError], ...] = ()
        """Errors of nodes that are left out, with what reads them."""
        self.most_folded = most_folded
        self.both_branches = both_branches
        self.folded: dict[str, Node] = {}
        """Evaluated nodes, by their results."""
        self.rules: dict[str, Sequence[str]] = {}
        self.origin = model.origin
        self.opset = model.opset
        self.node_names = model.node_names
        self.devices = model.devices
        self.at = ""
        self.device = ""
        self.expansion = Expansion(model.origin)
        self.proto = model.proto
        self.read = _names_read(model.proto.graph)
        self.reader = TensorReader(model.origin, model.folder)
        self.bounds, self.shapes = bounds_in(shapes, model.proto.graph)
        self.values: dict[str, Array] = {**model.values, **values}
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, Array] = {}
        self.lists = NodeLists()
        self.sequences: dict[str, list[str] | None] = {}
        self.counted: dict[str, Counted] = {}
        """Values of which a part is there."""

    def type_of(self, value: str) -> TensorType:
        if value not in self.types:
            raise ModelImportError(f"{self.origin}: value {value!r} is read before anything defines it")
        return self.types[value]

    def constant_of(self, value: str) -> Array | None:
        return self.constants.get(value)

    def known(self, value: str) -> Array | None:
        if value in self.constants or self.lengths is None or value == ABSENT:
            return self.constants.get(value)
        try:
            return self.lengths.evaluated(value, self.lists.all(), self.types, self.constants, self.bounds)
        except ModelImportError as error:
            raise ModelImportError(f"{self.origin}: {error}") from error

    def inputs_behind(self, value: str) -> tuple[str, ...]:
        made = {output: node for node in self.lists.all() for output in node.outputs}
        waiting, found = [value], dict[str, None]()
        while waiting:
            name = waiting.pop()
            if name in found or name in self.constants or name == ABSENT:
                continue
            found[name] = None
            waiting += made[name].inputs if name in made else ()
        given = {value.name for value in self.proto.graph.input}
        return tuple(sorted(name for name in found if name in given))

    def run(self) -> Graph:
        graph = self.proto.graph
        check_supported(graph.node, self.origin, self.opset)
        for tensor in graph.initializer:
            if tensor.name in self.types:
                raise ModelImportError(f"{self.origin}: initialiser {tensor.name!r} is defined twice")
            self._define_constant(tensor.name, self.reader.read(tensor, f"initialiser {tensor.name!r}"))
        if graph.sparse_initializer:
            raise ModelImportError(f"{self.origin} has sparse initialisers: not supported")
        inputs = self._import_inputs(graph)
        outputs = [value.name for value in graph.output]
        origins = _origins(graph, self.node_names)
        steps = [ImportStep(*pair) for pair in zip(graph.node, map(self._imports_of, origins), strict=True)]
        rest = import_in_order(steps, outputs, self._importing())
        if rest is not None:
            rest.count_lengths()
        for value in graph.output:
            check_declared(value, self.types.get(value.name), f"{self.origin}: output {value.name!r}")
        for output in outputs:
            if output in self.sequences:
                raise ModelImportError(
                    f"{self.origin}: output {output!r} is a sequence or an optional, and modules give tensors\n"
                    "  end the model before it, or join its elements by ConcatFromSequence"
                )
            self.type_of(output)
        counted = [(n, self.counted[v]) for n, v in enumerate(outputs) if v in self.counted]
        outputs += dict.fromkeys(found.count for _, found in counted if found.count not in outputs)
        if self.lengths is not None:
            outputs += [value for value in self.lengths.values if value not in outputs]
        made = Graph(
            _graph_name(self.origin, graph.name),
            inputs,
            tuple(outputs),
            tuple(self.lists.current),
            self.types,
            self.constants,
            counted=tuple((n, found.axis, outputs.index(found.count)) for n, found in counted),
        )
        return self.devices.apply(made).pruned()

    def _imports_of(self, origin: str) -> Callable[[Any], None]:
        """Return what imports a node of the file's graph, or a copy of it."""

        def imports(proto: Any) -> None:
            self.at = origin
            own = device_in(proto.metadata_props, f"{self.origin}: node {origin!r}")
            self.device = own or self.devices.nodes.get(origin, "")
            with suppress(*self.skipped):
                self._import_node(proto)

        return imports

    def _import_inputs(self, graph: Any) -> tuple[str, ...]:
        values = [value for value in graph.input if value.name not in self.constants]
        for value in graph.input:
            stored = self.types.get(value.name)
            check_declared(value, stored, f"{self.origin}: input {value.name!r}", is_input=True)
        check_inputs(values, self.values, self.origin)
        sizes = InputSizes(self.origin, declared_shapes(values), self.shapes)
        sizes.check_complete(value.name for value in values if value.name not in self.values)
        for value in values:
            tensor, shape = value.type.tensor_type, sizes.shape(value.name)
            dtype = element_dtype(tensor.elem_type, f"{self.origin}: input {value.name!r}")
            if value.name in self.values:
                where = f"input {value.name!r} of {self.origin}"
                self._define_constant(value.name, given_value(self.values[value.name], dtype, shape, where))
            else:
                found = TensorType(tuple(int(extent) for extent in shape or ()), dtype)
                self._check_size(found, f"input {value.name!r}")
                self.types[value.name] = found
        return tuple(value.name for value in values if value.name not in self.constants)

    def _import_node(self, proto: Any) -> None:
        op, name = operator_of(proto), node_name(proto)
        if self._import_special(op, proto):
            return
        if op in DEFINED:
            prefix = self._fresh(f"{name}.")
            foreign = ForeignNode(proto, prefix, self, self._define_constant)
            self._import_nodes_of(DEFINED[op].define(foreign))
            return
        if proto.domain == GRAPH_DOMAIN:
            self._import_of_graph(proto)
            return
        if not ops.is_custom(op):
            check_node(proto, self)
        if not is_known(op):
            self._import_definition(proto)
            return
        node = self._onnx_node(proto, op)
        twice = [output for output in proto.output if output != ABSENT and output in self.types]
        if twice:
            raise ModelImportError(f"{self.origin}: {node.fail(f'{twice[0]!r} is defined twice')}")
        if node.op in SPECIAL and (open_ := [value for value in node.inputs if value in self.counted]):
            where = f"{open_[0]!r} along axis {self.counted[open_[0]].axis}"
            reason = f"the extent of {where} is known only when it is computed"
            raise ComputedLengthError(f"{self.origin}: {node.fail(reason)}")
        special = fold_special(node)
        if special is not None:
            if op in ("Range", "Shape", "Size"):
                made = Node(op, tuple(node.inputs), (node.outputs[0],), node.attrs, node.name)
                self.folded[node.outputs[0]] = made
            self._define_constant(node.outputs[0], special)
            return
        if not ops.is_custom(op):
            if self.opset < OLD:
                modernise(node)
            rules = size_rules(node)
            convert(node)
            self._cut_outputs(node)
        else:
            rules = ()
        before = len(self.types)
        try:
            self._append(node)
        except GraphError as error:
            raise ModelImportError(f"{self.origin}: {error}") from error
        if rules:
            self.rules.update(dict.fromkeys(islice(self.types, before, None), rules))

    def _onnx_node(self, proto: Any, op: str) -> OnnxNode:
        name = node_name(proto)
        attrs = {a.name: self._attribute(a, name, op) for a in proto.attribute}
        return OnnxNode(op, name, list(proto.input), list(proto.output), attrs, self)

    def _import_of_graph(self, proto: Any) -> None:
        """Import a node of a definition here that is an operator of the graph IR."""
        node = self._onnx_node(proto, proto.op_type)
        self._append_plain(node.op, node.inputs, node.outputs, node.attrs, node.name)

    def _import_special(self, op: str, proto: Any) -> bool:
        """Import a node of subgraphs or sequences, of which ONNX's definition says little; False for others."""
        first = proto.input[0] if proto.input else ABSENT
        if op not in CONTROL and op not in SEQUENCES and first not in self.sequences:
            return False
        check_form(proto, self.opset)
        name, model = node_name(proto), self._importing()
        graphs = {a.name: a.g for a in proto.attribute if a.HasField("g")}
        plain = [a for a in proto.attribute if a.name not in graphs and not a.HasField("tp")]
        attrs = {a.name: self._attribute(a, name, op) for a in plain}
        node = OnnxNode(op, name, list(proto.input), list(proto.output), attrs, self)
        try:
            if op in CONTROL:
                control(node, graphs, model)
            elif is_of_sequences(op, first, model):
                sequence_node(node, model)
            else:
                raise node.fail(f"its input {first!r} is a sequence, which it does not take")
        except GraphError as error:
            raise ModelImportError(f"{self.origin}: {error}") from error
        return True

    def _importing(self) -> Importing:
        return Importing(
            self.opset,
            self.types,
            self.constants,
            self.sequences,
            self.counted if self.lengths is None else self.lengths.parts,
            self._part,
            self.read,
            self._import_node,
            self._append_plain,
            self._define_constant,
            self._fresh,
            self.type_of,
            self.reader.read,
            self.lists.extend,
            self.both_branches,
            self.lists.apart,
            self.expansion,
            self._on_device,
        )

    @contextmanager
    def _on_device(self, device: str) -> Iterator[None]:
        around, self.device = self.device, device or self.device
        try:
            yield
        finally:
            self.device = around

    def _import_definition(self, proto: Any) -> None:
        """Import the nodes that ONNX defines an operator by, in the place of its node."""
        body = definition_of(proto, self.opset, self.type_of, self._fresh(f"{node_name(proto)}."))
        assert body is not None, "checked before nodes are imported"
        check_supported(body.nodes, f"{self.origin}: the definition of {proto.op_type}", body.opset)
        self._import_nodes_of(body)

    def _import_nodes_of(self, body: Definition) -> None:
        outer, self.opset = self.opset, body.opset
        self.read |= body.read
        for inner in body.nodes:
            self.expansion.add(self.at)
            try:
                self._import_node(inner)
            except ShapesDifferError as found:
                raise found.reason from None
        self.opset = outer

    def _attribute(self, proto: Any, node: str, op: str) -> Any:
        value = attribute_value(
            proto, lambda t: self.reader.read(t, f"attribute {proto.name!r} of node {node!r}")
        )
        if value is None:
            raise ModelImportError(
                f"{self.origin}: node {node!r} ({op}): attribute {proto.name!r} is of a kind that "
                "is not supported"
            )
        return value

    def _append(self, node: OnnxNode) -> None:
        aligned = self.opset < OLD and node.op in BROADCASTING
        composer = compose_broadcast if aligned else COMPOSED.get(node.op)
        if composer is not None:
            append = partial(self._append_plain, name=node.name)
            composer(node, Emitter(node, append, self._define_constant, self._fresh, self._part))
            return
        if node.flatten_to is None:
            self._append_plain(node.op, node.inputs, node.outputs, node.attrs, node.name)
            return
        flat = self._fresh(f"{node.outputs[0]}.flat")
        self._append_plain("Reshape", node.inputs, [flat], {"shape": node.flatten_to}, flat)
        result = self._fresh(f"{node.outputs[0]}.flat_result")
        self._append_plain(node.op, [flat], [result], node.attrs, node.name)
        shape = {"shape": self.type_of(node.inputs[0]).shape}
        self._append_plain("Reshape", [result], node.outputs, shape, node.outputs[0])

    def _append_plain(
        self, op: str, inputs: list[str], outputs: list[str], attrs: Mapping[str, Attr], name: str
    ) -> None:
        while inputs and inputs[-1] == ABSENT:
            inputs = inputs[:-1]
        given = Node(op, tuple(inputs), tuple(outputs), attrs, name, (self.at,), self.device)
        node, types = complete_node(given, self.types)
        arrays = [self.constants.get(v) for v in node.inputs]
        known = all(a is not None or v == ABSENT for a, v in zip(arrays, node.inputs, strict=True))
        small = sum(t.nbytes for t in types.values()) <= self.most_folded
        small = small and is_evaluable(op, node.attrs)
        if known and small and op not in STORED_WEIGHTS:
            results = ops.get(op).reference(arrays, node.attrs)
            for output, array in zip(outputs, results, strict=True):
                self._define_constant(output, array)
                self.folded[output] = node
            return
        for output, found in types.items():
            self._check_size(found, f"node {name!r} ({op}): its result {output!r}")
        try:
            self.counted |= carried(node, {**self.types, **types}, self.counted, self.constants)
        except ComputedLengthError as error:
            raise ComputedLengthError(f"{self.origin}: {error}") from error
        self.types.update(types)
        self.lists.current.append(node)

    def _part(self, room: str, axis: int, count: str, output: str) -> None:
        """Define the part of a value of which another one says how long it is along an axis."""
        if room in self.constants and count in self.constants:
            there = range(int(self.constants[count].reshape(())))
            self._define_constant(output, np.take(self.constants[room], there, axis=axis))
        elif self.lengths is None:
            self._append_plain("Identity", [room], [output], {}, output)
            self.counted[output] = Counted(axis, count)
        else:
            first = self.lengths.same(count, self.lists.current)
            node, found = self.lengths.part(room, axis, first, output, self.types, self.bounds)
            self.types[output] = found
            self.lists.current.append(node.replace(origins=(self.at,), device=self.device))

    def _check_size(self, found: TensorType, what: str) -> None:
        if found.nbytes > MAX_VALUE_BYTES:
            raise ModelImportError(
                f"{self.origin}: {what} is {found}, {found.nbytes} bytes\n"
                f"  the most that a value may have are {MAX_VALUE_BYTES}"
            )

    def _cut_outputs(self, node: OnnxNode) -> None:
        """Drop optional outputs (Dropout's mask, MaxPool's indices) that nothing reads."""
        if node.op in SEVERAL_OUTPUTS:
            return
        used = sorted({output for output in node.outputs[1:] if output != ABSENT} & self.read)
        if used:
            raise ModelImportError(
                f"{self.origin}: {node.fail(f'its optional output {used[0]!r} is not supported')}"
            )
        del node.outputs[1:]

    def _define_constant(self, name: str, array: Array) -> None:
        if not is_in_file(array):  # what lies in a file is read, and laid out, when it is used
            array = np.ascontiguousarray(array).reshape(array.shape)
        self.constants[name] = array
        self.types[name] = TensorType.of(array)

    def _fresh(self, name: str) -> str:
        return fresh_name(name, self.types)


def _names_read(graph: Any) -> set[str]:
    """Return the names that nodes of a graph read, and its outputs; those of its subgraphs too."""
    found = {value.name for value in graph.output}
    for node in graph.node:
        found.update(node.input)
        for attribute in node.attribute:
            found.update(*(_names_read(inner) for inner in (attribute.g, *attribute.graphs)))
    return found


def _origins(graph: Any, names: Mapping[str, str]) -> list[str]:
    """Return the node of the file that each node comes from; a function's body stands before what gives its result."""
    found, origin = [], ""
    for proto in reversed(graph.node):
        named = [names[value] for value in proto.output if value in names]
        origin = named[0] if named else origin or node_name(proto)
        found.append(origin)
    return found[::-1]


def _graph_name(origin: str, declared: str) -> str:
    if origin.startswith("zoo:"):
        return origin.removeprefix("zoo:")
    path = Path(origin)
    return path.stem if path.suffix == ".onnx" else declared or "model"


__all__ = ["Begun", "Traced", "load", "load_begun", "load_traced"]
