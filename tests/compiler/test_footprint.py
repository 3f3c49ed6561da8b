"""Memory and bytes that a run, and a compilation, report are those that a module takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.cli.options import memory_json, memory_line
from autotune.compiler import compile_in_detail, distinct_workloads, divide
from autotune.compiler.assemble import BuiltWorkload, assemble
from autotune.compiler.build.build import BuildTask
from autotune.compiler.memory.footprint import footprint_of
from autotune.compiler.planned import GIVEN, Planned
from autotune.compiler.region import region_partition
from autotune.compiler.request import CompileRequest
from autotune.graph.region import Workload
from autotune.runtime.artifacts import artifact
from autotune.runtime.cpu.device import Memory, allocate
from autotune.runtime.module import Module
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
    assert len(seen) > 1 or workload.kind not in ("contraction", "convolution"), "packing takes memory"


class Watched(Memory):
    """Remembers what was asked for."""

    def __init__(self) -> None:
        self.asked: dict[str, int] = {}

    def allocate(self, nbytes: int, use: str) -> NDArray[np.uint8]:
        self.asked[use] = nbytes
        return allocate(nbytes)


def test_a_compilation_says_what_its_module_allocates_and_its_artifact_holds(tmp_path: Path) -> None:
    done = compile_in_detail(CompileRequest("zoo:tiny_cnn", target=TARGET))
    said, memory = memory_json(done), Watched()
    with Module(done.image, memory=memory):
        pass
    assert memory.asked == {
        "intermediate values": said["arena_bytes"],
        "scratch memory": said["scratch_bytes"],
    }
    assert said["peak_bytes"] == sum(memory.asked.values())
    artifact.save(done.image, tmp_path / "m.atm")
    loaded = artifact.load_image(tmp_path / "m.atm")
    assert loaded.stored_bytes == said["code_bytes"] + said["constant_bytes"]
    assert 0 < (tmp_path / "m.atm").stat().st_size - loaded.stored_bytes < 100_000  # the manifest
    assert memory_line(done).startswith("peak memory ")
