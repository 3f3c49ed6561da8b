"""Every space: random configurations of random shapes build, and compute what the reference does."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune import te
from autotune.errors import KnobError
from autotune.graph.ops.definition import WorkloadKind
from autotune.graph.region import Workload
from autotune.library import registry
from autotune.lower import lower_schedule
from autotune.schedule.trace import Trace
from autotune.target import Target
from cost_models import analytic
from search_spaces import spaces
from search_spaces.space import Space
from tests.search_spaces import workloads as make
from tests.search_spaces.families import FIXED


def check_numerics(space: Space, config: Any) -> None:
    for computed, expected in zip(*make.run(space, config), strict=True):
        np.testing.assert_allclose(computed, expected, rtol=2e-4, atol=2e-4, err_msg=str(config))


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", FIXED)
def test_default_and_random_configurations_compute_the_reference(name: str, count: int) -> None:
    space = spaces.space_for(FIXED[name](), make.host())
    rng = np.random.default_rng(0)
    for config in (analytic.default_config(space), *space.random(rng, count)):
        check_numerics(space, config)


@pytest.mark.parametrize(
    "name", ["chain_inverted", "reduce_rows", "layer_norm", "softmax", "add", "transpose"]
)
def test_one_worker_has_no_work_to_share(name: str) -> None:
    """Nor is it asked: each candidate would be there twice."""
    space = spaces.space_for(FIXED[name](), Target.parse("x86-64-v4", threads=1))
    assert [len(knob.values) for knob in space.knobs if knob.name == "parallel"] == [1]


@st.composite
def random_workloads(draw: st.DrawFn) -> Workload:
    """Contractions, convolutions and the rest with sizes that nothing divides, ones included."""
    size = st.integers(1, 40)
    kind = draw(st.sampled_from(["matmul", "conv", "pool", "softmax", "norm", "add", "sum", "transpose"]))
    if kind == "matmul":
        m, k, n = draw(size), draw(size), draw(size)
        constant = draw(st.booleans())
        return make.matmul(m, k, n, constant=constant, relu=draw(st.booleans()))
    if kind == "conv":
        side, channels = draw(st.integers(3, 13)), draw(st.integers(1, 20))
        depthwise = draw(st.booleans()) and channels > 1
        return make.conv(
            (draw(st.integers(1, 2)), side, draw(st.integers(3, 13)), channels),
            channels if depthwise else draw(size),
            draw(st.integers(1, 3)),
            stride=draw(st.integers(1, 2)),
            pad=draw(st.integers(0, 1)),
            group=channels if depthwise else 1,
            bias=draw(st.booleans()),
        )
    if kind == "pool":
        k = draw(st.integers(1, 3))
        image = (1, draw(st.integers(3, 13)), draw(st.integers(3, 13)), draw(size))
        return make.pool(image, kernel_shape=(k, k), strides=(draw(st.integers(1, 2)),) * 2)
    shape = (draw(st.integers(1, 5)), draw(size), draw(size))
    if kind == "softmax":
        return make.unary("Softmax", shape, axis=draw(st.sampled_from([1, 2])))
    if kind == "norm":
        return make.layer_norm(*shape)
    if kind == "sum":
        axes = draw(st.sampled_from([(0,), (1,), (2,), (0, 2), (0, 1, 2)]))
        return make.unary("ReduceSum", shape, axes=axes, keepdims=draw(st.integers(0, 1)))
    if kind == "transpose":
        perm = draw(st.permutations(range(3)))
        return make.unary("Transpose", shape, draw(st.sampled_from(["float32", "float64"])), perm=tuple(perm))
    return make.residual_add(*shape)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(random_workloads(), st.integers(0, 2**31), st.sampled_from([make.AVX2, make.AVX512]))
def test_any_configuration_of_any_shape_lowers(workload: Workload, seed: int, target: Target) -> None:
    space = spaces.space_for(workload, target)
    for config in space.random(np.random.default_rng(seed), 2):
        program = workload.program()
        schedule = space.apply(program, config)
        kernels = lower_schedule(schedule, program.args, constants=program.constants).kernels
        assert any(not kernel.hoisted for kernel in kernels)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(random_workloads(), st.integers(0, 2**31))
def test_any_configuration_of_any_shape_computes_the_reference(workload: Workload, seed: int) -> None:
    space = spaces.space_for(workload, make.host())
    for config in space.random(np.random.default_rng(seed), 1):
        check_numerics(space, config)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.tuples(st.integers(1, 2), st.integers(2, 19), st.integers(2, 35), st.integers(1, 20)),
    st.integers(1, 70),
    st.sampled_from([2, 4, 6]),
    st.tuples(*[st.integers(1, 2)] * 4),
    st.integers(0, 2**31),
)
def test_winograds_steps_in_one_dispatch_compute_the_reference_of_any_shape(
    image: tuple[int, int, int, int], channels: int, tile: int, pads: tuple[int, ...], seed: int
) -> None:
    space = spaces.space_for(
        make.winograd_blocks(image, channels, tile, pads, tail=seed % 2 == 0), make.host()
    )
    for config in space.random(np.random.default_rng(seed), 1):
        ((computed, expected),) = zip(*make.run(space, config), strict=True)
        assert np.abs(computed - expected).max() <= 1e-5 * np.abs(expected).max(), config


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(1, 5), max_size=2), st.integers(1, 9), st.integers(1, 300), st.integers(0, 2**31))
def test_strassens_sums_compute_the_reference_of_any_shape(
    lead: list[int], rows: int, columns: int, seed: int
) -> None:
    whole = make.unary("StrassenInput", (*lead, 2 * rows, 2 * columns))
    for workload in (whole, make.strassen_output((*lead, rows, columns))):
        space = spaces.space_for(workload, make.host())
        for config in space.random(np.random.default_rng(seed), 1):
            check_numerics(space, config)


@pytest.mark.parametrize("block", [0, 5])
def test_masked_rows_and_blocks_of_attention_equal_the_separate_operators(block: int) -> None:
    workload = make.attention((2, 9, 8), 13, 6, (9, 13), block=block)
    q, k, v, mask = workload.random_inputs(0)
    mask[0, :6] = mask[1, 7:] = mask[2] = -np.inf  # a block, the last blocks, a whole row
    scores = np.matmul(q, k.swapaxes(1, 2)) / np.sqrt(np.float32(8)) + mask
    with np.errstate(invalid="ignore"):
        exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    expected = np.matmul(exps / exps.sum(axis=-1, keepdims=True), v)
    assert np.isnan(expected[:, 2]).all()
    assert np.isfinite(np.delete(expected, 2, axis=1)).all()
    space = spaces.space_for(workload, make.host())
    for config in (analytic.default_config(space), *space.random(np.random.default_rng(0), 2)):
        (computed,) = make.run_on(space, config, [q, k, v, mask])
        np.testing.assert_allclose(computed, expected, rtol=1e-4, atol=1e-5, err_msg=str(config))


@pytest.mark.parametrize("name", ["attention", "matmul", "conv", "softmax", "add"])
def test_the_trace_of_a_schedule_replays_on_a_fresh_program(name: str) -> None:
    workload = FIXED[name]()
    space = spaces.space_for(workload, make.AVX2)
    schedule = space.schedule(analytic.default_config(space))
    fresh = te.create_schedule([t.op for t in workload.program().outputs])
    Trace.from_json(schedule.trace.to_json()).apply(fresh)
    assert fresh.trace.key == schedule.trace.key


def test_equal_configurations_give_equal_traces_and_others_do_not() -> None:
    space = spaces.space_for(FIXED["conv"](), make.AVX2)
    configs = space.random(np.random.default_rng(0), 12)
    keys = [space.schedule(config).trace.key for config in configs]
    assert keys == [space.schedule(config).trace.key for config in configs]
    assert len(set(keys)) == len(configs)


def test_wide_and_narrow_targets_get_tiles_of_their_own() -> None:
    workload = make.matmul(64, 64, 64)
    narrow, wide = (spaces.space_for(workload, target) for target in (make.AVX2, make.AVX512))
    for space in (narrow, wide):
        tile = space.enumerate().columns()
        used = tile["rows"] * tile["vectors"] + tile["vectors"] + 1
        assert used.max() <= space.target.registers
    assert narrow.key != wide.key


def test_packing_is_offered_where_the_weights_allow_it() -> None:
    assert "pack" in spaces.space_for(make.matmul(8, 8, 32), make.AVX2).names
    assert "pack" not in spaces.space_for(FIXED["depthwise"](), make.AVX2).names
    assert "stage" in spaces.space_for(FIXED["conv"](), make.AVX2).names
    assert "stage" not in spaces.space_for(FIXED["conv_1x1"](), make.AVX2).names


def test_an_illegal_configuration_is_refused_with_the_reason() -> None:
    space = spaces.space_for(make.matmul(64, 64, 64), make.AVX2)
    with pytest.raises(KnobError, match=r"'registers' .*the accumulators would spill"):
        space.schedule(space.default() | {"rows": 14, "vectors": 4})


@pytest.mark.parametrize("axis", [0, 1])
def test_the_first_of_equal_largest_elements_wins(axis: int) -> None:
    """Vectors of partial results meet elements of a row out of order."""
    space = spaces.space_for(make.unary("ArgMax", (70, 83), axis=axis, keepdims=0), make.host())
    x = np.random.default_rng(0).integers(0, 3, (70, 83)).astype(np.float32)
    for config in (analytic.default_config(space), *space.random(np.random.default_rng(0), 3)):
        got = make.run_on(space, config, [x])
        np.testing.assert_array_equal(got[0].reshape(-1), x.argmax(axis), err_msg=str(config))


def test_every_kind_has_a_space_and_a_workload_here() -> None:
    registered = {**spaces.TILED, **spaces.PLAIN}
    assert sorted(registered) == sorted(get_args(WorkloadKind))
    assert {make_one().kind for make_one in FIXED.values()} == set(get_args(WorkloadKind))


def test_a_space_is_made_once_for_each_set_of_library_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    workload, target = make.matmul(64, 64, 64), make.host()
    space = spaces.space_for(workload, target)
    assert spaces.space_for(make.matmul(64, 64, 64), target) is space
    monkeypatch.setitem(registry._REGISTERED, ("mine", "float32"), registry.kernel("blas", "float32"))
    assert spaces.space_for(workload, target).key != space.key
    monkeypatch.undo()
    assert spaces.space_for(workload, target) is space
