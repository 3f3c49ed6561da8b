"""Features and the analytic model: finite, deterministic, the same alone as in a crowd."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cost_models import analytic, features
from search_spaces.space import Space
from search_spaces.spaces import space_for
from tests.search_spaces import workloads as make

WORKLOADS = {
    "attention": lambda: make.attention((2, 24, 16), 40, 16),
    "contraction": lambda: make.matmul(96, 64, 128),
    "convolution": lambda: make.conv((1, 14, 14, 32), 48, 3, pad=1),
    "depthwise": lambda: make.conv((1, 14, 14, 32), 32, 3, pad=1, group=32),
    "pool": lambda: make.pool((1, 13, 13, 24), kernel_shape=(3, 3), strides=(2, 2)),
    "reduction": lambda: make.unary("ReduceMean", (16, 96), axes=(1,)),
    "softmax": lambda: make.unary("Softmax", (4, 8, 64)),
    "normalization": lambda: make.layer_norm(8, 96),
    "winograd": lambda: make.winograd_output((1, 14, 14, 32), 4),
    "strassen": lambda: make.strassen_output((16, 96)),
    "elementwise": lambda: make.residual_add(1, 14, 14, 64),
}


@pytest.fixture(params=WORKLOADS)
def space(request: pytest.FixtureRequest) -> Space:
    return space_for(WORKLOADS[request.param](), make.AVX2)


def test_features_are_finite_named_and_deterministic(space: Space) -> None:
    population = space.population(np.random.default_rng(0), 300)
    x = features.extract(space, population)
    assert x.shape == (len(population), len(features.names()))
    assert x.dtype == np.float32
    assert np.isfinite(x).all()
    np.testing.assert_array_equal(x, features.extract(space, population.configs()))
    assert len(set(features.names())) == len(features.names())


@pytest.mark.parametrize("family", ["contraction", "convolution", "softmax"])
def test_features_by_name(family: str, golden: Callable[[str], None]) -> None:
    """The knobs' defaults beside the analytic model's pick and a random candidate."""
    space = space_for(WORKLOADS[family](), make.AVX2)
    (random,) = space.random(np.random.default_rng(0), 1)
    x = features.extract(space, [space.default(), analytic.default_config(space), random])
    rows = zip(features.names(), x.T.tolist(), strict=True)
    golden("\n".join(f"{name:20}" + "".join(f"{value:12.4g}" for value in values) for name, values in rows))


def test_families_are_told_apart_by_what_they_compute() -> None:
    columns = [
        features.names().index(name) for name in ("stages", "reductions", "log_reduced", "window_dims")
    ]
    found = set()
    for make_one in WORKLOADS.values():
        space = space_for(make_one(), make.AVX2)
        (row,) = features.extract(space, [space.default()])
        found.add(tuple(row[columns]))
    assert len(found) == len(WORKLOADS)


def test_products_of_each_precision_are_told_apart() -> None:
    workloads = [make.typed_matmul(dtype) for dtype in ("float32", "float16", "int8")]
    workloads.append(make.stored_matmul("bfloat16", 9, 17, 33))
    column = features.names().index("item_bytes")
    found = [
        features.extract(space, [space.default()])[0][column]
        for space in (space_for(workload, make.AVX2) for workload in workloads)
    ]
    assert found == [4.0, 2.0, 1.0, 3.0]


def test_a_candidate_has_the_same_features_in_any_company(space: Space) -> None:
    population = space.population(np.random.default_rng(1), 50)
    x = features.extract(space, population)
    for row in (0, len(population) // 2, len(population) - 1):
        alone = features.extract(space, [population.config(row)])
        np.testing.assert_allclose(alone[0], x[row], rtol=1e-6)


def test_predictions_are_positive_and_agree_with_their_feature(space: Space) -> None:
    population = space.population(np.random.default_rng(2), 200)
    seconds = analytic.predict(space, population)
    assert (seconds > 0).all()
    x = features.extract(space, population)
    logged = x[:, features.names().index("log_total")]
    np.testing.assert_allclose(logged, np.log2(seconds), rtol=1e-5)


def test_the_default_is_legal_deterministic_and_no_worse_than_a_sample(space: Space) -> None:
    config = analytic.default_config(space)
    assert space.check(config) == config
    assert analytic.default_config(space_for(space.workload, space.target)) == config
    sampled = analytic.predict(space, space.population(np.random.default_rng(3), 500))
    assert analytic.predict(space, [config])[0] <= sampled.min() * 1.0001


def test_more_threads_want_more_tiles() -> None:
    workload = make.matmul(512, 64, 512)
    for threads in (2, 16):
        space = space_for(workload, make.AVX2.with_threads(threads))
        config = analytic.default_config(space)
        ((_, nest),) = space.loop_nests(space.of([config]))
        assert nest.tiles[0] >= threads


def test_a_register_tile_beats_one_row_and_a_gather() -> None:
    space = space_for(make.gemm(240, 64, 256), make.AVX2)
    plain = space.default() | {"rows": 6, "vectors": 2, "pack": True, "row_block": 1, "unroll": 1}
    slower = [plain | {"rows": 1}, plain | {"pack": False}]
    good, *bad = analytic.predict(space, [plain, *slower])
    assert all(good < 0.7 * seconds for seconds in bad)
