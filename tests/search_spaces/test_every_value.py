"""Every value of every knob computes what NumPy does."""

from __future__ import annotations

import numpy as np
import pytest

from search_spaces import spaces
from tests.search_spaces import workloads as make
from tests.search_spaces.every_value import LEVELS, WORKLOADS, campaign, covering, targets

SHORT = ("attention_prime", "conv_stem", "depthwise", "layer_norm", "matmul_blas", "max_pool", "reduce_rows")
SHORT += ("softmax_prime", "transpose", "winograd_input", "winograd_blocks")
"""One of each family."""


def test_configurations_cover_all_values_that_are_legal() -> None:
    space = spaces.space_for(make.matmul(37, 50, 23), make.AVX512)
    configs, unreached = covering(space, 0)
    for knob in space.knobs:
        missing = {f"{knob.name}={value!r}" for value in knob.values} & {*unreached}
        found = {config[knob.name] for config in configs}
        assert len(found) + len(missing) == len(knob.values)
    assert len(configs) < sum(len(knob.values) for knob in space.knobs)
    every = space.enumerate().columns()
    for text in unreached:
        name, _, value = text.partition("=")
        assert not np.isin(int(value), every[name])


@pytest.mark.parametrize("name", SHORT)
def test_every_value_of_a_family_on_the_host(name: str) -> None:
    tally = campaign(name, make.host(), seed=0)
    assert tally.configurations
    assert not tally.failures, "\n".join(tally.failures)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(WORKLOADS))
@pytest.mark.parametrize("target", targets(LEVELS))
def test_every_value_on_every_target(name: str, target: str) -> None:
    tally = campaign(name, targets(LEVELS)[target], seed=0, together=True)
    assert not tally.failures, "\n".join(tally.failures)
