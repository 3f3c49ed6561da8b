"""kill -9 at random moments of a real job: nothing is lost or doubled, and the next session goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tuning.kills import KilledJob, kill_often


@pytest.mark.parametrize(
    ("models", "kills"),
    [
        (("zoo:tiny_cnn",), 2),
        (("zoo:tiny_cnn", "zoo:mlp"), 2),
        pytest.param(("zoo:squeezenet",), 30, marks=pytest.mark.slow),
    ],
)
def test_a_job_that_is_killed_again_and_again_loses_nothing_and_ends(
    tmp_path: Path, models: tuple[str, ...], kills: int
) -> None:
    kill_often(KilledJob(tmp_path, models), kills, 0, print)
