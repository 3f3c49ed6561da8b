"""Every value of every knob, with random values of the others, by machine code beside NumPy.

::

    python -m tests.search_spaces.every_value --seeds 3 --targets x86-64-v2,host conv depthwise

runs the named workloads (all of ``families`` without names), prints what failed, and which values no legal
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
from autotune.schedule.knob import Value
from autotune.target import Target
from autotune.tuning.measure.check import relative_error
from search_spaces import spaces
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
    """Counts of what ran, and the failures."""

    configurations: int = 0
    reached: set[str] = field(default_factory=set)
    unreached: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add another run."""
        self.configurations += other.configurations
        self.reached |= other.reached
        self.unreached |= other.unreached
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


def covering(space: Space, seed: int, *, together: bool = False) -> tuple[list[dict[str, Value]], set[str]]:
    """Legal configurations in which each value of each knob occurs, and the values that were found in none.

    ``together``: also each value beside each value of every knob that is a choice and not a number.
    """
    rng = np.random.default_rng(seed)
    drawn = space.population(rng, _DRAWN)
    missing = _wanted(space, together)
    chosen: list[dict[str, Value]] = []
    unreached: set[str] = set()
    while missing:
        wanted = missing[0]
        rows = _having(space, drawn, wanted, rng)
        if not len(rows):
            missing.remove(wanted)
            if len(wanted) == 1:
                ((column, index),) = wanted
                unreached.add(f"{space.knobs[column].name}={space.knobs[column].values[index]!r}")
            continue
        have = [set(enumerate(row)) for row in rows.indexes.tolist()]
        best = max(range(len(have)), key=lambda at: sum(values <= have[at] for values in missing))
        missing = [values for values in missing if not values <= have[best]]
        chosen.append(rows.config(best))
    return chosen, unreached


_Values = frozenset[tuple[int, int]]
"""Values of knobs: the number of the knob, and that of its value."""


def _wanted(space: Space, together: bool) -> list[_Values]:
    """Return the values that shall occur, in order."""
    values = [(column, index) for column, knob in enumerate(space.knobs) for index in range(len(knob.values))]
    wanted = [frozenset([value]) for value in values]
    if together:
        choices = [value for value in values if not space.knobs[value[0]].ordered]
        pairs = [frozenset([one, other]) for one in choices for other in values if one[0] != other[0]]
        wanted += dict.fromkeys(pairs)
    return wanted


def _having(space: Space, drawn: Population, values: _Values, rng: np.random.Generator) -> Population:
    """Some legal candidates that have the values: those drawn, else those drawn with the values put in."""
    has = np.all([drawn.indexes[:, column] == index for column, index in values], axis=0)
    rows = drawn.take(np.flatnonzero(has))
    if not len(rows):
        changed: NDArray[np.int16] = drawn.indexes.copy()
        for column, index in values:
            changed[:, column] = index
        candidates = Population(space.knobs, changed)
        rows = candidates.take(np.flatnonzero(space.legal(candidates.columns()))).distinct()
    return rows.take(rng.permutation(len(rows))[:_TRIES])


def campaign(name: str, target: Target, seed: int, *, together: bool = False) -> Tally:
    """Run one workload's space on one target."""
    workload = WORKLOADS[name]()
    space = spaces.space_for(workload, target)
    configs, unreached = covering(space, seed, together=together)
    inputs = workload.random_inputs(seed)
    references = workload.reference(inputs)
    failures = []
    for config in configs:
        reason = failure(space, config, inputs, references)
        if reason:
            failures.append(f"{name} on {target.cpu}, seed {seed}: {reason}\n  {config}")
    return Tally(
        len(configs),
        {f"{name}={value!r}" for config in configs for name, value in config.items()},
        unreached,
        failures,
    )


def failure(
    space: Space,
    config: Mapping[str, Value],
    inputs: list[NDArray[np.generic]],
    references: list[NDArray[np.generic]],
) -> str:
    """Return what is wrong with a configuration; empty for nothing."""
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


def run(
    names: list[str], levels: tuple[str, ...], seeds: range, together: bool
) -> Iterator[tuple[str, Tally]]:
    """Each workload on all targets with all seeds."""
    for name in names:
        total = Tally()
        for target in targets(levels).values():
            for seed in seeds:
                total.add(campaign(name, target, seed, together=together))
        yield name, total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", help="workloads; all without any")
    parser.add_argument("--targets", default=",".join(LEVELS), help="separated by commas")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--together", action="store_true", help="each value beside each choice too")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    total = Tally()
    for name, tally in run(
        given.names or sorted(WORKLOADS), tuple(given.targets.split(",")), seeds, given.together
    ):
        print(f"{name}: {tally.configurations} configurations, {len(tally.failures)} failures", flush=True)
        print(*tally.failures, sep="\n", end="\n" if tally.failures else "")
        total.add(tally)
    knobs = {text.partition("=")[0] for text in total.reached}
    print(
        f"{total.configurations} configurations with {len(total.reached)} values of {len(knobs)} knobs "
        f"({', '.join(sorted(knobs))}), {len(total.failures)} failures"
    )
    print(
        f"legal in none of these spaces: {', '.join(sorted(total.unreached - total.reached)) or 'no value'}"
    )
    return bool(total.failures)


if __name__ == "__main__":
    sys.exit(main())
