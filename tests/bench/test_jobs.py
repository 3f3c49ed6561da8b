"""Simulated jobs: recordings, the machine, and what jobs decide where the truth is known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from autotune.bench.jobs.compare import cases, machine_of
from autotune.bench.jobs.machine import SLOW, MachineKind, SimulatedMachine
from autotune.bench.jobs.made import GAIN, SITES, normal_noise, nothing_to_gain, ten_sites
from autotune.bench.jobs.policies import POLICIES
from autotune.bench.jobs.record import record
from autotune.bench.jobs.recording import SUFFIX, RecordedJob, read_jobs
from autotune.bench.jobs.replay import JobOutcome, replay
from autotune.bench.jobs.truth import CANDIDATES, PlanInUse, Truth
from autotune.cli.main import run
from autotune.database import Database
from autotune.errors import UsageError
from autotune.target import Target
from autotune.tuning.api import tune
from autotune.tuning.jobs.budget import Budget

NOISE = normal_noise(0.03)
STEADY = MachineKind("steady", NOISE, drift=0.0075)
LOADED = MachineKind("loaded", NOISE, drift=0.0075, loaded=True)
FOLDER = Path(__file__).parent.parent.parent / "results" / "replay"


def job(seed: int, kind: MachineKind = LOADED, policy: str = "policy", budget_s: float = 300.0) -> JobOutcome:
    return replay(ten_sites(NOISE, seed), kind, POLICIES[policy], budget_s=budget_s, seed=seed)


def test_a_gain_at_one_of_ten_sites_is_in_use_after_minutes() -> None:
    assert "003" in job(3, budget_s=150.0).changed_sites


def test_where_there_is_nothing_to_gain_nothing_is_claimed() -> None:
    found = replay(nothing_to_gain(NOISE), LOADED, POLICIES["policy"], budget_s=120.0, seed=0)
    assert not found.changed
    assert found.best == 1.0
    assert found.regret < 0.01


def test_equal_seeds_give_the_same_job() -> None:
    first, second, other = (job(seed, budget_s=20.0) for seed in (4, 4, 5))
    assert first == second
    assert first.steps != other.steps


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_keeps_to_the_budget(policy: str) -> None:
    found = job(1, STEADY, policy, budget_s=45.0)
    assert found.spent <= 1.05
    assert found.trials >= SITES
    assert ("search" in found.seconds) == (policy != "options-only")


def test_a_recording_goes_through_json(tmp_path: Path) -> None:
    written = ten_sites(NOISE, 0)
    path = written.write(tmp_path)
    assert path.name == "ten-sites-0" + SUFFIX
    (read,) = read_jobs(tmp_path)
    assert read.to_json() == written.to_json()
    assert Truth.of(read, 1).untuned_ns == pytest.approx(Truth.of(written, 1).untuned_ns)
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError, match="is no recording of `autotune replay record`: 'format'"):
        read_jobs(tmp_path)
    path.write_text('{"format": 7}', encoding="utf-8")
    with pytest.raises(UsageError, match="has format 7, allowed: 1"):
        read_jobs(tmp_path)
    path.unlink()
    with pytest.raises(UsageError, match="has no recorded jobs; make one: autotune replay record MODEL"):
        read_jobs(tmp_path)


def test_the_truth_is_what_was_made_up() -> None:
    truth = Truth.of(ten_sites(NOISE, 3), 3)
    best = truth.best_ns / truth.untuned_ns
    assert best == pytest.approx(1 - (1 - np.exp(GAIN)) / SITES)
    other = PlanInUse({"3-direct": "other"}, {})
    assert truth.latency(other) / truth.untuned_ns == pytest.approx(best)
    assert all(len(pool.inside) == CANDIDATES and pool.inside.min() == 1.0 for pool in truth.pools.values())


def test_a_machine_with_half_the_speed_half_of_the_time() -> None:
    machine = SimulatedMachine(LOADED, 0)
    machine.work(19.0)
    assert (machine.seconds, machine.slowness) == (19.0, 1.0)
    machine.work(2.0)
    assert machine.seconds == pytest.approx(22.0)
    assert machine.slowness == SLOW
    machine.work(30.0)
    assert machine.seconds == pytest.approx(22 + 18 + 20 + 2)


def test_noise_is_scaled_to_a_standard_deviation() -> None:
    kind = machine_of("loaded", NOISE)
    drawn = SimulatedMachine(kind, 0).process_noise((20_000,))
    assert float(np.std(drawn)) == pytest.approx(0.06, rel=0.05)
    assert machine_of("quiet", NOISE).noise == NOISE


def test_jobs_take_recordings_and_machines_in_turn() -> None:
    recordings = [ten_sites(NOISE, 0), ten_sites(NOISE, 1)]
    found = cases(recordings, ("quiet", "loaded"), 5, seed=7)
    assert [(c.recording.model[-1], c.machine, c.seed) for c in found] == [
        ("0", "quiet", 7),
        ("1", "quiet", 8),
        ("0", "loaded", 9),
        ("1", "loaded", 10),
        ("0", "quiet", 11),
    ]


def test_compare_prints_what_policies_reached(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ten_sites(NOISE, 0).write(tmp_path)
    arguments = ["--jobs", "1", "--minutes", "0.5", "--policies", "policy,by-chance", "--processes", "1"]
    assert run(["replay", "compare", str(tmp_path), *arguments, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["data"]
    assert [(row["policy"], row["machine"], row["seed"]) for row in rows] == [
        ("policy", "quiet", 0),
        ("by-chance", "quiet", 0),
    ]
    assert run(["replay", "compare", str(tmp_path), "--policies", "by-chanc"]) == 2
    assert "unknown policy 'by-chanc'; there are: policy, in-turn" in capsys.readouterr().err


@pytest.mark.usefixtures("shared_pools")
def test_a_job_is_recorded_from_its_database(tmp_path: Path) -> None:
    target = Target.detect(threads=1)
    path = tmp_path / "tuning.db"
    report = tune(
        "zoo:tiny_cnn", budget=Budget(trials=10), database=path, threads=1, quiet=True, time_model=False
    )
    said: list[str] = []
    with Database(path, read_only=True) as database:
        found = record("zoo:tiny_cnn", database, target, said.append)
    assert RecordedJob.from_json(found.to_json()).to_json() == found.to_json()
    assert sum(len(w.candidates) for w in found.workloads) == report.trials - sum(
        w.key in {key[:12] for key in _defaults(path)} for w in found.workloads
    )
    assert min(found.noise.round) < 0 < max(found.noise.round)
    assert all(place.choices[0].log == 0.0 and place.ns > 0 for place in found.places)
    outcome = replay(found, MachineKind.recorded(found.noise), POLICIES["policy"], budget_s=20.0, seed=0)
    assert outcome.trials > 0


def _defaults(path: Path) -> set[str]:
    with Database(path, read_only=True) as database:
        runs = database.runs()
    return set(runs[(runs.origin == "default") & (runs.outcome == "ok")].workload_key)


@pytest.mark.parametrize("path", sorted(FOLDER.glob(f"*{SUFFIX}")), ids=lambda path: path.name)
def test_a_shipped_recording_is_small_and_has_something_to_gain(path: Path) -> None:
    assert path.stat().st_size < 1 << 17
    recording = RecordedJob.from_json(path.read_text(encoding="utf-8"))
    truth = Truth.of(recording, 0)
    assert truth.best_ns < 0.99 * truth.untuned_ns
    assert {key for p in recording.places for c in p.choices for key in c.workloads} == {
        w.key for w in recording.workloads
    }
