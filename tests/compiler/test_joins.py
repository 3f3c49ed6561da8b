"""Random graphs of joins and slices as machine code; the memory plan keeps every value, and a wrong one is found."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autotune.compiler import compile_in_detail
from autotune.compiler.dividing import distinct_workloads, divide
from autotune.compiler.explain import Compilation
from autotune.compiler.memory.proof import prove_memory
from autotune.compiler.request import CompileRequest
from autotune.errors import ArtifactError, InternalError
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.passes.layout.views import Placement
from autotune.passes.memory.plan_memory import MemoryPlan
from autotune.runtime.artifacts import artifact
from autotune.runtime.module import Module
from autotune.schedule.trace import Trace
from tests.passes.random_joins import random_joins


def compiled(graph: Graph, threads: int, plain: bool) -> Compilation:
    """Compiled with the default schedules, or without any."""
    schedules = {w.key: Trace() for w in distinct_workloads(divide(graph))} if plain else {}
    return compile_in_detail(CompileRequest(graph, threads=threads, schedules=schedules))


@pytest.mark.parametrize("block", range(6))
def test_random_joins_compute_their_reference(block: int, tmp_path: Path) -> None:
    for seed in range(4 * block, 4 * (block + 1)):
        graph = random_joins(random.Random(1000 + seed))
        inputs = {
            v: np.random.default_rng(k).standard_normal(graph.types[v].shape).astype(np.float32)
            for k, v in enumerate(graph.inputs)
        }
        done = compiled(graph, threads=1 + seed % 2, plain=seed % 4 < 2)
        prove_memory(done.partition, done.memory_plan)
        path = tmp_path / f"{seed}.atm"
        artifact.save(done.image, path)
        expected = evaluate.run(graph, inputs)
        with Module(artifact.load_image(path)) as module:
            for _ in range(2):
                results = module.run(inputs)
                for name, want in expected.items():
                    np.testing.assert_allclose(
                        results[name], want, rtol=2e-3, atol=2e-4, err_msg=f"seed {seed}: {name}\n{graph}"
                    )


@pytest.fixture(scope="module")
def joined() -> Compilation:
    """Two products written into one value of the arena, read as a whole and in part."""
    b = GraphBuilder()
    x = b.node("Tanh", b.input("x", (8, 16)), name="t")
    parts = [
        b.node("MatMul", x, b.constant(f"w{i}", np.full((16, 16), i / 16, np.float32)), name=f"a{i}")
        for i in (1, 2)
    ]
    both = b.node("Concat", *parts, axis=1, name="joined")
    y = b.node("Softmax", both, axis=1, name="y")
    z = b.node("Exp", b.node("Slice", both, starts=(8,), ends=(24,), axes=(1,)), name="z")
    return compiled(b.graph(y, z), threads=1, plain=True)


def test_the_plan_is_proved(joined: Compilation) -> None:
    assert str(prove_memory(joined.partition, joined.memory_plan)) == (
        "memory: 7 reads and 5 writes, 2 of them in place, proven"
    )


def test_values_joined_in_place_are_one_lifetime_of_the_bound(joined: Compilation) -> None:
    lifetimes = {value.name: value for value in joined.memory_plan.lifetimes}
    assert not {"a1", "a2"} & set(lifetimes)
    assert lifetimes["joined"].nbytes == 8 * 32 * 4
    assert joined.memory_plan.arena_bytes == joined.memory_plan.lower_bound


def _moved(plan: MemoryPlan, **offsets: int) -> MemoryPlan:
    return replace(plan, offsets={**plan.offsets, **offsets})


def test_a_plan_that_overwrites_a_value_is_found(joined: Compilation) -> None:
    both = joined.memory_plan.offsets["joined"]
    wrong = _moved(joined.memory_plan, t=both)
    with pytest.raises(
        InternalError, match=r"the memory plan is wrong: 00\d_matmul reads 't', of which a part"
    ):
        prove_memory(joined.partition, wrong)
    with pytest.raises(InternalError, match="'joined' lies outside of the arena"):
        prove_memory(joined.partition, _moved(joined.memory_plan, joined=joined.memory_plan.arena_bytes))


def _placed(done: Compilation, value: str, placement: Placement) -> Compilation:
    parts = replace(done.partition, placements={**done.partition.placements, value: placement})
    return replace(done, segments=(replace(done.only, partition=parts),))


@pytest.mark.parametrize(
    ("value", "offset", "message"),
    [
        ("a2", 8, "writes 'a2' over elements that were written before"),
        ("a2", 24, "'a2' lies outside of 'joined'"),
    ],
)
def test_parts_that_overlap_are_found(joined: Compilation, value: str, offset: int, message: str) -> None:
    placement = joined.partition.placements[value]
    wrong = _placed(joined, value, replace(placement, offset=offset))
    with pytest.raises(InternalError, match=message):
        prove_memory(wrong.partition, wrong.memory_plan)


def test_a_part_that_nobody_writes_is_found(joined: Compilation) -> None:
    parts = joined.partition
    fewer = replace(parts, dispatches=tuple(d for d in parts.dispatches if d.outputs != ("a2",)))
    with pytest.raises(InternalError, match="of which a part was not written before, or overwritten"):
        prove_memory(fewer, joined.memory_plan)


def test_an_order_that_reads_too_early_is_found(joined: Compilation) -> None:
    parts = replace(joined.partition, dispatches=tuple(reversed(joined.partition.dispatches)))
    with pytest.raises(InternalError, match="was not written before"):
        prove_memory(parts, joined.memory_plan)


def test_a_part_that_would_end_beyond_the_arena_is_refused(joined: Compilation, tmp_path: Path) -> None:
    image = joined.image
    number, command = next(
        (n, c) for n, c in enumerate(image.commands) if any(b.offset % 256 == 64 for b in c.bindings)
    )
    bindings = tuple(
        replace(b, offset=b.offset + image.arena_bytes) if b.offset % 256 == 64 else b
        for b in command.bindings
    )
    commands = list(image.commands)
    commands[number] = replace(command, bindings=bindings)
    with pytest.raises(ArtifactError, match=r"binding \d: bytes \d+ to \d+ of arena 0, which has"):
        Module(replace(image, commands=tuple(commands)))
