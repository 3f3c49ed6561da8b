"""The forecast of a running job, renewed as it goes on; the search ends where the rest of it is not worth its time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autotune.tuning.jobs.forecast import forecast
from autotune.tuning.report.status import Status

_EVERY_S = 2.0
"""A forecast takes some milliseconds: it is made anew at most this often."""


@dataclass
class Ahead:
    """Looks ahead for a job."""

    status: Status
    _looked: float = -math.inf

    def look(self) -> bool:
        """Renew the forecast, and what is known of the noise; return whether the search ends by it."""
        status, meter = self.status, self.status.meter
        recent = status.forecast is not None and meter.elapsed_s - self._looked < _EVERY_S
        if meter.enough or recent:
            return False
        self._looked = meter.elapsed_s
        status.noise.take(status.policy.beliefs.recent)
        room = sum(task.room for task in status.tasks if not task.finished)
        trials = min(meter.trials_left, room)
        status.forecast = found = forecast(status.sites, status.policy, meter.seconds_left, trials)
        least = meter.budget.stop_when
        if least is None or found is None or not found.measured or found.remaining >= least:
            return False
        meter.enough = (
            f"the rest of the search is expected to make {100 * found.remaining:.2g} % of the latency go, less than "
            f"the {100 * least:g} % that were asked for"
        )
        return True


__all__ = ["Ahead"]
