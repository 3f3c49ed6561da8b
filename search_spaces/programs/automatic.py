"""An automatic sketch: a schedule function for any program, from its structure.

The program is divided into regions (:mod:`search_spaces.programs.regions`), and each has the space that the same
region of a model has (:mod:`search_spaces.programs.spaces`): its knobs, constraints and steps. A nest that other
nests read may also be computed in their tiles, by the rule of sketch generation in Ansor (Zheng et al., OSDI 2020)
and MetaSchedule (Shao et al., NeurIPS 2022).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune import te
from autotune.schedule.encoding import identifier
from autotune.te.sequential import SequentialOp
from autotune.te.tensor import ComputeOp
from search_spaces.families.plain import schedule_plain
from search_spaces.programs.layouts import choose_layouts
from search_spaces.programs.regions import Division, ProgramRegion

if TYPE_CHECKING:
    from autotune.schedule.knob import Config, Value
    from autotune.schedule.schedule import Schedule
    from autotune.schedule.stage import Stage
    from autotune.target import Target
    from autotune.te import Tensor
    from autotune.te.expr import IterVar
    from search_spaces.constraint import Constraint

_PLACES = ("tile", "row")
"""Loops of a nest in which what it reads may be computed, outermost first."""


@dataclass(frozen=True)
class Automatic:
    """The schedule function for a program without one, on one target."""

    outputs: tuple[Tensor, ...]
    target: Target

    @cached_property
    def regions(self) -> tuple[ProgramRegion, ...]:
        """The regions of the program, readers first."""
        schedule = te.create_schedule([tensor.op for tensor in self.outputs])
        choose_layouts(schedule, self.target)
        return Division(schedule, self.target).regions()

    def config(self, chosen: Mapping[str, Config]) -> dict[str, Value]:
        """Return the choices for regions, by the names of their stored stages, as a configuration of the program."""
        return {
            knob_name(stored, name): value
            for stored, config in chosen.items()
            for name, value in config.items()
        }

    def __call__(self, schedule: Schedule) -> None:
        """Schedule every region, readers first."""
        choose_layouts(schedule, self.target)
        _Run(schedule, self.target, self.regions).run()


def knob_name(stored: str, knob: str) -> str:
    """Return the knob of a region's space as a knob of the program."""
    return f"{identifier(stored)}_{knob}"


class _RegionKnobs(Mapping[str, Any]):
    """The knobs of a region, declared as those of the program, as its recipe looks them up."""

    def __init__(self, schedule: Schedule, region: ProgramRegion) -> None:
        space = region.space
        assert space is not None
        default = space.default()
        self._values = {}
        for knob in space.knobs:
            mine = replace(
                knob, name=knob_name(region.stored, knob.name), default_index=knob.index(default[knob.name])
            )
            self._values[knob.name] = schedule.record.declare(mine)
        for constraint in space.constraints:
            values = [self._values[name] for name in constraint.knobs]
            name = knob_name(region.stored, constraint.name)
            schedule.require(name, values, _rule(constraint), constraint.help)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def _rule(constraint: Constraint) -> Any:
    """Return a constraint as a rule of the values of its knobs, in their order."""
    return lambda *values: constraint.mask(
        {name: np.atleast_1d(value) for name, value in zip(constraint.knobs, values, strict=True)}
    )


@dataclass
class _Run:
    """One run over one schedule."""

    s: Schedule
    target: Target
    regions: Sequence[ProgramRegion]

    def run(self) -> None:
        nests: dict[str, tuple[Stage, dict[str, IterVar]]] = {}
        for region in self.regions:
            stage = self.s[region.stored]
            home = self._home(region, nests)
            if home is not None and self._placed(region, stage, *home):
                nests |= dict.fromkeys(region.stages, home)
                continue
            self._at_root(region, stage)
            if region.nest:
                nests |= {name: (stage, _loops(stage)) for name in region.stages}

    def _at_root(self, region: ProgramRegion, stage: Stage) -> None:
        if region.space is not None:
            region.space.recipe.steps(self.s, _RegionKnobs(self.s, region))
        elif isinstance(stage.op, ComputeOp) and not isinstance(stage.op, SequentialOp):
            for name in region.stages:
                schedule_plain(self.s[name], self._lanes(stage), inline=True)

    def _home(
        self, region: ProgramRegion, nests: Mapping[str, tuple[Stage, dict[str, IterVar]]]
    ) -> tuple[Stage, dict[str, IterVar]] | None:
        """Return the nest whose loops all readers of a nest are in, where there is one."""
        readers = {reader.op.name for reader in self.s.readers_of(self.s[region.stored])}
        if region.output or not region.nest or not readers or not readers <= nests.keys():
            return None
        homes = [nests[name] for name in readers]
        return homes[0] if all(stage is homes[0][0] for stage, _ in homes) and homes[0][1] else None

    def _placed(
        self, region: ProgramRegion, stage: Stage, reader: Stage, loops: Mapping[str, IterVar]
    ) -> bool:
        """Compute a nest inside of its reader's loops or inline it, as a knob says; False where it is at the root."""
        choices = ["root", *loops, "inline"]
        name = f"{identifier(region.stored)}_in_{identifier(reader.op.name)}_{[*loops][-1]}"
        place = self.s.knob(name, choices, "root", "where it is computed")
        if place == "root":
            return False
        for other in region.stages[1:]:
            self.s[other].compute_inline()
        if place == "inline":
            stage.compute_inline()
            return True
        stage.compute_at(reader, next(loop for named, loop in loops.items() if place == named))
        schedule_plain(stage, self._lanes(stage), inline=False, parallel=False)
        return True

    def _lanes(self, stage: Stage) -> int:
        return max(1, self.target.lanes(stage.op.dtypes[0]))


def _loops(stage: Stage) -> dict[str, IterVar]:
    """Return the loops of a nest but those in vectors, by what they are called here."""
    return dict(zip(_PLACES, stage.leaf_iter_vars[:-2], strict=False))


__all__ = ["Automatic"]
