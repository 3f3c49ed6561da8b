"""The time of copies to a device, and memory that is used in place."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from autotune.bench.experiment import Record, frame_of
from autotune.errors import UsageError
from autotune.opencl import devices
from autotune.runtime.hal.opencl.shared import shares_memory
from results.bench import transfers
from results.bench.transfers import COPIES, IN_PLACE, beside
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
    assert [record["way"] for record in found] == [COPIES, IN_PLACE]
    moved = found[0]["moved_bytes"]
    assert moved > 0
    assert 0 <= found[0]["beside"] <= 1
    frame = frame_of([*transfers.move(lambda _: None), *found])
    rates, models = transfers.EXPERIMENT.tables(frame)
    assert rates.rows[0][0] == "4 KiB"
    assert models.rows[0][:2] == ("zoo:tiny_cnn", f"{moved / 1024:.0f} KiB")


def test_the_tables_compare_in_place_with_copies() -> None:
    about = {"model": "m", "moved_bytes": 2048, "beside": 0.25}
    names = ("in_ns", "out_ns", "pinned_in_ns", "pinned_out_ns", "place_ns")
    records: list[Record] = [
        {"bytes": 1 << 20, **dict(zip(names, (1e5, 2e5, 5e4, 1e5, 1e3), strict=True))},
        {**about, "way": COPIES, "run_ns": 200.0, "period_ns": 300.0},
        {**about, "way": IN_PLACE, "run_ns": 100.0, "period_ns": 150.0},
    ]
    rates, models = transfers.EXPERIMENT.tables(frame_of(records))
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
        list(transfers.move(lambda _: None))
