"""Bodies that are run again and again: for each step in the place of their node, or as the body of one loop."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autotune.errors import GraphError, ModelImportError, UnknownParameterError
from autotune.frontends.onnx.branches import are_few, branch_graph, scalar
from autotune.frontends.onnx.nodes import OnnxNode
from autotune.frontends.onnx.scope import Importing, graphs_of
from autotune.frontends.onnx.subgraphs import inlined
from autotune.graph.ir import ABSENT, Graph, Node, TensorType
from autotune.graph.ops.branch import BRANCH, branch_node
from autotune.graph.ops.loop import ANY_NUMBER, NAME, loop_node

MAX_STANDING = 256
"""Steps of a body that can stand there for each step only."""
_LISTED = 1 << 16
"""Steps whose numbers are a list; of more the number is carried from step to step."""
_SMALL = 64
"""Nodes of all steps of a body that stands there although it could be a loop."""
_REPEATED = {"Loop": 16, "Scan": 16}
"""Steps that loops inside are taken to have."""


@dataclass
class Repeated:
    """A body that is run ``trips`` times; None: until its condition says so, or as often as ``limit`` says, which is
    known only when the model runs. So may ``first`` be, whether it runs at all.

    ``initial`` is carried from step to step, ``scanned`` has an element for each along its first axis. A ``counted``
    body takes the number of the step and a condition first, and gives one first.
    """

    node: OnnxNode
    body: Any
    model: Importing
    initial: Sequence[str]
    scanned: Sequence[str]
    trips: int | None
    counted: bool
    from_end: Sequence[int] = ()
    """For each scanned value, and each collected one, whether it goes from the end."""
    limit: str = ABSENT
    first: str = ABSENT
    attempts: int = field(default=0, init=False)

    def results(self) -> list[str]:
        """Return the carried values in the end, then what was collected."""
        nodes = _nodes_of(self.body)
        if self.trips == 0:
            return [*self.initial, *self._nothing()]
        if self.limit != ABSENT or self.first != ABSENT:
            return self._counted_when_run()
        if self.trips is None:
            try:
                return self._standing()
            except (UnknownParameterError, ModelImportError):
                if self._collected():
                    raise
            return self._as_loop()
        of_sizes = self.model.both_branches and self.scanned  # else it would be other nodes at other sizes
        if not of_sizes and self.trips * max(nodes, 1) <= _SMALL:
            with suppress(UnknownParameterError):  # of a condition that ends it
                return self._standing()
        try:
            return self._as_loop()
        except (ModelImportError, GraphError):
            if self.trips > MAX_STANDING:
                raise
        return self._standing()

    def _prefix(self) -> str:
        self.attempts += 1
        return f"{self.node.name}.{self.attempts}."

    def _collected(self) -> int:
        return len(self.body.output) - len(self.initial) - self.counted

    def _end(self, index: int) -> bool:
        return bool(self.from_end and self.from_end[index])

    def _counted_when_run(self) -> list[str]:
        """Return the same of a loop; one that has to stand there for each step needs to know how many there are."""
        try:
            return self._as_loop()
        except UnknownParameterError as error:
            if error.inputs:
                raise
            unknown = self.first if self.limit == ABSENT else self.limit
            raise self.node.unknown(f"the number of its steps ({unknown!r})", unknown) from error

    # each step for itself

    def _standing(self) -> list[str]:
        state, collected = list(self.initial), [list[str]() for _ in range(self._collected())]
        prefix, step, going = self._prefix(), 0, True
        while going and (self.trips is None or step < self.trips):
            if step >= MAX_STANDING:
                raise self.node.fail(
                    f"its condition is still true after {MAX_STANDING} steps\n"
                    "  give it a number of steps, or a condition that is known when the model is compiled"
                )
            given = [*self._counter(prefix, step), *state, *self._taken(prefix, step)]
            results = inlined(self.body, f"{prefix}{step}.", given, self.model)
            if self.counted:
                going = self._goes_on(results.pop(0))
            state = results[: len(self.initial)]
            for values, value in zip(collected, results[len(self.initial) :], strict=True):
                values.append(value)
            step += 1
        scanned = len(self.scanned)
        joined = [
            self._stacked(prefix, i, values[::-1] if self._end(scanned + i) else values)
            for i, values in enumerate(collected)
        ]
        return [*state, *joined]

    def _goes_on(self, condition: str) -> bool:
        known = self.model.constants.get(condition)
        if known is None:
            raise self.node.unknown(
                "its condition after a step, which decides how many there are,", condition
            )
        return bool(known.reshape(-1)[0])

    def _counter(self, prefix: str, step: int) -> list[str]:
        if not self.counted:
            return []
        names = [f"{prefix}{step}.iteration", f"{prefix}{step}.condition"]
        self.model.define(names[0], np.array(step, np.int64))
        self.model.define(names[1], np.array(True))
        return names

    def _taken(self, prefix: str, step: int) -> list[str]:
        assert self.trips is not None or not self.scanned
        found = []
        for index, value in enumerate(self.scanned):
            shape = self.model.type_of(value).shape
            at = shape[0] - 1 - step if self._end(index) else step
            cut, name = f"{prefix}{step}.cut{index}", f"{prefix}{step}.taken{index}"
            self.model.append(
                "Slice", [value], [cut], {"starts": (at,), "ends": (at + 1,), "axes": (0,)}, cut
            )
            self.model.append("Reshape", [cut], [name], {"shape": shape[1:]}, name)
            found.append(name)
        return found

    def _stacked(self, prefix: str, index: int, values: Sequence[str]) -> str:
        parts = []
        for number, value in enumerate(values):
            name = f"{prefix}collected{index}.{number}"
            shape = (1, *self.model.type_of(value).shape)
            self.model.append("Reshape", [value], [name], {"shape": shape}, name)
            parts.append(name)
        name = f"{prefix}collected{index}"
        self.model.append("Concat", parts, [name], {"axis": 0}, name)
        return name

    # one body for all steps

    def _as_loop(self) -> list[str]:
        trips = ANY_NUMBER if self.trips is None else self.trips
        prefix, model = self._prefix(), self.model
        missing = [v for v in self.initial if v not in model.types]
        if missing:
            raise self.node.fail(f"carries {missing[0]!r} from step to step, which is not a tensor")
        with model.apart() as nodes:
            inputs = self._declare(prefix)
            results = inlined(self.body, prefix, inputs.given, model)
            active, results = self._until(prefix, inputs, results, nodes)
            read = {v for node in nodes for v in node.inputs} | set(results)
            carried, taken = [*inputs.carried, *active], list(inputs.taken)
            if inputs.iteration in read and trips > _LISTED:
                results.insert(len(carried), self._next(prefix, inputs.iteration, "after"))
                carried.append(inputs.iteration)
            elif inputs.iteration in read:
                taken.append(inputs.iteration)
        open_ = [v for node in nodes for v in node.outputs if v in model.counted]
        if open_:
            raise self.node.fail(f"a step gives {open_[0]!r}, whose extent is known only when it is computed")
        body_inputs = [*carried, *taken]
        made = {v for node in nodes for v in node.outputs}
        read = {v for node in nodes for v in node.inputs} | set(results)
        captured = sorted(v for v in read - made - set(body_inputs) if v != ABSENT)
        types = {v: model.type_of(v) for v in (*body_inputs, *captured, *made) if v != ABSENT}
        plain = tuple(node.replace(device="", origins=()) for node in nodes)
        body = Graph(self.node.name, (*body_inputs, *captured), tuple(results), plain, types).pruned()
        for before, after in zip(inputs.carried, results, strict=False):
            if model.type_of(before) != model.type_of(after):
                raise self.node.fail(
                    f"a step takes {model.type_of(before)} and gives {model.type_of(after)} for the next\n"
                    f"  what is carried must keep its shape, or the steps be at most {MAX_STANDING}"
                )
        initial, scanned = list(self.initial), list(self.scanned)
        if active:
            initial.append(self._begins(prefix))
        if len(active) > 1:
            initial.append(f"{prefix}none_ran")
            model.define(initial[-1], np.zeros(1, np.int64))
        if inputs.iteration in carried:
            initial.append(f"{prefix}zero")
            model.define(initial[-1], np.array(0, np.int64))
        if inputs.iteration in taken:
            scanned.append(f"{prefix}iterations")
            model.define(scanned[-1], np.arange(trips))
        ends = [int(self._end(i)) for i in range(len(self.scanned) + self._collected())]
        ends[len(self.scanned) : len(self.scanned)] = [0] * (len(scanned) - len(self.scanned))
        outputs = [f"{prefix}result{i}" for i in range(len(results))]
        device = self._device_of(nodes)
        loop = loop_node(
            [*initial, *scanned, *captured],
            outputs,
            body,
            carried=len(initial),
            scanned=len(scanned),
            trips=trips,
            from_end=ends,
            going=len(self.initial) if active else -1,
        )
        with model.on_device(device):
            model.append(NAME, list(loop.inputs), outputs, loop.attrs, self.node.name)
        found = outputs[len(initial) :]
        if len(active) > 1:
            rooms, found = found, [f"{prefix}collected{i}" for i in range(len(found))]
            for room, value in zip(rooms, found, strict=True):
                model.part(room, 0, outputs[len(self.initial) + 1], value)
        return [*outputs[: len(self.initial)], *found]

    def _begins(self, prefix: str) -> str:
        """Return whether there is a first step."""
        model, going = self.model, f"{prefix}active"
        if self.first != ABSENT:
            going = scalar(self.first, model)
        else:
            model.define(going, np.array(True))
        if self.limit == ABSENT:
            return going
        zero, some, both = (f"{prefix}{name}" for name in ("no_steps", "some_steps", "begins"))
        model.define(zero, np.array(0, np.int64))
        model.append("Less", [zero, scalar(self.limit, model)], [some], {}, some)
        model.append("And", [going, some], [both], {}, both)
        return both

    def _next(self, prefix: str, iteration: str, suffix: str) -> str:
        """Return the number of the next step."""
        one, name = f"{prefix}one.{suffix}", f"{prefix}iteration.{suffix}"
        self.model.define(one, np.array(1, np.int64))
        self.model.append("Add", [iteration, one], [name], {}, name)
        return name

    def _goes_further(self, prefix: str, condition: str, inputs: _Inputs) -> str:
        """Return whether there is another step by the condition and the limit."""
        model, condition = self.model, scalar(condition, self.model)
        if self.limit == ABSENT:
            return condition
        more, both = f"{prefix}more", f"{prefix}further"
        limit = scalar(self.limit, model)
        model.append("Less", [self._next(prefix, inputs.iteration, "next"), limit], [more], {}, more)
        model.append("And", [condition, more], [both], {}, both)
        return both

    def _device_of(self, nodes: Sequence[Node]) -> str:
        """Return the device that all nodes of a step name: one loop runs on one device."""
        found = sorted({node.device for node in nodes})
        if len(found) > 1:
            named = ", ".join(device or "no device" for device in found)
            raise self.node.fail(
                f"the nodes of its body name several devices ({named}), and a loop runs on one of them\n"
                f"  name one for all of the body, or let the steps be at most {MAX_STANDING}"
            )
        return found[0] if found else ""

    def _declare(self, prefix: str) -> _Inputs:
        """Return values that stand for what a step takes."""
        model = self.model
        carried = [f"{prefix}carried{i}" for i in range(len(self.initial))]
        taken = [f"{prefix}taken{i}" for i in range(len(self.scanned))]
        for name, value in zip(carried, self.initial, strict=True):
            model.types[name] = model.type_of(value)
        for name, value in zip(taken, self.scanned, strict=True):
            found = model.type_of(value)
            model.types[name] = TensorType(found.shape[1:], found.dtype)
        iteration, condition = f"{prefix}iteration", f"{prefix}condition"
        model.types[iteration] = TensorType((), "int64")
        counters = [iteration, condition] if self.counted else []
        if self.counted:
            model.define(condition, np.array(True))
        return _Inputs([*counters, *carried, *taken], carried, taken, iteration)

    def _until(
        self, prefix: str, inputs: _Inputs, results: list[str], nodes: list[Node]
    ) -> tuple[list[str], list[str]]:
        """Return the results of a step, where its condition may end the loop: from then on what is carried stays.

        Of a condition that is never known there is another carried value, behind the others; and the number of steps
        that ran, where something is collected of them.
        """
        if not self.counted:
            return [], results
        condition, *others = results
        known = self.model.constants.get(condition)
        if known is not None and self.limit == ABSENT:
            if not known.reshape(-1)[0]:
                self.trips = 1
                raise self.node.fail("its condition ends it after one step")
            if self.first == ABSENT:
                return [], others
        if self._collected() and (self.trips is None or self.model.both_branches):
            raise self._unknown_length(condition)
        active = f"{prefix}going"
        self.model.types[active] = TensorType((), "bool")
        pairs = list(zip(others, inputs.carried, strict=False))
        collected = others[len(pairs) :]
        condition = self._goes_further(prefix, condition, inputs)
        if any(self.model.type_of(new) != self.model.type_of(old) for new, old in pairs):
            return [active], [*others, active]
        if self._is_chosen(nodes):
            found = self._step_while(active, prefix, inputs, [*others, condition], nodes)
            return self._counting(prefix, active, [*found[: len(pairs)], found[-1]], found[len(pairs) : -1])
        kept = []
        for index, (new, old) in enumerate(pairs):
            name = f"{prefix}kept{index}"
            self.model.append("Where", [active, new, old], [name], {}, name)
            kept.append(name)
        after = f"{prefix}going_on"
        self.model.append("And", [active, condition], [after], {}, after)
        return self._counting(prefix, active, [*kept, after], collected)

    def _counting(
        self, prefix: str, active: str, carried: list[str], collected: list[str]
    ) -> tuple[list[str], list[str]]:
        """Return what is carried besides, and the results of a step; where something is collected steps are counted."""
        if not collected:
            return [active], carried
        model, ran = self.model, f"{prefix}ran"
        model.types[ran] = TensorType((1,), "int64")
        number, one, after = (f"{prefix}{name}" for name in ("runs", "run", "ran_after"))
        model.append("Cast", [active], [number], {"to": "int64"}, number)
        model.append("Reshape", [number], [one], {"shape": (1,)}, one)
        model.append("Add", [ran, one], [after], {}, after)
        return [active, ran], [*carried, after, *collected]

    def _is_chosen(self, nodes: Sequence[Node]) -> bool:
        """Return whether a step that is over is better not computed."""
        on_devices = any(node.device for node in nodes)
        return not (are_few(nodes) or on_devices or self.model.both_branches)

    def _step_while(
        self, active: str, prefix: str, inputs: _Inputs, results: list[str], nodes: list[Node]
    ) -> list[str]:
        """Put the nodes of a step into a branch that runs while the loop does; returns what it gives."""
        model, over = self.model, f"{prefix}over"
        model.define(over, np.array(False))
        then = branch_graph(f"{self.node.name}.step", nodes, results, model)
        kept = [*inputs.carried, *map(self._zeros, results[len(inputs.carried) : -1]), over]
        stays = branch_graph(f"{self.node.name}.over", (), kept, model)
        nodes.clear()
        outputs = [f"{prefix}kept{index}" for index in range(len(results))]
        branch = branch_node(active, then, stays, outputs)
        model.append(BRANCH, list(branch.inputs), outputs, branch.attrs, self.node.name)
        return outputs

    def _zeros(self, value: str) -> str:
        """Return zeros like a value."""
        found, name = self.model.type_of(value), self.model.fresh(f"{value}.zeros")
        self.model.define(name, np.zeros(found.shape, found.dtype))
        return name

    def _unknown_length(self, condition: str) -> UnknownParameterError:
        return self.node.unknown(
            "its condition after a step, which decides how much is collected,", condition
        )

    def _nothing(self) -> list[str]:
        """Return the empty results of no steps, whose shape only the body tells."""
        if not self._collected():
            return []
        prefix = self._prefix()
        with self.model.apart():
            inputs = self._declare(prefix)
            results = inlined(self.body, prefix, inputs.given, self.model)[len(self.initial) + self.counted :]
        names = []
        for index, value in enumerate(results):
            found = self.model.type_of(value)
            names.append(f"{prefix}nothing{index}")
            self.model.define(names[-1], np.zeros((0, *found.shape), found.dtype))
        return names


def _nodes_of(graph: Any) -> int:
    """Count the nodes of a graph and of its subgraphs; loops inside count as if they had several steps."""
    return sum(
        1 + _REPEATED.get(node.op_type, 1) * sum(map(_nodes_of, graphs_of(node))) for node in graph.node
    )


@dataclass(frozen=True)
class _Inputs:
    """Values that stand for what a step takes: all in the order of the body's inputs, and by what they are."""

    given: list[str]
    carried: list[str]
    taken: list[str]
    iteration: str


__all__ = ["MAX_STANDING", "Repeated"]
