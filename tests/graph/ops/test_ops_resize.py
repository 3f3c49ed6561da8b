"""Images of another size: maps in their least numbers, axes in any order, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.graph import ops
from autotune.graph.ir import TensorType
from tests.graph.ops.op_checks import check, normal, refusal, stages

X = TensorType((2, 3, 4), "float32")


def resize(**attrs: object) -> dict[str, object]:
    return ops.get("Resize").canonical([X], attrs)  # type: ignore[arg-type]


def test_twice_the_size_is_a_quotient_by_two() -> None:
    # Half pixels, halves rounded down: floor((2 (2i - 1) / 4 + 3) / 2) = i // 2.
    found = resize(axes=(-1,), size=(8,), starts=(1,), steps=(4,), units=(8,))
    assert found == {"axes": (2,), "size": (8,), "starts": (0,), "steps": (1,), "units": (2,)}


def test_axes_are_sorted_with_their_numbers_and_copies_left_out() -> None:
    found = resize(axes=(2, 0, 1), size=(8, 4, 3), starts=(0, 1, 0), steps=(1, 2, 5), units=(2, 4, 5))
    assert found == {"axes": (0, 2), "size": (4, 8), "starts": (0, 0), "steps": (1, 1), "units": (2, 2)}
    (definition, same) = (
        ops.get("Resize"),
        resize(axes=(1,), size=(3,), starts=(0,), steps=(1,), units=(1,)),
    )
    assert definition.is_copy([X], same)
    assert not definition.is_copy([X], found)


def test_rules_agree_on_random_maps() -> None:
    rng = np.random.default_rng(3)
    for _ in range(12):
        count = int(rng.integers(1, 3))
        attrs = {
            "axes": tuple(rng.permutation(3)[:count].tolist()),
            "size": tuple(rng.integers(0, 9, count).tolist()),
            "starts": tuple(rng.integers(-9, 9, count).tolist()),
            "steps": tuple(rng.integers(-5, 9, count).tolist()),
            "units": tuple(rng.integers(1, 9, count).tolist()),
        }
        check("Resize", normal(2, 3, 4), **attrs)
        check("Interpolate", normal(2, 3, 4), mode=str(rng.choice(["linear", "cubic"])), **attrs)
    check("Interpolate", normal(2, 3, 4).astype("float16"), **attrs)
    assert stages("Resize", normal(2, 3, 4), **attrs) == ["out"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"axes": (3,)}, "axis 3 is out of range for rank 3"),
        (
            {"size": (8, 8)},
            "Resize: axes (2,), size (8, 8), starts (0,), steps (1,), units (2,); it takes one number of each for an "
            "axis, and an axis once",
        ),
        ({"units": (0,)}, "Resize: axis 2 of (2, 3, 4) to 8 elements in units of 1 / 0"),
    ],
)
def test_messages(change: dict[str, object], message: str) -> None:
    attrs = {"axes": (2,), "size": (8,), "starts": (0,), "steps": (1,), "units": (2,), **change}
    assert refusal("Resize", normal(2, 3, 4), **attrs) == message


def test_integers_are_not_blended() -> None:
    attrs = {"axes": (0,), "size": (8,), "starts": (0,), "steps": (1,), "units": (2,)}
    assert refusal("Interpolate", np.arange(3), **attrs) == "Interpolate needs one floating dtype, got int64"
