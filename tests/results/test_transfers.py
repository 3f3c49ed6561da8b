"""What copies to a device take, and memory that is used in place."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from autotune.errors import UsageError
from autotune.opencl import devices
from autotune.runtime.hal.opencl.shared import shares_memory
from results.bench import transfers
from results.bench.transfers import Mixed, Moved, beside
from tests.codegen.opencl_device import needs_opencl


def step(image: object, *spans: tuple[int, int]) -> SimpleNamespace:
    begin, end = np.array(spans).T
    return SimpleNamespace(image=image, begin_ns=begin, end_ns=end)


def test_copies_beside_kernels_are_counted_once() -> None:
    kernels = [step("a", (0, 100), (300, 400)), step("b", (50, 150))]
    copies = [step(None, (90, 190), (200, 300)), step(None, (0, 20))]
    assert beside(SimpleNamespace(steps=[*kernels, *copies])) == pytest.approx((60 + 0 + 20) / 220)  # type: ignore[arg-type]
    assert beside(SimpleNamespace(steps=kernels)) == 0.0  # type: ignore[arg-type]


@needs_opencl
def test_a_model_runs_both_ways_with_the_same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    if not (devices() and shares_memory(0)):
        pytest.skip("this device copies what buffers are made over")
    monkeypatch.setattr(transfers, "SIZES", (4096,))
    monkeypatch.setattr(transfers, "_TURNS", 3)
    monkeypatch.setattr(transfers, "_TURN_S", 1e-3)
    found = transfers.mixed("zoo:tiny_cnn", {"Conv": "opencl:0", "*": "cpu:0"}, 1)
    assert found.moved_bytes > 0
    assert 0 <= found.beside <= 1
    rates, models = transfers.tables(transfers.move(lambda _: None), [found])
    assert rates.rows[0][0] == "4 KiB"
    assert models.rows[0][:2] == ("zoo:tiny_cnn", f"{found.moved_bytes / 1024:.0f} KiB")


def test_the_tables_compare_in_place_with_copies() -> None:
    made = Mixed(
        "m", 2048, {True: [200.0, 210.0, 190.0], False: [100.0]}, {True: [300.0], False: [150.0]}, 0.25
    )
    rates, models = transfers.tables([Moved(1 << 20, 1e5, 2e5, 5e4, 1e5, 1e3)], [made])
    assert rates.rows == (
        (
            "1024 KiB",
            "100 µs, 10.5 GB/s",
            "200 µs, 5.2 GB/s",
            "50.0 µs, 21.0 GB/s",
            "100 µs, 10.5 GB/s",
            "1.00 µs",
        ),
    )
    assert (models.rows[0][4], models.rows[0][7], models.rows[0][8]) == ("0.50", "0.50", "25%")
    assert models.rows[0][1] == "2 KiB"


def test_without_such_a_device_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.opencl.devices", lambda: ())
    with pytest.raises(
        UsageError, match="on an OpenCL device that shares this process's memory, such as PoCL's"
    ):
        transfers.move(lambda _: None)
