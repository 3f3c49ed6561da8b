"""Every value of every knob, with random values of the others, by machine code beside NumPy.

::

    python -m tests.search_spaces.every_value --seeds 3 --targets x86-64-v2 host conv depthwise

runs the named workloads (all of ``families`` without names) and prints what failed, and which values no legal
configuration was found for.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from autotune.errors import AutotuneError
from autotune.graph.region import Workload
from autotune.target import Target
from autotune.tuning.measure.check import relative_error
from search_spaces import spaces
from search_spaces.knob import Value
from search_spaces.population import Population
from search_spaces.space import Space
from tests.schedule.machine import FenceError, run_machine_code
from tests.search_spaces.families import FIXED, LARGER

WORKLOADS = {**FIXED, **LARGER}
LEVELS = ("x86-64-v2", "x86-64-v3", "host")
_DRAWN = 4096
_TRIES = 64
_ALLOWED = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""Largest error relative to the largest element; everything else must be equal."""


@dataclass
class Tally:
    """What ran, and what it found."""

    configurations: int = 0
    values: int = 0
    unreached: list[str] = field(default_factory=list)
    knobs: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add another run."""
        self.configurations += other.configurations
        self.values += other.values
        self.unreached += other.unreached
        self.knobs |= other.knobs
        self.failures += other.failures


def targets(levels: tuple[str, ...] = LEVELS) -> dict[str, Target]:
    """Targets that this machine runs, and the same with caches that hold nothing: they have knobs of their own."""
    found = {name: Target.parse(name, threads=2) for name in levels}
    runnable = {name: target for name, target in found.items() if not Target.detect().lacks(target)}
    small = {
        f"{name}, no caches": replace(target, l1_bytes=256, l2_bytes=512, l3_bytes=1024)
        for name, target in runnable.items()
    }
    return {**runnable, **small}


def covering(space: Space, seed: int) -> tuple[list[dict[str, Value]], list[str]]:
    """Legal configurations in which each value of each knob occurs, and the values that were found in none."""
    rng = np.random.default_rng(seed)
    drawn = space.population(rng, _DRAWN)
    missing = {
        (column, index) for column, knob in enumerate(space.knobs) for index in range(len(knob.values))
    }
    chosen: list[dict[str, Value]] = []
    unreached: list[str] = []
    while missing:
        column, index = min(missing)
        rows = _with_value(space, drawn, column, index, rng)
        if not len(rows):
            unreached.append(f"{space.knobs[column].name}={space.knobs[column].values[index]!r}")
            missing.remove((column, index))
            continue
        gains = [sum((at, value) in missing for at, value in enumerate(row)) for row in rows.indexes.tolist()]
        best = int(np.argmax(gains))
        missing -= set(enumerate(rows.indexes[best].tolist()))
        chosen.append(rows.config(best))
    return chosen, unreached


def _with_value(
    space: Space, drawn: Population, column: int, index: int, rng: np.random.Generator
) -> Population:
    """Some legal candidates that have a value: those drawn, else those drawn with the value put in."""
    rows = drawn.take(np.flatnonzero(drawn.indexes[:, column] == index))
    if not len(rows):
        changed: NDArray[np.int16] = drawn.indexes.copy()
        changed[:, column] = index
        candidates = Population(space.knobs, changed)
        rows = candidates.take(np.flatnonzero(space.legal(candidates.columns()))).distinct()
    return rows.take(rng.permutation(len(rows))[:_TRIES])


def campaign(name: str, workload: Workload, target: Target, seed: int) -> Tally:
    """Run one workload's space on one target."""
    space = spaces.space_for(workload, target)
    configs, unreached = covering(space, seed)
    inputs = workload.random_inputs(seed)
    references = workload.reference(inputs)
    failures = []
    for config in configs:
        reason = failure(space, config, inputs, references)
        if reason:
            failures.append(f"{name} on {target.cpu}, seed {seed}: {reason}\n  {config}")
    return Tally(
        len(configs),
        sum(len(knob.values) for knob in space.knobs) - len(unreached),
        [f"{name} on {target.cpu}: {value}" for value in unreached],
        set(space.names),
        failures,
    )


def failure(
    space: Space,
    config: Mapping[str, Value],
    inputs: list[NDArray[np.generic]],
    references: list[NDArray[np.generic]],
) -> str:
    """What is wrong with a configuration; empty for nothing."""
    program = space.workload.program()
    arrays = dict(zip([tensor.name for tensor in program.inputs], inputs, strict=True))
    try:
        computed = run_machine_code(
            space.apply(program, config),
            program.args,
            arrays,
            target=space.target,
            constants=program.constants,
            strides=program.strides,
        )
    except (AutotuneError, FenceError) as error:
        return f"{type(error).__name__}: {error}"
    outputs = [computed[tensor.name] for tensor in program.outputs]
    error = relative_error(outputs, references)
    allowed = max(_ALLOWED.get(str(reference.dtype), 0.0) for reference in references)
    return "" if error <= allowed else f"relative error {error:.3g}"


def run(names: list[str], levels: tuple[str, ...], seeds: range) -> Iterator[tuple[str, Tally]]:
    """Each workload on all targets with all seeds."""
    for name in names:
        total = Tally()
        for target in targets(levels).values():
            for seed in seeds:
                total.add(campaign(name, WORKLOADS[name](), target, seed))
        yield name, total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", help="workloads; all without any")
    parser.add_argument("--targets", nargs="+", default=list(LEVELS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    total = Tally()
    for name, tally in run(given.names or sorted(WORKLOADS), tuple(given.targets), seeds):
        print(f"{name}: {tally.configurations} configurations, {len(tally.failures)} failures", flush=True)
        print(*tally.failures, sep="\n", end="\n" if tally.failures else "")
        total.add(tally)
    print(f"values found in no legal configuration: {', '.join(sorted(set(total.unreached))) or 'none'}")
    print(f"knobs: {', '.join(sorted(total.knobs))}")
    print(
        f"{total.configurations} configurations with {total.values} values of knobs, "
        f"{len(total.failures)} failures"
    )
    return bool(total.failures)


if __name__ == "__main__":
    sys.exit(main())
