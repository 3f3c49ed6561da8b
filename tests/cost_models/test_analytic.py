"""The analytic model's choice among candidates that it cannot tell apart."""

from __future__ import annotations

from cost_models import analytic
from search_spaces.spaces import space_for
from tests.search_spaces.workloads import conv, host


def test_equal_candidates_keep_their_knobs_at_the_defaults() -> None:
    space = space_for(conv((1, 7, 7, 64), 64, 3, pad=1), host())
    best = analytic.best_of(space)
    seconds = analytic.predict(space, best)
    departures = [
        sum(best.config(row)[knob.name] != knob.default for knob in best.knobs) for row in range(len(best))
    ]
    assert list(zip(seconds, departures, strict=True)) == sorted(zip(seconds, departures, strict=True))
    assert analytic.default_config(space)["pack"]
