"""What a run says of memory and bytes is what a module with its code takes."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.compiler import distinct_workloads, divide
from autotune.compiler.assemble import BuiltWorkload, assemble
from autotune.compiler.build import BuildTask
from autotune.compiler.footprint import footprint_of
from autotune.compiler.planned import GIVEN, Planned
from autotune.compiler.region import region_partition
from autotune.graph.region import Workload
from autotune.target import Target
from search_spaces.spaces import space_for

TARGET = Target.detect(threads=2)
WORKLOADS = distinct_workloads(divide("zoo:tiny_cnn")) + distinct_workloads(divide("zoo:mlp"))


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: f"{w.kind} {w.key[:6]}")
def test_a_footprint_is_what_a_module_of_the_dispatch_takes(workload: Workload) -> None:
    space = space_for(workload, TARGET)
    parts = region_partition(workload, workload.random_inputs(0))
    seen = set()
    for config in space.population(np.random.default_rng(1), 12):
        planned = Planned(workload, space.schedule(config).trace, GIVEN)
        code = BuildTask(planned, TARGET).run()
        image, plan = assemble(parts, {workload.key: BuiltWorkload(planned, code)}, TARGET, {})
        found = footprint_of(code, workload.region.constant_inputs, TARGET.threads)
        assert found.memory_bytes == plan.arena_bytes + image.scratch_bytes(TARGET.threads)
        assert found.artifact_bytes == image.stored_bytes
        seen.add(found)
    assert len(seen) > 1 or len(space.knobs) == 0
