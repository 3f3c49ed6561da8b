"""Profiles of made-up recordings, of which every figure is known, and of a real model."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import autotune
from autotune.errors import InputError, UsageError
from autotune.profiling.profile import profile_of
from autotune.profiling.roofline import Roofs
from autotune.profiling.trace_events import trace_of
from autotune.runtime.cpu import layout
from autotune.runtime.hal.cpu.cores import core_ids
from autotune.runtime.hal.opencl.engine import _spans
from autotune.runtime.module import Module
from cost_models.machine import Machine
from tests.codegen.opencl_device import needs_opencl
from tests.profiling.made_up import TARGET, on_cpu, on_two_devices


class MadeUp(Roofs):
    """100 GFLOP/s; 40, 20 and 10 GB/s."""

    machine = Machine(
        hertz=1e9,
        arithmetic_ports=3.125,
        l2_bytes_per_cycle=20.0,
        l3_bytes_per_cycle=10.0,
        core_stream=5.0,
        all_streams=10.0,
        threads=2,
        l2_whole=4096.0,
        l3=12_288.0,
        l3_whole=12_288.0,
    )
    calibrated = True


ROOFS = MadeUp(TARGET)


def test_a_profile_of_one_device_in_full() -> None:
    assert str(profile_of(on_cpu(), {"cpu": ROOFS})).splitlines() == [
        "profile of made_up: median 10.0 µs of 2 runs",
        "cpu with 2 workers: at most 100.0 GFLOP/s in float32; L2 40.0, L3 20.0, memory 10.0 GB/s, as calibrated",
        "  share    time  GFLOP/s  GB/s  of roof  bound       busy  idle  stolen  dispatch                nodes",
        "  80.0%  8.0 µs     50.0   1.4      50%  arithmetic   88%   12%  1 of 8  000_conv (convolution)  a, b, c "
        "and 1 more",
        "  10.0%  1.0 µs      0.0   8.2      41%  memory       50%   50%  0 of 1  001_relu (elementwise)  r",
        "  90.0%  9.0 µs  total",
        "  10.0%  1.0 µs  unaccounted: waking workers, and the call itself",
        "cpu worker 0: busy 80.0%, idle 20.0%; 4 tiles a run, 0 stolen; begins with 37.5% of the tiles",
        "cpu worker 1: busy 70.0%, idle 30.0%; 5 tiles a run, 1 stolen; begins with 62.5% of the tiles",
    ]


def test_a_device_that_tells_nothing_has_a_line_a_step() -> None:
    found = profile_of(on_two_devices(), {"cpu": ROOFS, "opencl:0": None})
    assert str(found).splitlines()[2:12] == [
        "opencl:0: its rates are not known",
        "  share     time  GFLOP/s  GB/s  of roof  bound       busy  idle  stolen  device    dispatch                  "
        "        nodes",
        "  40.0%   8.0 µs     50.0   1.4      50%  arithmetic   88%   12%  1 of 8  cpu       000_conv (convolution)    "
        "        a, b, c and 1 more",
        "  25.0%   5.0 µs     80.0   3.9        -  -              -     -       -  opencl:0  run y (convolution, "
        "elementwise)  a, b, c and 2 more",
        "  10.0%   2.0 µs      0.0   2.0        -  -              -     -       -  opencl:0  transfer t (transfer)",
        "   5.0%   1.0 µs      0.0   8.2      41%  memory       50%   50%  0 of 1  cpu       001_relu (elementwise)    "
        "        r",
        "  45.0%   9.0 µs  total on cpu",
        "  55.0%  11.0 µs  unaccounted on cpu: waiting for other devices, and queues",
        "  35.0%   7.0 µs  total on opencl:0",
        "  65.0%  13.0 µs  unaccounted on opencl:0: waiting for other devices, and queues",
    ]


def test_values_are_those_of_the_lines() -> None:
    found = profile_of(on_cpu(), {"cpu": ROOFS}).to_json()
    assert found == json.loads(json.dumps(found))
    first = found["dispatches"][0]
    assert {
        name: first[name] for name in ("time_ns", "share", "gflops", "least_ns", "bound", "busy", "idle")
    } == {
        "time_ns": 8000.0,
        "share": 0.8,
        "gflops": 50.0,
        "least_ns": pytest.approx(4000.0),
        "bound": "arithmetic",
        "busy": 0.875,
        "idle": 0.125,
    }
    assert (first["nodes"], first["tiles"], first["stolen"]) == ([*"abcd"], 8.0, 1.0)
    assert found["devices"][0]["rest_ns"] == 1000.0
    assert [each["idle"] for each in found["workers"]] == pytest.approx([0.2, 0.3])
    assert [each["share"] for each in found["workers"]] == [0.375, 0.625]


def test_the_time_is_the_median_of_the_runs() -> None:
    recording = on_cpu()
    (step,) = recording.steps
    assert step.events is not None
    events = np.concatenate([step.events, step.events[1:]])
    events[2, 2, 0, 1] += 100_000  # one relu that took a hundred times as long
    slow = replace(step, events=events, begin_ns=np.zeros(3, np.int64), end_ns=np.zeros(3, np.int64))
    found = profile_of(
        replace(recording, steps=(slow,), walls_ns=np.asarray([10_000, 10_000, 110_000])), {"cpu": ROOFS}
    )
    assert [each.time_ns for each in found.dispatches] == [8000.0, 1000.0]
    assert found.latency_ns == 10_000.0


@pytest.fixture(scope="module")
def module() -> Module:
    return autotune.compile("zoo:tiny_cnn", threads=min(2, len(core_ids())))


X = np.random.default_rng(0).standard_normal((1, 3, 16, 16)).astype(np.float32)


def test_a_real_model(module: Module) -> None:
    found = autotune.profile(module, [X], runs=5)
    assert sorted(each.name for each in found.dispatches) == sorted(each.name for each in module.dispatches)
    assert [each.time_ns for each in found.dispatches] == sorted(
        (each.time_ns for each in found.dispatches), reverse=True
    )
    (device,) = found.devices
    assert (device.name, device.threads, found.runs) == ("cpu", module.threads, 5)
    assert sum(each.time_ns for each in found.dispatches) == pytest.approx(device.time_ns)
    assert device.time_ns + device.rest_ns == pytest.approx(found.latency_ns)
    convolution = next(each for each in found.dispatches if "stem" in each.nodes)
    assert convolution.flops >= 2 * 8 * 27 * 64
    assert convolution.nbytes > X.nbytes
    for each in found.dispatches:
        assert each.tiles is not None
        assert each.tiles >= 1
        assert 0 < each.busy <= 1  # type: ignore[operator]
        assert each.least_ns is not None
        assert each.least_ns > 0
    assert len(found.workers) == module.threads


def test_an_artifact_has_what_a_profile_needs(module: Module, tmp_path) -> None:
    module.save(tmp_path / "tiny.atm")
    with autotune.load(tmp_path / "tiny.atm") as loaded:
        flops = {each.name: each.flops for each in autotune.profile(loaded, {"x": X}, runs=1).dispatches}
    assert flops == {each.name: each.flops for each in module.dispatches}
    assert max(flops.values()) > 0


def test_what_cannot_be_profiled_says_so(module: Module) -> None:
    with pytest.raises(UsageError, match="at least 1 run is recorded, got 0"):
        autotune.profile(module, [X], runs=0)
    with pytest.raises(InputError):
        autotune.profile(module, [X[0]])
    closed = autotune.compile("zoo:tiny_cnn", threads=1)
    closed.close()
    with pytest.raises(UsageError, match="is closed"):
        autotune.profile(closed, [X])


@pytest.mark.skipif(len(core_ids()) < 2, reason="one core is no two devices")
def test_devices_are_told_apart() -> None:
    with autotune.compile("zoo:tiny_cnn", placement={"Conv": "cpu:1", "*": "cpu:0"}) as placed:
        found = autotune.profile(placed, [X], runs=3)
        expected = [dispatch.name for dispatch in placed.dispatches]
        assert sorted(each.name for each in found.dispatches) == sorted(expected)
        assert {each.name for each in found.devices} == {"cpu:0", "cpu:1"}
        assert {each.device for each in found.dispatches if each.kind == "convolution"} == {"cpu:1"}
        assert all(each.tiles for each in found.dispatches)
        np.testing.assert_allclose(placed(X)[0], placed(X)[0])  # requests go on as before
        with pytest.raises(UsageError, match="at least 1 run is recorded, got 0"):
            placed.recording([X], 0)
    with pytest.raises(UsageError, match="is closed"):
        placed.recording([X])


@needs_opencl
def test_an_opencl_device_times_its_kernels() -> None:
    with autotune.compile("zoo:tiny_cnn", target="opencl") as module:
        before = module(X)[0]
        recording = module.recording([X], 3)
        found = profile_of(recording)
        (device,) = found.devices
        assert (device.name, device.threads, device.roofs, found.workers) == ("opencl:0", None, None, ())
        assert sorted(each.name for each in found.dispatches) == sorted(
            each.name for each in module.dispatches
        )
        assert all(each.time_ns > 0 and each.busy is None for each in found.dispatches)
        (step,) = recording.steps
        assert step.events is not None
        begin, end = step.events[:, :, 0, layout.BEGIN], step.events[:, :, 0, layout.END]
        assert (begin <= end).all()
        assert (end[:, -1] <= step.end_ns).all()
        rows = [
            event["args"]["name"]
            for event in trace_of(recording)["traceEvents"]
            if event["name"] == "thread_name"
        ]
        assert rows == ["queue", "kernels"]
        np.testing.assert_array_equal(module(X)[0], before)


def test_kernels_without_tiles_take_no_time() -> None:
    kernel = SimpleNamespace(profile=SimpleNamespace(start=5, end=7))
    later = SimpleNamespace(profile=SimpleNamespace(start=9, end=12))
    found = _spans([None, kernel, None, later])
    first = found[0][0]
    assert [(begin - first, end - first) for begin, end in found] == [(0, 0), (0, 2), (2, 2), (4, 7)]
    assert len(_spans([None])) == 1
