"""Attention over a cache that is partly filled: blocks of keys that a mask leaves out are neither read nor computed."""

from __future__ import annotations

import random

import numpy as np
import pytest

from autotune.codegen import interpreter
from autotune.graph.ir import Array
from autotune.graph.region import Workload
from autotune.lower import lower_schedule
from autotune.tuning.measure.check import relative_error
from search_spaces.spaces import space_for
from tests.schedule.machine import run_machine_code, runnable_target
from tests.search_spaces import workloads as make

BLOCK = 4
TARGETS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")


def decoding(rng: random.Random) -> Workload:
    """Few queries, keys that are no whole number of blocks at times, and a mask for all rows or one a row."""
    lead, rows = rng.choice(((2,), (1, 3))), rng.randint(1, 10)
    keys = rng.randint(2 * BLOCK, 5 * BLOCK)
    mask = (*(1 for _ in lead), rng.choice((1, rows)), keys)
    d, e = rng.randint(1, 20), rng.randint(1, 20)
    dtype = rng.choice(("float32", "float64"))
    empty = rng.randint(0, 1)
    shape = (*lead, rows, d)
    return make.attention(shape, keys, e, mask, "bool", dtype=dtype, block=BLOCK, zero_empty=empty)


def filled(rng: random.Random, mask: Array) -> Array:
    """Return a mask of which blocks are kept, at least one key for each row."""
    kept = np.zeros(mask.shape, bool)
    block = rng.randrange(mask.shape[-1] // BLOCK)
    kept[..., block * BLOCK : (block + 1) * BLOCK] = True
    if rng.random() < 0.5:
        kept[..., : rng.randint(1, mask.shape[-1])] = True
    return kept & (mask | (np.arange(mask.shape[-1]) == block * BLOCK))


def run_block(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        region, target = decoding(rng), runnable_target(rng.choice(TARGETS))
        space, program = space_for(region, target), region.program()
        config = space.population(np.random.default_rng(seed), 1).config(0)
        schedule = space.apply(program, config)
        q, k, v, mask = region.random_inputs(seed)
        mask = filled(rng, mask)
        wanted = region.reference([q, k, v, mask])
        blocks = mask.reshape(-1, mask.shape[-1]).any(0)
        unread = [
            i
            for i in range(mask.shape[-1])
            if not blocks[i // BLOCK * BLOCK : i // BLOCK * BLOCK + BLOCK].any()
        ]
        k[..., unread, :], v[..., unread, :] = np.nan, np.nan
        arrays = dict(zip([t.name for t in program.inputs], (q, k, v, mask), strict=True))
        (output,) = program.outputs
        found = run_machine_code(schedule, program.args, arrays, target=target)[output.name]
        assert relative_error([found], wanted) <= 2e-5, f"seed {seed}: {config}\n{region}"
        held = {output.name: np.zeros(output.shape, output.dtype)}
        interpreter.run_program(lower_schedule(schedule, program.args), {**arrays, **held})
        assert relative_error([held[output.name]], wanted) <= 2e-5, f"seed {seed}: {config}\n{region}"


def test_masked_blocks_are_passed_over() -> None:
    run_block(range(6))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_masked_blocks_are_passed_over_in_many(block: int) -> None:
    run_block(range(1000 + 30 * block, 1030 + 30 * block))
