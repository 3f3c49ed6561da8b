"""Jobs on simulated fleets."""

from __future__ import annotations

from autotune.bench.jobs.fleet import fleet_job
from autotune.bench.jobs.made import SITES, normal_noise, ten_sites

NOISE = normal_noise(0.03)


def test_a_job_on_a_simulated_fleet_finds_the_gain() -> None:
    found = fleet_job(ten_sites(NOISE, 3), 20, 4, budget_s=60.0, seed=3)
    assert "003" in found.job.changed_sites
    assert found.job.trials >= SITES
    assert found.use.proposals >= found.job.trials
    assert 0.0 < found.use.share(0.0, found.seconds) <= 1.0
    assert found.seconds <= 66.0
