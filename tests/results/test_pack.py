"""The shipped pack of schedules on other machines, and what its distance to recordings of others is fitted from."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.bench.replay.recording import CandidateRecording
from autotune.compiler.tiers import Tier
from autotune.database import Database, Origin
from autotune.database.distance import LATENCY, RATIO, TargetDistance
from autotune.database.pack import opened_pack
from autotune.graph.region import Workload
from autotune.target import Target

RESULTS = Path(__file__).parents[2] / "results"
AMD = replace(
    Target.parse("x86-64-v3", threads=2), cores=2, l2_bytes=1 << 20, l3_bytes=32 << 20, device="AMD EPYC"
)
INTEL = replace(AMD, cores=8, l1_bytes=48 << 10, l2_bytes=2 << 20, l3_bytes=480 << 20, device="Intel Xeon")
"""Both count as x86-64-v3; the pack is of a processor of the first vendor, with other caches than this one."""


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with opened_pack(RESULTS / "packs" / "zoo-x86-avx2.pack") as store:
        yield store


@pytest.mark.parametrize("target", [AMD, INTEL], ids=["another AMD", "an Intel"])
def test_it_answers_for_other_machines_with_tier_and_interval(database: Database, target: Target) -> None:
    """It answers all but dispatches that defaults choose since it was made: their workloads were never measured."""
    answers = autotune.query("zoo:squeezenet", database=database, target=target)
    planned = [answer for answer in answers if answer.planned is not None]
    used = [answer for answer in planned if answer.tier is not Tier.ANALYTIC]
    tiers = Counter[Tier]()
    for answer in used:
        assert answer.tier is not None
        tiers[answer.tier] += len(answer.names)
        assert answer.transfer is not None
        low, high = answer.transfer.interval_ns
        assert low < answer.transfer.latency_ns < high
        differing = {difference.field for difference in answer.transfer.source.differences}
        assert ("device" in differing) == (target is INTEL)
    assert tiers[Tier.TARGET] >= 0.85 * sum(len(answer.names) for answer in planned)
    assert tiers.keys() <= {Tier.TARGET, Tier.SHAPE}


def test_the_error_grows_with_the_distance() -> None:
    pack = replace(AMD, l1_bytes=48 << 10)
    near, far = TargetDistance.of(AMD, pack), TargetDistance.of(INTEL, pack)
    assert 0 < near.loss < far.loss
    assert TargetDistance.of(pack, pack).loss == 0


def _key(config: Mapping[str, Any]) -> str:
    return json.dumps(dict(config), sort_keys=True)


def test_the_variances_are_those_of_the_recordings(database: Database) -> None:
    """The logs of what recordings have over what the pack has, by the first cache of the recordings' machine."""
    ratios, latencies = defaultdict[int, list[float]](list), defaultdict[int, list[float]](list)
    for path in sorted([*RESULTS.glob("runs/avx2/*.parquet"), *RESULTS.glob("runs/avx2-zen5/*.parquet")]):
        recording = CandidateRecording.read(path)
        table, facts = recording.table, recording.facts
        cache = Target.from_json(facts.target).l1_bytes
        worked = zip(table.config, table.ratio, table.outcome, strict=True)
        here = {_key(json.loads(text)): float(ratio) for text, ratio, outcome in worked if outcome == "ok"}
        runs = [r for r in database.records(workload=Workload.parse(facts.workload).key) if r.latency]
        default = next((run for run in reversed(runs) if run.origin is Origin.DEFAULT), None)
        if default is None or _key(default.config) not in here:
            continue
        own = here[_key(default.config)]
        latencies[cache].append(math.log(own * facts.default_ns / default.latency_ns))
        for run in runs:
            if run.origin is not Origin.DEFAULT and _key(run.config) in here:
                there = run.latency_ns / default.latency_ns
                ratios[cache].append(math.log(here[_key(run.config)] / own / there))
    octaves = TargetDistance.of(AMD, replace(AMD, l1_bytes=48 << 10)).machine
    for logs, stated in ((ratios, RATIO), (latencies, LATENCY)):
        same, other = (float(np.mean(np.square(logs[kib << 10]))) for kib in (48, 32))
        assert stated.same == pytest.approx(same, rel=0.1)
        assert stated.machine == pytest.approx((other - same) / octaves, rel=0.1)
    assert [len(ratios[kib << 10]) for kib in (48, 32)] == [16, 143]
    assert [len(latencies[kib << 10]) for kib in (48, 32)] == [7, 18]
