"""Many random graphs of all operators in one command, with counts of what they had.

::

    python -m tests.compiler.fuzz 20000 -n 2 --record graphs.jsonl

A graph has 5 to 30 operators of the whole registry (`tests.compiler.operator_rules`). It is written as text, read back,
and compiled with some of the optional passes, in a random way; its machine code must give what the NumPy reference
gives. Graphs run in processes of their own, so that a crash is a finding like any other. Each finished graph appends a
line to the record; called again with the same record, the command goes on where it stopped. One graph by its seed:

    python -m tests.compiler.fuzz 1 --first 1000123
"""

from __future__ import annotations

import random
import tempfile
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autotune.compiler import compile_in_detail
from autotune.compiler.memory.proof import prove_memory
from autotune.compiler.request import CompileRequest
from autotune.errors import GraphError
from autotune.frontends.models import load
from autotune.graph import ops
from autotune.graph.ir import Graph
from autotune.graph.text_file import write_file
from autotune.passes.pipeline import optional_passes
from autotune.runtime.module import Module
from tests import campaign
from tests.campaign import Work
from tests.compiler.drafts import Draft, Drawn, Unfit
from tests.compiler.operator_rules import RULES
from tests.compiler.random_models import Way, random_way, schedules_chosen

COMMON = ("MatMul", "Conv", "Transpose", "Reshape", "Slice", "Concat", "Add", "Mul", "Softmax", "Split")
"""Operators that are drawn four times as often as others: most passes are about them."""
ROUGH = 2e-3
FINE = 2e-5
"""Errors of products, relative to their largest element, with algorithms of any kind and with direct ones only."""


@dataclass(frozen=True)
class Problem:
    """A drawn graph and how it is compiled; ``without`` are the passes that are left out."""

    drawn: Drawn
    way: Way
    exact: bool
    without: frozenset[str]

    @property
    def operators(self) -> Counter[str]:
        return Counter(node.op for node in self.drawn.graph.nodes)


def problem(seed: int) -> Problem:
    """The graph of a seed."""
    rng = random.Random(seed)
    exact = rng.random() < 0.5
    way = random_way(rng)
    without = rng.choice((0, 0, 0.2, 0.5, 1))
    left_out = frozenset(name for name in sorted(optional_passes()) if rng.random() < without)
    draft = Draft(rng, FINE if exact else ROUGH)
    names = [*RULES, *COMMON * 3]
    wanted = rng.randint(5, 30)
    for _ in range(20 * wanted):
        if draft.made >= wanted:
            break
        op = rng.choice(names)
        try:
            RULES[op](draft, op)
        except (GraphError, Unfit):
            continue
    return Problem(draft.drawn(), way, exact, left_out)


def check(given: Problem) -> None:
    """Compile its text, prove the memory plan, run twice and compare; AssertionError on a difference."""
    graph, way = _by_text(given.drawn.graph), given.way
    algorithm = None if given.exact else way.algorithm
    with schedules_chosen(way):
        done = compile_in_detail(
            CompileRequest(
                graph,
                layout=way.layout,
                algorithm=algorithm,
                tolerance=0 if given.exact else 1e-3,
                threads=way.threads,
                partition=way.options,
                without=given.without,
            )
        )
    prove_memory(done.partition, done.memory_plan)
    with Module(done.image) as module:
        for _ in range(2):
            results = module.run(given.drawn.feed)
            for name in graph.outputs:
                _compare(name, results[name], given.drawn.expected[name], given.drawn.slack[name])


def _by_text(graph: Graph) -> Graph:
    """The graph as it is read back from its text."""
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder) / "model.txt", Path(folder) / "again.txt"
        write_file(graph, first)
        back = load(first)
        write_file(back, second, "model.npz")
        assert second.read_text() == first.read_text(), "the text does not read back"
        return back


def _compare(name: str, found: np.ndarray, wanted: np.ndarray, slack: np.ndarray) -> None:
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), f"{name}: {found.dtype}{found.shape}"
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        wrong = ~(same | (np.abs(a - b) <= slack))
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError(
            f"{name}: {int(wrong.sum())} of {wrong.size} elements differ, first at {place}: "
            f"{a[place]} for {b[place]}, allowed {slack[place]:.2g}"
        )


def verdict(seed: int) -> dict[str, object]:
    """The line of a seed: its operators and, if it failed, how."""
    given = problem(seed)
    line: dict[str, object] = {"operators": given.operators, "without": sorted(given.without)}
    try:
        check(given)
    except Exception as error:  # noqa: BLE001  # whatever went wrong is a finding
        where = traceback.extract_tb(error.__traceback__)[-1]
        line["finding"] = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"[
            :2000
        ]
    return line


WORK = Work(verdict, {}, lambda _, death: {"finding": f"{death}\n{death.stderr}".strip()}, seconds=300)


def report(found: dict[int, dict[str, object]]) -> str:
    """Counts, then each finding."""
    operators: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    for line in found.values():
        operators.update(line.get("operators", {}))  # type: ignore[arg-type]
        left_out.update(line.get("without", []))  # type: ignore[arg-type]
    missing = sorted(set(RULES) - set(operators))
    findings = [line for line in found.values() if "finding" in line]
    return "\n".join(
        [
            f"{len(found)} graphs, {sum(operators.values())} operators; {len(operators)} of {len(ops.names())} kinds: "
            + ", ".join(f"{name} {n}" for name, n in operators.most_common()),
            f"never drawn: {', '.join(missing) or 'none'}",
            f"passes left out: {', '.join(f'{name} {n}' for name, n in left_out.most_common()) or 'none'}",
            f"findings: {len(findings)}",
            *(f"  seed {line['seed']}: {line['finding']}" for line in findings),
        ]
    )


def main() -> None:
    """The command line."""
    options = campaign.arguments("graphs", __doc__).parse_args()
    if options.graphs == 1:
        given = problem(options.first)
        print(
            given.drawn.graph,
            given.way,
            f"exact: {given.exact}",
            f"without: {sorted(given.without)}",
            sep="\n",
        )
        check(given)
        return
    seeds = range(options.first, options.first + options.graphs)
    with campaign.record_of(options) as record:
        found = campaign.run("tests.compiler.fuzz", seeds, options.workers, record)
    print(report(found))
    raise SystemExit(1 if any("finding" in line for line in found.values()) else 0)


if __name__ == "__main__":
    main()
