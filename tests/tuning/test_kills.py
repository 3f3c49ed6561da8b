"""kill -9 at random moments of a real job: nothing is lost or doubled, and the next session goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.product import write_product
from tests.tuning.kills import KilledJob, Moment, compares, kill_often, random_moments

SEVERAL = "zoo:tiny_cnn", "zoo:mlp"


def test_a_job_of_several_models_that_is_killed_as_it_starts_and_compares_loses_nothing_and_ends(
    tmp_path: Path,
) -> None:
    models = tuple(write_product(tmp_path / f"rows{rows}.onnx", rows) for rows in (8, 5))
    moments = [Moment("start", 2.0), compares(0.5)]
    kill_often(KilledJob(tmp_path, models), moments, print, last=4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("models", "kills"), [(("zoo:tiny_cnn",), 4), (SEVERAL, 4), (("zoo:squeezenet",), 30)]
)
def test_a_job_that_is_killed_again_and_again_at_any_moment_loses_nothing_and_ends(
    tmp_path: Path, models: tuple[str, ...], kills: int
) -> None:
    kill_often(KilledJob(tmp_path, models), random_moments(kills), print)
