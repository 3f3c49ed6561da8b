"""Chains of Reshape and Transpose in their shortest form."""

import math
import random

import numpy as np
import pytest

from autotune.passes.canonical.rearrange import fewest


def moved(array, steps):
    for op, argument in steps:
        array = array.reshape(argument) if op == "Reshape" else array.transpose(argument)
    return array


@pytest.mark.parametrize(
    ("shape", "chain", "expected"),
    [
        ((2, 3), [("Transpose", (1, 0)), ("Transpose", (1, 0))], ()),
        ((1, 24, 4, 16), [("Transpose", (0, 2, 1, 3))], (("Transpose", (0, 2, 1, 3)),)),
        ((2, 12), [("Reshape", (2, 3, 4)), ("Reshape", (6, 4))], (("Reshape", (6, 4)),)),
        (
            (2, 3, 4, 5),
            [("Reshape", (6, 4, 5)), ("Transpose", (0, 2, 1)), ("Reshape", (2, 3, 5, 4))],
            (("Transpose", (0, 1, 3, 2)),),
        ),
        (
            (1, 2, 4, 24, 16),
            [
                ("Reshape", (8, 24, 16)),
                ("Transpose", (0, 2, 1)),
                ("Reshape", (1, 8, 16, 24)),
                ("Transpose", (0, 1, 3, 2)),
            ],
            (("Reshape", (1, 8, 24, 16)),),
        ),
        (
            (6, 4),
            [("Reshape", (2, 3, 4)), ("Transpose", (1, 0, 2)), ("Reshape", (6, 4))],
            (("Reshape", (2, 3, 4)), ("Transpose", (1, 0, 2)), ("Reshape", (6, 4))),
        ),
        ((4, 1, 6), [("Transpose", (1, 0, 2)), ("Reshape", (24,))], (("Reshape", (24,)),)),
        ((6, 10), [("Transpose", (1, 0)), ("Reshape", (4, 15))], None),
        ((0, 3), [("Transpose", (1, 0))], None),
    ],
)
def test_chains(shape, chain, expected):
    assert fewest(shape, chain) == expected


@pytest.mark.parametrize("seed", range(8))
def test_any_chain(seed):
    rng = random.Random(seed)
    for _ in range(150):
        shape = tuple(rng.choice((1, 2, 3, 4, 6)) for _ in range(rng.randint(1, 5)))
        array, chain = np.arange(math.prod(shape)).reshape(shape), []
        want = array
        for _ in range(rng.randint(1, 6)):
            if rng.random() < 0.5:
                step = ("Transpose", tuple(rng.sample(range(want.ndim), want.ndim)))
            else:
                step = ("Reshape", any_shape(rng, want.size))
            chain.append(step)
            want = moved(want, [step])
        steps = fewest(shape, chain)
        if steps is not None:
            assert len(steps) <= 3
            np.testing.assert_array_equal(moved(array, steps), want)


def any_shape(rng, size):
    shape = []
    while size > 1:
        extent = rng.choice([d for d in range(1, size + 1) if size % d == 0])
        shape.append(extent)
        size //= extent
    return (*shape, *rng.choice(((), (1,))))
