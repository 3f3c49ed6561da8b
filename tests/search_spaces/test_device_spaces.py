"""Spaces of devices that run groups of threads: candidates compute what NumPy does, on an OpenCL device."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from autotune.codegen.backend import compile_schedule
from autotune.codegen.code import DispatchCode, Launch
from autotune.graph.region import Workload
from autotune.schedule.knob import Config
from autotune.target import Target
from cost_models import analytic
from search_spaces.space import Space
from search_spaces.spaces import space_for
from tests.codegen.opencl_device import needs_opencl, run_on_device
from tests.search_spaces import workloads as w
from tests.search_spaces.families import block_product

GENERIC = Target.parse("opencl-generic")
WORKLOADS: dict[str, tuple[Callable[[], Workload], str]] = {
    "attention": (lambda: w.attention((2, 20, 16), 24, 16), "device_grid"),
    "contraction": (lambda: w.matmul(30, 40, 48), "device_tile"),
    "convolution": (lambda: w.conv((1, 9, 12, 8), 24, 3, stride=2, pad=1), "device_tile"),
    "depthwise": (lambda: w.conv((1, 10, 12, 16), 16, 3, pad=1, group=16), "device_tile"),
    "elementwise": (lambda: w.unary("Gelu", (30, 50)), "device_grid"),
    "group norm": (lambda: w.group_norm(4, 1, 6, 5, 16), "device_grid"),
    "looked up": (lambda: w.looked_up(5, 13, 24, 32), "device_tile"),
    "looked up on the right": (lambda: w.looked_up_on_the_right(5, 12, 24, 32), "device_tile"),
    "normalization": (lambda: w.layer_norm(20, 50), "device_rows"),
    "pool": (lambda: w.pool((1, 12, 12, 16), kernel_shape=(3, 3), strides=(2, 2)), "device_tile"),
    "reduction": (lambda: w.unary("ReduceSum", (20, 50), axes=(1,)), "device_rows"),
    "short rows": (lambda: w.unary("Softmax", (40, 7), axis=1), "device_grid"),
    "weights of few bits": (lambda: block_product(5, 96, 24), "device_tile"),
    "softmax": (lambda: w.unary("Softmax", (20, 50), axis=1), "device_rows"),
}


def compiled(space: Space, config: Config) -> DispatchCode:
    program = space.workload.program()
    schedule = space.apply(program, config)
    options = {"constants": program.constants, "strides": program.strides}
    return compile_schedule(schedule, program.args, GENERIC, **options)


@needs_opencl
@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", WORKLOADS)
def test_candidates_compute_what_numpy_does(name: str, count: int) -> None:
    workload, family = WORKLOADS[name][0](), WORKLOADS[name][1]
    space = space_for(workload, GENERIC)
    assert space.family == family
    inputs = workload.random_inputs(0)
    wanted = workload.reference(inputs)
    for config in [space.default(), *space.random(np.random.default_rng(1), count)]:
        program = space.workload.program()
        schedule = space.apply(program, config)
        given = {schedule.name_of(t): a for t, a in zip(program.inputs, inputs, strict=True)}
        options = {"constants": program.constants, "strides": program.strides}
        found = run_on_device(schedule, [*program.args], given, target=GENERIC, **options)
        for tensor, expected in zip(program.outputs, wanted, strict=True):
            np.testing.assert_allclose(
                found[schedule.name_of(tensor)], expected, rtol=1e-4, atol=1e-5, err_msg=str(config)
            )


def test_a_product_is_staged_by_groups_of_threads() -> None:
    space = space_for(w.matmul(64, 64, 64), GENERIC)
    config = analytic.default_config(space)
    assert config == space.default()
    assert config["stage"]
    staged, plain = compiled(space, config), compiled(space, {**config, "stage": False})
    assert [kernel.launch for kernel in staged.kernels] == [Launch((2, 1, 1), (16, 8, 1))]
    assert "__local float" in staged.ir
    assert "__local" not in plain.ir


def test_every_candidate_fits_the_device() -> None:
    space = space_for(w.matmul(96, 200, 80), GENERIC)
    for config in space.random(np.random.default_rng(0), 40):
        code = compiled(space, config)
        for kernel in code.kernels:
            assert kernel.launch is not None
            assert np.prod(kernel.launch.block) <= GENERIC.group_items
        declared = re.findall(r"^  __local float \w+\[(\d+)\];$", code.ir, re.MULTILINE)
        assert 4 * sum(map(int, declared)) <= GENERIC.shared_bytes


def test_a_cpu_behind_opencl_has_the_spaces_of_cpus() -> None:
    cpu = Target("opencl", "opencl", ("cpu", "fp64"), 256, cores=4, threads=4, group_items=4096)
    assert space_for(w.matmul(64, 64, 64), cpu).family == "contraction"
