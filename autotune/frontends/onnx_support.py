"""Which operators of a model are supported: directly, through their definition in ONNX, or not."""

from __future__ import annotations

from typing import Any

from autotune.errors import UnsupportedOpError
from autotune.frontends.onnx_composed import COMPOSED
from autotune.frontends.onnx_constants import SPECIAL
from autotune.frontends.onnx_nodes import REWRITTEN
from autotune.frontends.onnx_read import LoadedModel
from autotune.graph import ops

IMPORTED = (*SPECIAL, *REWRITTEN, *COMPOSED)
"""Operators of which the import makes others, or constants."""
_MAX_NAMED_NODES = 3


def expand_schema_functions(model: LoadedModel) -> Any:
    """Expand operators that are unknown here but that ONNX defines by known ones."""
    import onnx
    import onnx.inliner
    import onnx.shape_inference

    unknown = sorted(set(_unsupported(model.proto.graph)))
    expandable = [
        ("", op) for domain, op in unknown if not domain and _has_function(onnx.defs, op, model.opset)
    ]
    if not expandable:
        return model.proto
    try:
        # Some definitions depend on types: those of all values are written into the model first.
        proto = onnx.shape_inference.infer_shapes(model.proto)
        _declare_initializers(onnx, proto.graph)
        for node in proto.graph.node:
            if ("", node.op_type) in expandable:
                _add_default_attributes(onnx, node, model.opset)
        return onnx.inliner.inline_selected_functions(
            proto, expandable, exclude=False, inline_schema_functions=True
        )
    except (
        RuntimeError,
        ValueError,
        onnx.shape_inference.InferenceError,
    ):  # onnx cannot expand it: it will be listed as unsupported
        return model.proto


def _declare_initializers(onnx: Any, graph: Any) -> None:
    declared = {value.name for value in (*graph.input, *graph.value_info)}
    for tensor in graph.initializer:
        if tensor.name not in declared:
            graph.value_info.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )


def _has_function(defs: Any, op: str, opset: int) -> bool:
    if not defs.has(op):
        return False
    try:
        schema = defs.get_schema(op, max_inclusive_version=opset)
    except defs.SchemaError:  # the operator is newer than the model's opset
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def _add_default_attributes(onnx: Any, node: Any, opset: int) -> None:
    """The inliner leaves out attributes that the node does not give: write the defaults down."""
    schema = onnx.defs.get_schema(node.op_type, max_inclusive_version=opset)
    given = {attribute.name for attribute in node.attribute}
    for name, attribute in schema.attributes.items():
        if name not in given and attribute.default_value.type != onnx.AttributeProto.UNDEFINED:
            node.attribute.append(attribute.default_value)


def _unsupported(graph: Any) -> dict[tuple[str, str], list[str]]:
    """Unsupported operators as (domain, op) -> names of their nodes."""
    found: dict[tuple[str, str], list[str]] = {}
    for node in graph.node:
        domain = "" if node.domain == "ai.onnx" else node.domain
        if domain or not _is_known(node.op_type):
            name = node.name or next((o for o in node.output if o), "")
            found.setdefault((domain, node.op_type), []).append(name)
    return found


def _is_known(op: str) -> bool:
    return op in IMPORTED or (ops.supported(op) and ops.get(op).in_onnx)


def check_supported(graph: Any, origin: str) -> None:
    """Raises UnsupportedOpError, which lists every operator that is not supported and its first nodes."""
    unsupported = _unsupported(graph)
    if not unsupported:
        return
    lines = []
    for (domain, op), nodes in sorted(unsupported.items()):
        shown = ", ".join(repr(name) for name in nodes[:_MAX_NAMED_NODES])
        more = f", and {len(nodes) - _MAX_NAMED_NODES} more" if len(nodes) > _MAX_NAMED_NODES else ""
        times = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
        lines.append(f"  {f'{domain}::' if domain else ''}{op}: {times} ({shown}{more})")
    total = sum(len(nodes) for nodes in unsupported.values())
    what = "1 operator" if len(unsupported) == 1 else f"{len(unsupported)} operators"
    raise UnsupportedOpError(
        f"{origin} uses {what} without a definition here, in {total} of {len(graph.node)} nodes:\n"
        + "\n".join(lines)
        + f"\n  supported: {', '.join(name for name in sorted({*ops.names(), *IMPORTED}) if _is_known(name))}"
    )


__all__ = ["check_supported", "expand_schema_functions"]
