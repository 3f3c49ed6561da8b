"""``torch.compile(model, backend="autotune")``: graphs of TorchDynamo, compiled through PyTorch's exporter to ONNX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autotune.errors import UsageError
from autotune.pytorch.exported import TracedGraph
from autotune.pytorch.subgraph import Subgraph
from autotune.suggest import did_you_mean

OPTIONS = (
    "database",
    "finite",
    "max_slowdown",
    "objective",
    "require_hit",
    "target",
    "threads",
    "tolerance",
    "weights",
)
"""The options of ``torch.compile(..., options={...})``: arguments of :func:`autotune.compile`, and ``weights``."""

WEIGHTS = ("hashed", "fixed")
"""The comparison of weights before each call: a hash of their bytes too, or only PyTorch's counters and addresses."""

_SUBGRAPHS: list[Subgraph] = []


def backend(
    graph: Any, examples: Sequence[Any], *, options: Mapping[str, Any] | None = None, **unused: Any
) -> Callable[..., Any]:
    """Return a graph as a function that runs compiled code, from its second call on.

    The first call is answered by PyTorch, and compiles the graph for inputs of these shapes: the results must agree.
    Parameters and buffers are constants, whose bytes are hashed before each call: a write to one, by whatever way,
    compiles the graph again. ``weights="fixed"`` promises that there is none but those that PyTorch counts. A graph
    that cannot be compiled is run by PyTorch, and a warning says why (logger ``autotune.pytorch``; :func:`report` has
    all of them).

    Raises UsageError for options that are none of :data:`OPTIONS`, and for ``weights`` that is none of :data:`WEIGHTS`.
    """
    given = dict(options or {})
    for name in given:
        if name not in OPTIONS:
            raise UsageError(
                f"the backend has no option {name!r}; options: {', '.join(OPTIONS)}{did_you_mean(name, OPTIONS)}"
            )
    weights = given.pop("weights", "hashed")
    if weights not in WEIGHTS:
        raise UsageError(f"weights={weights!r} is none of {', '.join(map(repr, WEIGHTS))}")
    given.setdefault("threads", _threads())
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    subgraph = Subgraph(
        len(_SUBGRAPHS) + 1,
        sum(node.op.startswith("call_") for node in graph.graph.nodes),
        TracedGraph.of(graph, examples),
        tuple(i for i, pair in enumerate(zip(placeholders, examples, strict=True)) if _is_weight(*pair)),
        (*graph.parameters(), *graph.buffers()),
        weights == "hashed",
        given,
    )
    _SUBGRAPHS.append(subgraph)
    refused = _refused(examples)
    if refused:
        subgraph.leave(refused)
    return subgraph


def report() -> tuple[Subgraph, ...]:
    """Return all graphs that this process had compiled so far, in order: which run as compiled code, and
    why others do not."""
    return tuple(_SUBGRAPHS)


def _threads() -> int:
    """Return as many threads as PyTorch uses, at most one a usable core."""
    import torch

    from autotune.hardware import usable_cores

    return max(1, min(int(torch.get_num_threads()), usable_cores()))


def _is_weight(node: Any, example: Any) -> bool:
    """Return whether a placeholder is a parameter or a buffer of a module, and so the same tensor at every call."""
    import torch

    if isinstance(example, torch.nn.Parameter):
        return True
    return "_dynamo_static_input_type" in (node.meta.get("tensor_dict") or {})


def _refused(examples: Sequence[Any]) -> str:
    """Return the reason why a graph is PyTorch's from the start, or nothing."""
    import torch

    tensors = [value for value in examples if isinstance(value, torch.Tensor)]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return "it is traced for training; call the model within torch.no_grad() or torch.inference_mode()"
    for index, tensor in enumerate(tensors):
        if tensor.device.type != "cpu":
            return f"its input {index} is on the device {tensor.device}; compiled code runs on the CPU"
        if tensor.layout is not torch.strided:
            return f"its input {index} has the layout {tensor.layout}; compiled code takes dense tensors"
    return ""


__all__ = ["OPTIONS", "backend", "report"]
