"""The least time of a dispatch: peaks by dtype and level of memory."""

from __future__ import annotations

import pytest

from autotune.profiling.roofline import Roofs, roofs_of
from autotune.profiling.traffic import MemoryTraffic
from autotune.target import Target

NOTHING = MemoryTraffic(0, 0, 0)


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_MACHINE", "table")


@pytest.mark.parametrize(
    ("level", "dtype", "ratio"),
    [
        ("x86-64-v3", "float64", 0.5),
        ("x86-64-v3", "bfloat16", 1),
        ("x86-64-v3", "int8", 4),
        ("x86-64-v3", "", 1),
        ("x86-64-v4-vnni", "uint8", 4),
        ("x86-64-v4-bf16", "bfloat16", 1),  # a Xeon's rate, unless calibrated
        ("x86-64-v4-bf16", "float16", 1),
        ("x86-64-v4-amx", "bfloat16", 16),
        ("x86-64-v4-amx", "uint8", 32),
    ],
)
def test_peaks_are_in_proportion_to_the_lanes_of_a_dtype(level: str, dtype: str, ratio: float) -> None:
    roofs = Roofs(Target.parse(level))
    assert roofs.flops(dtype) == ratio * roofs.flops("float32")


def test_rates_grow_with_workers_but_memory_is_shared() -> None:
    one, many = (Roofs(Target.parse("x86-64-v3", threads=threads)) for threads in (1, 16))
    assert many.flops("float32") == 16 * one.flops("float32")
    assert (many.l2, many.l3) == (16 * one.l2, 16 * one.l3)
    assert one.memory < many.memory < 16 * one.memory
    assert not one.calibrated


def test_the_highest_time_is_the_bound() -> None:
    roofs = Roofs(Target.parse("x86-64-v3", threads=2))
    flops = int(roofs.flops("float32"))
    assert roofs.of(flops, "float32", NOTHING) == ("arithmetic", pytest.approx(1e9))
    assert roofs.of(0, "float32", MemoryTraffic(int(roofs.l2), 0, 0)) == ("L2", pytest.approx(1e9))
    nbytes = int(roofs.l2)
    assert roofs.of(flops // 2, "float32", MemoryTraffic(nbytes, nbytes, 0)).bound == "L3"
    assert roofs.of(flops // 2, "float32", MemoryTraffic(nbytes, nbytes, nbytes)).bound == "memory"
    assert roofs.of(0, "", NOTHING).least_ns == 0.0


def test_nobody_knows_the_rates_of_a_device_of_groups() -> None:
    assert roofs_of(Target.parse("opencl-generic")) is None
    assert roofs_of(None) is None
