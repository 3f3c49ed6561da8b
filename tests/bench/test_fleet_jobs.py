"""Jobs on fleets: simulated ones, and one whose seats are threads that answer as a recording says."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.bench.jobs.fleet import FleetModel, SimulatedMeasurer, SimulatedSeats, fleet_job
from autotune.bench.jobs.machine import MachineKind, SimulatedMachine
from autotune.bench.jobs.made import SITES, normal_noise, ten_sites
from autotune.bench.jobs.replay import job_outcome
from autotune.bench.jobs.seat import SimulatedPool
from autotune.bench.jobs.truth import Truth
from autotune.database import Database
from autotune.distribution import version
from autotune.tuning.fleet.fleet import Fleet, SeatWork
from autotune.tuning.fleet.measurer import FleetMeasurer
from autotune.tuning.fleet.opening import OnFleet
from autotune.tuning.fleet.signature import Signed, Signer
from autotune.tuning.fleet.trust import Trust
from autotune.tuning.jobs.policy import Policy

NOISE = normal_noise(0.03)


def test_a_job_on_a_simulated_fleet_finds_the_gain() -> None:
    found = fleet_job(ten_sites(NOISE, 3), 20, 4, budget_s=60.0, seed=3)
    assert "003" in found.job.changed_sites
    assert found.job.trials >= SITES
    assert found.use.proposals >= found.job.trials
    assert 0.0 < found.use.share(0.0, found.seconds) <= 1.0
    assert found.seconds <= 66.0
