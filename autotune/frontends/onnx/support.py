"""Support of a model's operators: directly, through their definition in ONNX, or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from autotune.errors import UnsupportedOpError
from autotune.frontends.onnx.composed import COMPOSED
from autotune.frontends.onnx.constants import SPECIAL
from autotune.frontends.onnx.control import CONTROL
from autotune.frontends.onnx.domains import DEFINED
from autotune.frontends.onnx.functions import is_defined, parts_of
from autotune.frontends.onnx.nodes import REWRITTEN
from autotune.frontends.onnx.read import MAX_OPSET
from autotune.frontends.onnx.sequences import SEQUENCES
from autotune.graph import ops
from autotune.suggest import counted, similar

IMPORTED = (*SPECIAL, *REWRITTEN, *COMPOSED, *CONTROL, *SEQUENCES)
"""Operators of which the import makes others, or constants."""
_MAX_NAMED_NODES = 3
_LEARNED = "ai.onnx.ml"
_HOW_TO_LEARN = (
    "ai.onnx.ml: encode texts and dictionaries as numbers before the model, and export what follows"
)


def _unsupported(nodes: Iterable[Any], opset: int) -> dict[tuple[str, str], list[str]]:
    """Return the unsupported operators as (domain, op) -> names of their nodes."""
    found: dict[tuple[str, str], list[str]] = {}
    for node in _with_inner(nodes):
        op = operator_of(node)
        if op not in DEFINED and not (ops.supported(op) if ops.is_custom(op) else _is_supported(op, opset)):
            name = node.name or next((o for o in node.output if o), "")
            domain = "" if node.domain == "ai.onnx" else node.domain
            found.setdefault((domain, node.op_type), []).append(name)
    return found


def _with_inner(nodes: Iterable[Any]) -> Iterator[Any]:
    """Yield nodes, each followed by those of its subgraphs."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _with_inner(graph.node)


def operator_of(node: Any) -> str:
    """Return a node's operator by its name here, which begins with the domain if that is not ONNX's own."""
    return str(node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}")


def is_known(op: str) -> bool:
    """Return whether an operator of ONNX is imported as it is, not by its definition in ONNX."""
    return op in IMPORTED or (ops.supported(op) and ops.get(op).in_onnx)


@cache
def _is_supported(op: str, opset: int) -> bool:
    """Return whether an operator is known, or defined by supported ones as far as can be told without types."""
    return is_known(op) or (
        is_defined(op, opset) and all(_is_supported(*part) for part in parts_of(op, opset))
    )


@cache
def known_operators() -> tuple[str, ...]:
    """Return the operators that models may have, of ONNX and of the domains with definitions here, sorted."""
    from onnx import defs

    names = {schema.name for schema in defs.get_all_schemas() if schema.domain == ""}
    return tuple(sorted({*DEFINED, *(name for name in names if _is_supported(name, MAX_OPSET))}))


def _suggestion(op: str) -> str:
    """Return the known operators that are called much the same, for the end of a line; "" for none."""
    known = {name.rpartition(".")[2]: name for name in known_operators()}
    found = [_shown(*known[name].rpartition(".")[::2]) for name in similar(op, known)]
    return f"; known: {', '.join(found)}" if found else ""


def _shown(domain: str, op: str) -> str:
    return f"{domain}::{op}" if domain else op


def check_supported(protos: Sequence[Any], origin: str, opset: int) -> None:
    """Raise UnsupportedOpError, which lists every operator that is not supported and its first nodes."""
    unsupported = _unsupported(protos, opset)
    if not unsupported:
        return
    lines = []
    for (domain, op), nodes in sorted(unsupported.items()):
        shown = ", ".join(repr(name) for name in nodes[:_MAX_NAMED_NODES])
        more = f", and {len(nodes) - _MAX_NAMED_NODES} more" if len(nodes) > _MAX_NAMED_NODES else ""
        times = counted(len(nodes), "node")
        lines.append(f"  {_shown(domain, op)}: {times} ({shown}{more}){_suggestion(op)}")
    total = sum(len(nodes) for nodes in unsupported.values())
    domains = {domain for domain, _ in unsupported}
    foreign = f"\n  {_HOW_TO_LEARN}" if _LEARNED in domains else ""
    foreign += f"\n  those of other domains: {ops.HOW_TO_NAME}" if domains - {"", _LEARNED} else ""
    what = counted(len(unsupported), "operator")
    raise UnsupportedOpError(
        f"{origin} uses {what} without a definition here, in {total} of {counted(len(protos), 'node')}:\n"
        + "\n".join(lines)
        + "\n  docs/operators.md lists those that are known"
        + foreign
    )


__all__ = ["check_supported", "is_known", "known_operators", "operator_of"]
