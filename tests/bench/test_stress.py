"""Random graphs of dispatches on several devices; `autotune bench stress` runs more of them."""

from __future__ import annotations

import pytest

from autotune.bench.stress import stress
from autotune.runtime.hal.cpu.segment import Segment


@pytest.mark.parametrize(("devices", "clients"), [(1, 1), (3, 3)])
def test_every_tile_runs_once_and_in_order(devices: int, clients: int) -> None:
    totals = stress(50_000, seed=devices, devices=devices, clients=clients).totals
    assert totals.problems == []
    assert totals.tiles >= 50_000


def test_tiles_that_run_twice_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Segment.run

    def twice(self: Segment, *arguments: object) -> None:
        run(self, *arguments)  # type: ignore[arg-type]
        run(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Segment, "run", twice)
    problems = stress(1, devices=1, clients=1).totals.problems
    assert any("has wrong values" in problem for problem in problems)
