"""The cache in which a dispatch of a model finds its data."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.target import Target
from cost_models.between import Distant, TouchedBytes, distant, in_place
from cost_models.known_error import LEVEL, KnownError, of_machine, of_sum
from cost_models.known_error import MACHINE as MACHINE_ERROR
from cost_models.machine import Machine

MIB = 1 << 20
MACHINE = replace(Machine(), l2_whole=float(MIB), l3_whole=16.0 * MIB, threads=1)


def chain(nbytes: int, weights: int = 0) -> list[TouchedBytes]:
    """Three dispatches, each of which reads what the one before writes, and weights of its own."""
    return [TouchedBytes({f"v{n}": nbytes, f"w{n}": weights}, {f"v{n + 1}": nbytes}) for n in range(3)]


def test_a_model_that_fits_a_cache_has_nothing_further_away() -> None:
    assert distant(chain(MIB // 8, MIB // 8), MACHINE) == [Distant(0.0, 0.0)] * 3


def test_results_of_the_dispatch_before_are_warm_and_weights_are_not() -> None:
    """Values of 64 KiB and weights of 12 MiB: each weight is read again after 36 MiB."""
    for moved in distant(chain(MIB // 16, 12 * MIB), MACHINE):
        assert moved.memory == pytest.approx(12 * MIB * (1.5 - 1.5 * 16 / 36), rel=0.02)


def test_what_a_dispatch_loses_by_itself_is_not_counted_again() -> None:
    assert distant([TouchedBytes({"v": 64 * MIB}, {"y": 64 * MIB})], MACHINE) == [Distant(0.0, 0.0)]


def test_data_from_memory_hides_behind_longer_work() -> None:
    moved = Distant(0.0, 1e6)
    added = in_place(1.0, moved, MACHINE) - 1.0
    assert added == pytest.approx(MACHINE.exposed * 1e6 / MACHINE.core_stream / MACHINE.hertz)


def test_errors_of_one_workload_add_up_and_those_of_several_level_out() -> None:
    alike = of_sum([("a", 1.0, 0.3), ("a", 1.0, 0.3)], 0.1)
    mixed = of_sum([("a", 1.0, 0.3), ("b", 1.0, 0.3)], 0.1)
    assert alike > mixed > of_sum([("a", 1.0, 0.0)], 0.1) == pytest.approx(0.1)
    assert KnownError(2.0, 0.0).interval(5.0) == (5.0, 5.0)


def test_little_is_known_of_a_processor_by_its_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_MACHINE", "table")
    level = Target.parse("x86-64-v3")
    assert of_machine(level) == LEVEL
    assert of_machine(replace(level, cpu="znver4")) == MACHINE_ERROR
