"""Random schedule functions with knobs, for random programs."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from autotune.errors import AutotuneError
from autotune.schedule import Schedule, Stage
from autotune.te.tensor import ComputeOp

FACTORS = (1, 2, 3, 4, 5, 8, 16)
MAX_ACTIONS = 6


Action = Callable[[random.Random, Schedule, Stage, str], None]


def random_schedule_function(seed: int, fresh: Callable[[], Schedule]) -> Callable[[Schedule], None]:
    """A function that is legal with its defaults on ``fresh`` schedules; other configurations may be refused.

    ``seed`` draws its knobs and steps. Some depend on knobs by their arguments, some by ``when``, some by ``if``.
    """
    rng = random.Random(seed)
    actions: list[tuple[Action, int]] = []
    for _ in range(rng.randint(2, MAX_ACTIONS)):
        more = [*actions, (rng.choice(_ACTIONS), rng.randrange(1 << 30))]
        try:
            _run(more, fresh())
        except AutotuneError:
            continue
        actions = more
    return lambda s: _run(actions, s)


def _run(actions: list[tuple[Action, int]], s: Schedule) -> None:
    for number, (action, seed) in enumerate(actions):
        stages = [st for st in s.order() if isinstance(st.op, ComputeOp) and st.attach_type != "inline"]
        stage = random.Random(seed).choice(stages)
        action(random.Random(seed), s, stage, f"k{number}")


def _draw(rng: random.Random, s: Schedule, name: str) -> Any:
    values = sorted(rng.sample(FACTORS, rng.randint(1, 4)))
    return s.knob(name, values, default=rng.choice(values))


def _split(rng: random.Random, s: Schedule, stage: Stage, name: str) -> None:
    factor = _draw(rng, s, name)
    how, tail, times = rng.choice(("factor", "nparts")), rng.choice(("peel", "guard")), rng.choice((1, 1, 2))
    stage.split(rng.choice(stage.leaf_iter_vars), tail=tail, **{how: factor * times})


def _tile(rng: random.Random, s: Schedule, stage: Stage, name: str) -> None:
    factor = _draw(rng, s, name)
    stage.tile(rng.choice(stage.leaf_iter_vars), rng.choice(stage.leaf_iter_vars), factor, (factor + 1) // 2)


def _annotate(rng: random.Random, s: Schedule, stage: Stage, name: str) -> None:
    kind, when = rng.choice(("vectorize", "unroll")), s.knob(name, (False, True))
    getattr(stage, kind)(stage.leaf_iter_vars[-1], when=when)


def _parallel(rng: random.Random, s: Schedule, stage: Stage, name: str) -> None:
    stage.parallel(stage.leaf_iter_vars[0], when=_draw(rng, s, name) > 2)


def _place(rng: random.Random, s: Schedule, stage: Stage, name: str) -> None:
    readers = s.readers_of(stage)
    loop = rng.random()
    where = s.knob(name, ("root", "inside", "inline"))
    if where == "inside" and readers:
        leaves = readers[0].leaf_iter_vars
        stage.compute_at(readers[0], leaves[int(loop * len(leaves))])
    elif where == "inline":
        stage.compute_inline()


def _order(rng: random.Random, s: Schedule, stage: Stage, name: str) -> None:
    loops = rng.sample(stage.leaf_iter_vars, len(stage.leaf_iter_vars))
    if s.knob(name, (False, True)):
        stage.reorder(*loops)


def _by_extent(rng: random.Random, s: Schedule, stage: Stage, name: str) -> None:
    """Schedule a loop by how long it is."""
    outer, inner = stage.split(stage.leaf_iter_vars[-1], factor=_draw(rng, s, name))
    if outer.extent > inner.extent:
        stage.unroll(inner)


def _require(rng: random.Random, s: Schedule, stage: Stage, name: str) -> None:
    first, second = _draw(rng, s, f"{name}a"), _draw(rng, s, f"{name}b")
    s.require(name, (first, second), lambda a, b: a * b <= 64, "small tiles")
    stage.split(stage.leaf_iter_vars[0], factor=first * second)


_ACTIONS: tuple[Action, ...] = (
    _split,
    _split,
    _tile,
    _annotate,
    _parallel,
    _place,
    _order,
    _by_extent,
    _require,
)
