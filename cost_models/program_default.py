"""The default configuration of a program without a schedule function: that of each region, then where nests go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cost_models import analytic

if TYPE_CHECKING:
    from autotune.schedule.knob import Value
    from search_spaces.programs.automatic import Automatic
    from search_spaces.space import Space


def program_default(space: Space, function: Automatic) -> dict[str, Value]:
    """Return the candidate of an automatic sketch's ``space`` that the model likes best, region by region.

    Each region has the default of its own space, as in a model. With those, the model chooses where the nests that
    others read are computed, one after the other.
    """
    chosen = function.config(
        {r.stored: analytic.default_config(r.space) for r in function.regions if r.space is not None}
    )
    sketch = space.sketch
    assert sketch is not None
    config = space.check({**sketch.default, **chosen})
    for knob in space.knobs:
        if knob.name not in chosen:
            options = [{**config, knob.name: value} for value in knob.values]
            legal = [option for option in options if sketch.path(option).error is None]
            config = legal[int(analytic.predict(space, legal).argmin())]
    return config


__all__ = ["program_default"]
