"""Jobs of shape buckets: what their budgets are, and what the same call does after they have come to their end."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from autotune.compiler.dynamic.buckets import Bucket
from autotune.tuning.jobs.budget import Budget
from autotune.tuning.jobs.tune_sizes import _Clock, _divided, tune_for_sizes
from tests.compiler.test_sizes import images


def test_each_bucket_gets_its_part_of_what_is_left() -> None:
    made = [cast("Bucket", SimpleNamespace(sizes={"n": n})) for n in (1, 2, 3)]
    clock, parts = _Clock(time.monotonic()), []
    for bucket, share, part in _divided(made, [1.0, 0.0, 3.0], Budget("100m", 40), clock):
        parts.append((bucket.sizes["n"], share, part and (part.trials, part.requested)))
        if part is not None and part.limit_s is not None:
            assert part.limit_s == pytest.approx(share * 6000, rel=0.01)
            clock.used_s_at_least(clock.used_s + part.limit_s)
    assert parts == [
        (3, 0.75, (30, "40 trials or 1h40m")),
        (1, 0.25, (10, "40 trials or 1h40m")),
        (2, 0.0, None),
    ]


@pytest.mark.usefixtures("shared_pools")
def test_buckets_whose_jobs_are_done_show_their_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless a new job is asked for, or the budget is another; then default schedules are chosen."""
    model = tmp_path / "open.onnx"
    model.write_bytes(images().SerializeToString())
    asked: dict[str, Any] = {"sizes": {"n": "1..3:1,3"}, "quiet": True, "time_model": False}
    asked |= {"database": str(tmp_path / "tuning.db"), "threads": 1}
    first = tune_for_sizes(str(model), budget=Budget(trials=4), again=False, **asked)
    assert len(first) == 2
    assert all(each.report is not None for each in first)

    def chosen(*rest: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr("autotune.tuning.jobs.model.tuned_model", chosen)
    second = tune_for_sizes(str(model), budget=Budget(trials=4), again=False, **asked)
    assert {each.label: each.report for each in second} == {each.label: each.report for each in first}
    for trials, again in ((4, True), (5, False)):
        with pytest.raises(AssertionError):
            tune_for_sizes(str(model), budget=Budget(trials=trials), again=again, **asked)
