"""The measure of errors, and that our functions are within theirs."""

from __future__ import annotations

import numpy as np
import pytest

from results.bench import functions


@pytest.mark.parametrize("dtype", functions.DTYPES)
@pytest.mark.parametrize("name", functions.FUNCTIONS)
def test_every_function_is_measured(name: str, dtype: str) -> None:
    if dtype == "float64" and np.finfo(np.longdouble).nmant < 63:
        pytest.skip("float64 needs a wider type to compare with")
    found = functions.accuracy(name, dtype, 2000, lanes=8)
    assert found.count >= 2000
    assert found.ulp < 4
    assert found.wrong_specials == 0
    assert found.specials > 50


def test_errors_are_counted_in_units_in_the_last_place() -> None:
    exact = np.array([1.0, 2.0, np.inf, 0.0, np.nan, 1e300])
    got = np.array([1, 2, np.inf, 0, np.nan, np.inf], np.float32)
    assert functions.ulp_errors(got, exact) == (0.0, 0)
    got[0] = np.nextafter(np.float32(1), np.float32(2))
    assert functions.ulp_errors(got, exact) == (1.0, 0)
    got[2], got[3], got[4] = 1.0, -0.0, 0.0
    assert functions.ulp_errors(got, exact) == (1.0, 3)


def test_speed_is_measured_beside_numpy() -> None:
    found = functions.speed("sigmoid", "float32", 8, rounds=1)
    assert found.ours_ns > 0
    assert found.numpy_ns > 0
    assert found.expression == "1 / (1 + exp(-x))"


def test_evaluation_pads_to_whole_vectors() -> None:
    x = np.linspace(0.5, 2.0, 11, dtype=np.float32)
    y = np.full_like(x, 2.0)
    np.testing.assert_allclose(functions.evaluate("pow", 8, x, y), x * x, rtol=1e-6)
