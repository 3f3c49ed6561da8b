"""Annotations of devices: by the model itself, and by a caller's placement, which must not contradict it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from autotune.errors import PlacementError
from autotune.graph.ir import Graph, Node
from autotune.suggest import did_you_mean

ANYTHING = "*"
"""The pattern for every node that no other pattern fits; inputs go where they are read."""


@dataclass(frozen=True)
class Annotation:
    """A device that something is put on, and who says so: "the model" or "placement 'Conv'"."""

    device: str
    source: str


@dataclass(frozen=True)
class DeviceRules:
    """A placement: patterns of values, nodes or operators and the devices that they go to.

    ``devices`` are those that are there.

    The name of a value or node counts before that of an operator, this before a pattern with ``*``, ``?`` or ``[...]``,
    and that before ``*`` alone, which is every node that no other pattern fits.
    """

    rules: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()

    def check(self, annotation: Annotation) -> Annotation:
        """Return the annotation, if its device is there; raises PlacementError."""
        if annotation.device in self.devices:
            return annotation
        raise PlacementError(
            f"there is no device {annotation.device!r}, which {annotation.source} names\n"
            f"  devices here: {', '.join(self.devices)}"
        )

    def rules_for(self, names: Iterable[str], op: str = "") -> list[str]:
        """Return the patterns that count for what has these names: those of the most exact kind that fit."""
        known = set(names)
        fitting = [p for p in self.rules if p != ANYTHING and _fits(p, known, op)]
        named = [p for p in fitting if p in known]
        by_operator = [p for p in fitting if p == op]
        return named or by_operator or fitting or ([ANYTHING] if op and ANYTHING in self.rules else [])


NO_RULES = DeviceRules()


@dataclass(frozen=True)
class Annotations:
    """All that is said of a graph: by first output of a node, by input, by output, and of everything else."""

    nodes: Mapping[str, Annotation]
    inputs: Mapping[str, Annotation]
    outputs: Mapping[str, Annotation]
    default: Annotation | None

    @property
    def all(self) -> tuple[Annotation, ...]:
        """Every one of them."""
        default = () if self.default is None else (self.default,)
        return (*self.nodes.values(), *self.inputs.values(), *self.outputs.values(), *default)

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that are named, sorted."""
        return tuple(sorted({annotation.device for annotation in self.all}))


def gathered(graph: Graph, rules: DeviceRules) -> Annotations:
    """Return the annotations of a graph and of rules.

    Raises PlacementError for two that contradict each other, for a device that is not there and for a pattern that fits
    nothing.
    """
    _check_patterns(graph, rules)
    named = graph.affinity
    nodes = {
        node.present_outputs[0]: _one(f"node {node.name!r} ({node.op})", said)
        for node in graph.nodes
        if (said := _said(rules, node.device, _names(node), node.op))
    }
    inputs = {
        value: _one(f"input {value!r}", said)
        for value in graph.inputs
        if (said := _said(rules, named.inputs.get(value, ""), [value]))
    }
    outputs = {value: Annotation(device, THE_MODEL) for value, device in named.outputs.items()}
    default = Annotation(named.default, THE_MODEL) if named.default else None
    everything = Annotations(nodes, inputs, outputs, default)
    for annotation in everything.all:
        rules.check(annotation)
    return everything


THE_MODEL = "the model"


def _source(pattern: str) -> str:
    return f"placement {pattern!r}"


def _names(node: Node) -> tuple[str, ...]:
    return (node.name, *node.present_outputs, *node.origins)


def _fits(pattern: str, names: set[str], op: str) -> bool:
    return pattern in names or pattern == op or any(fnmatchcase(name, pattern) for name in (*names, op))


def _said(rules: DeviceRules, own: str, names: Sequence[str], op: str = "") -> list[Annotation]:
    """Return the annotations of one thing by the model and the rules."""
    said = [Annotation(own, THE_MODEL)] if own else []
    return said + [Annotation(rules.rules[p], _source(p)) for p in rules.rules_for(names, op)]


def _one(what: str, said: Sequence[Annotation]) -> Annotation:
    """Return the one annotation of several that agree; raises PlacementError with two that do not."""
    first = said[0]
    for other in said[1:]:
        if other.device != first.device:
            raise PlacementError(
                f"{what} is put on two devices:\n"
                f"  {first.device} by {first.source}\n"
                f"  {other.device} by {other.source}\n"
                "  take one of them away"
            )
    return first


def _check_patterns(graph: Graph, rules: DeviceRules) -> None:
    """Raise PlacementError for a pattern that fits nothing."""
    nodes = [(set(_names(node)), node.op) for node in graph.nodes]
    for pattern in rules.rules:
        fits = pattern == ANYTHING or any(_fits(pattern, names, op) for names, op in nodes)
        if fits or any(_fits(pattern, {value}, "") for value in graph.inputs):
            continue
        if any(fnmatchcase(value, pattern) for value in graph.constants):
            raise PlacementError(
                f"{_source(pattern)} names a constant of {graph.name!r}\n"
                "  constants live where they are read: name what reads it"
            )
        ops = sorted({op for _, op in nodes})
        known = {*ops, *graph.inputs, *(name for names, _ in nodes for name in names)}
        raise PlacementError(
            f"{_source(pattern)} fits no value, node or operator of {graph.name!r}"
            f"{did_you_mean(pattern, sorted(known))}\n"
            f"  its operators: {', '.join(ops)}"
        )


__all__ = ["ANYTHING", "NO_RULES", "THE_MODEL", "Annotation", "Annotations", "DeviceRules", "gathered"]
