"""Facts of dispatches as ``metadata_props`` of an ONNX model's nodes, which Netron shows; what is computed stays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.errors import UsageError
from autotune.files import replacing
from autotune.foreign import printable
from autotune.frontends.onnx.affinity import FACTS
from autotune.profiling.facts import DispatchFacts, ModelFacts, roof_text
from autotune.suggest import counted
from autotune.tuning.report.units import listed, nanoseconds

if TYPE_CHECKING:
    from autotune.frontends.onnx.read import LoadedModel

_MOST_BYTES = 2**31 - 1
"""Of a message of Protocol Buffers."""


def annotated(model: LoadedModel, facts: ModelFacts) -> Any:
    """Return a copy of a model as its file has it, with facts on its nodes and its own on itself.

    Facts of an earlier copy are replaced. Those of a node are of all the dispatches that compute it; what these take is
    not divided among the nodes that are fused in them.
    """
    made = type(model.given)()
    made.CopyFrom(model.given)
    expected = facts.expected
    low, high = map(nanoseconds, expected.interval_ns)
    whole = {
        "latency": f"{nanoseconds(expected.latency_ns)} ({low} to {high}) with {counted(expected.threads, 'thread')}",
        "sources": ", ".join(f"{count} {source}" for source, count in expected.sources.items()),
        "dispatches": str(len(facts.dispatches)),
    }
    _write(made.metadata_props, whole)
    for node in made.graph.node:
        name = next(
            (model.node_names[value] for value in node.output if value in model.node_names), node.name
        )
        _write(node.metadata_props, _of_node(name, [each for each in facts.dispatches if name in each.nodes]))
    return made


def _of_node(name: str, own: Sequence[DispatchFacts]) -> dict[str, str]:
    if not own:
        return {"dispatch": "none: it is computed when the model is compiled, or moves nothing"}
    taken = sum(each.latency_ns for each in own)
    others = dict.fromkeys(node for each in own for node in each.nodes if node != name)
    return {
        "dispatch": listed([each.name for each in own]),
        "time": f"{nanoseconds(taken)}, {_each(each.source for each in own)}",
        "share": f"{100 * sum(each.share for each in own):.1f} % of the model",
        "roofline": _each(roof_text(each.of_roof, each.bound) for each in own),
        "evidence": _each(each.evidence for each in own),
        "schedule": _each(each.schedule for each in own),
        "fused with": listed(list(others)) or "nothing",
    }


def _each(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))


def _write(entries: Any, facts: Mapping[str, str]) -> None:
    """Replace our facts among the entries of a message; others stay as they are."""
    for number in reversed(range(len(entries))):
        if entries[number].key.startswith(FACTS):
            del entries[number]
    for key, value in facts.items():
        entries.add(key=FACTS + key, value=printable(value))


def write_annotated(model: LoadedModel, made: Any, path: Path) -> None:
    """Write a model; what it has in other files is referred to in its own folder, and is inside of it in another.

    Raises UsageError where it cannot be written.
    """
    if model.folder is not None and model.folder.resolve() != path.parent.resolve():
        from onnx.external_data_helper import load_external_data_for_model

        load_external_data_for_model(made, str(model.folder))
    if made.ByteSize() > _MOST_BYTES:
        raise UsageError(
            f"{path} would be larger than 2 GiB, which no ONNX file is\n  write it into the folder of {model.origin}, "
            "where it refers to the files of its weights"
        )
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(made.SerializeToString())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error


__all__ = ["annotated", "write_annotated"]
