"""A configuration of one space in another: of the same workload for another target, or of a workload of other sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.schedule.knob import Config, Knob, Value

if TYPE_CHECKING:
    from search_spaces.space import Space


def projected(space: Space, config: Config, otherwise: Config) -> dict[str, Value]:
    """Return the legal configuration of ``space`` that is nearest to one of another space, knob by knob
    of the same name.

    Knobs that the other space does not have are as in ``otherwise``, a configuration of this one, as far as that
    is legal. Octaves between the values of a knob count, and one for an alternative that is another.
    """
    return space.nearest({knob.name: knob.costs(_wanted(knob, config, otherwise)) for knob in space.knobs})


def _wanted(knob: Knob, config: Config, otherwise: Config) -> Value:
    """Return the other space's value where it means something here: any int of an int knob, else one that is legal."""
    value = config.get(knob.name, otherwise[knob.name])
    known = type(value) is int if knob.ordered else value in knob.values
    return value if known else otherwise[knob.name]


__all__ = ["projected"]
