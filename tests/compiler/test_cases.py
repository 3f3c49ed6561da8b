"""Cases of one compiled model: sizes on several devices and for several targets; requests of all sizes."""

from __future__ import annotations

from concurrent.futures import CancelledError
from pathlib import Path

import numpy as np
import pytest

import autotune
from autotune.compiler.request import CompileRequest
from autotune.errors import DeviceTimeoutError, InputError, UsageError
from autotune.hardware import architecture, usable_cores
from autotune.runtime.artifacts import artifact
from autotune.tuning.compiling import compile_request
from tests.codegen.opencl_device import needs_opencl
from tests.compiler.test_sizes import check, encoder, images

two_devices = pytest.mark.skipif(usable_cores() < 2, reason="needs two cores")
on_x86 = pytest.mark.skipif(architecture() != "x86_64", reason="its levels are those of x86-64")


@two_devices
def test_open_sizes_on_several_devices(tmp_path: Path) -> None:
    """Each bucket is a program of segments; requests that fill a bucket and requests that do not are right."""
    placement = {"*": "cpu:0", "Conv": "cpu:1"}
    with autotune.compile_for_sizes(images(), {"n": "1..3:1,3"}, placement=placement) as module:
        assert {*module.loaded.bucket(1).devices} == {"cpu:0", "cpu:1"} == {*module.devices}
        module.save(tmp_path / "m.atm")
        for n in (1, 2, 3):
            check(module, images(), {"x": (n, 3, 8, 8)})
    with autotune.load(tmp_path / "m.atm") as loaded:
        check(loaded, images(), {"x": (2, 3, 8, 8)})
        given = np.ones((2, 3, 8, 8), np.float32)
        (expected,) = loaded(given)
        np.testing.assert_array_equal(loaded.submit(given).result()[0], expected)
    with pytest.raises(UsageError, match="threads were given for 'open', which runs on cpu:1, cpu:0"):
        autotune.load(tmp_path / "m.atm", 1)


@on_x86
def test_several_targets_of_open_sizes(tmp_path: Path) -> None:
    request = CompileRequest(images(), shapes={"n": "1..3:1,3"}, target=("x86-64", "x86-64-v2"), threads=1)
    said: list[str] = []
    done = compile_request(request, said.append)
    assert said[0] == "compiling for x86-64, n = 1"
    assert [(case.target, case.sizes) for case in done.cases] == [
        (target, f"n = {n}") for target in ("x86-64", "x86-64-v2") for n in (1, 3)
    ]
    artifact.save(done.model, tmp_path / "m.atm")
    for target in ("x86-64", "x86-64-v2"):
        with autotune.load(tmp_path / "m.atm", target=target) as module:
            assert {case.target.cpu for case in module.compiled.cases} == {target}
            check(module, images(), {"x": (2, 3, 8, 8)})
    with autotune.compile(
        images(), shapes={"n": "1..2:2"}, target=("x86-64", "x86-64-v2"), threads=1
    ) as best:
        assert best.compiled.cases[0].target.cpu == "x86-64-v2"


@on_x86
def test_sizes_out_of_range_are_compiled_for_the_best_of_several_targets() -> None:
    targets = ("x86-64", "x86-64-v2")
    with autotune.compile_for_sizes(
        images(), {"n": "1..2:2"}, target=targets, threads=1, on_miss="compile"
    ) as module:
        check(module, images(), {"x": (5, 3, 8, 8)})
        (place,) = module.loaded._missed.values()
        assert place.case._image.target.cpu == module.compiled.cases[0].target.cpu == "x86-64-v2"


@needs_opencl
def test_open_sizes_on_an_opencl_device(tmp_path: Path) -> None:
    with autotune.compile_for_sizes(images(), {"n": "1..3:1,3"}, target="opencl") as module:
        assert module.devices == ("opencl:0",)
        module.save(tmp_path / "m.atm")
        for n in (1, 2, 3):
            check(module, images(), {"x": (n, 3, 8, 8)})
    with autotune.load(tmp_path / "m.atm") as module:
        check(module, images(), {"x": (2, 3, 8, 8)})
        given = np.ones((2, 3, 8, 8), np.float32)
        np.testing.assert_array_equal(module.submit(given).result()[0], module(given)[0])


def test_requests_of_open_sizes_in_the_background() -> None:
    with autotune.compile_for_sizes(encoder(), {"batch": "1..4:4", "seq": "1..20:6,20"}, threads=1) as module:
        shapes = [(4, 19), (2, 3), (4, 6), (1, 20), (4, 20)] * 3
        arrays = [np.full(shape, 3, np.int64) for shape in shapes]
        expected = [module(array) for array in arrays]
        requests = module.submit_all([(array,) for array in arrays])
        for request, own in zip(requests, expected, strict=True):
            for found, want in zip(request.result(), own, strict=True):
                np.testing.assert_array_equal(found, want)
        wrong = module.submit(np.zeros((5, 5), np.int64))
        with pytest.raises(InputError, match="takes batch from 1 to 4, got 5"):
            wrong.result()
        late = module.submit_all([(array,) for array in arrays])[-1]
        if late.cancel():
            with pytest.raises(CancelledError):
                late.result()
    with pytest.raises(UsageError, match="is closed"):
        module.submit(arrays[0])


def test_results_in_given_arrays() -> None:
    """Whole buckets and parts of them; a cache may be written over the one that was read."""
    with autotune.compile_for_sizes(images(), {"n": "1..4:4"}, threads=1) as module:
        for n in (4, 3):
            given = np.random.default_rng(n).standard_normal((n, 3, 8, 8)).astype(np.float32)
            (expected,) = module(given)
            out = np.empty_like(expected)
            (found,) = module(given, out=[out])
            assert found is out
            np.testing.assert_array_equal(out, expected)
        with pytest.raises(InputError, match=r"output y: expected float32\[3, 5\], got float32\[2, 5\]"):
            module(given, out=[np.empty((2, 5), np.float32)])
        with pytest.raises(InputError, match="there are 1 outputs, and 2 arrays were given"):
            module(given, out=[out, out])


@two_devices
def test_given_arrays_and_requests_in_the_background_on_several_devices() -> None:
    """Cancelled and late requests end, and given arrays are written, as on one device."""
    placement = {"*": "cpu:0", "Conv": "cpu:1"}
    rng = np.random.default_rng(0)
    with (
        autotune.compile_for_sizes(images(), {"n": "1..3:1,3"}, placement=placement) as module,
        autotune.compile_for_sizes(images(), {"n": "1..3:1,3"}, threads=1) as plain,
    ):
        arrays = [rng.standard_normal((n, 3, 8, 8)).astype(np.float32) for n in (1, 2, 3, 2)]
        requests = module.submit_all([(array,) for array in arrays])
        for array, request in zip(arrays, requests, strict=True):
            (wanted,), out = plain(array), np.empty((len(array), 5), np.float32)
            np.testing.assert_allclose(request.result()[0], wanted, rtol=1e-4, atol=1e-5)
            assert module(array, out=[out])[0] is out
            np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)
        late = module.submit(arrays[0], deadline=1e-9)
        with pytest.raises(DeviceTimeoutError, match="of module 'open' did not end within 1e-09 s"):
            late.result()
        gone = module.submit(arrays[0])
        if gone.cancel():
            with pytest.raises(CancelledError):
                gone.result()
        np.testing.assert_allclose(module(arrays[1])[0], plain(arrays[1])[0], rtol=1e-4, atol=1e-5)


@two_devices
def test_times_of_dispatches_and_workers_on_several_devices() -> None:
    given = np.ones((2, 3, 8, 8), np.float32)
    placement = {"*": "cpu:0", "Conv": "cpu:1"}
    with autotune.compile(images(), shapes={"n": 2}, placement=placement) as module:
        names = [dispatch.name for dispatch in module.dispatches]
        found = module.profiles([given], 3)
        assert found.shape == (3, len(names))
        assert (found > 0).all()
        events = module.timeline({"x": given})
        assert {event.step for event in events} == {
            n for n, step in enumerate(module.recording([given]).steps) if step.events is not None
        }
        assert sum(event.tiles for event in events) > 0


def test_every_model_is_used_alike() -> None:
    """One interface: what is asked of a plain model is asked of one with dynamic shapes, too."""
    given = np.ones((2, 3, 8, 8), np.float32)
    plain = autotune.compile(images(), shapes={"n": 2}, threads=1)
    sized = autotune.compile(images(), shapes={"n": "1..3:3"}, threads=1)
    with plain, sized:
        for module in (plain, sized):
            assert [tensor.name for tensor in module.outputs] == ["y"]
            assert module.specs({"n": 2} if module.compiled.least else None)[0].shape == (2, 3, 8, 8)
            assert module.time({"x": given}, warmup=0, repeat=3).shape == (3,)
            assert module.time([given], warmup=0, repeat=1, min_ns=1).size >= 1
            assert module.recording([given], 2).runs == 2
            assert {each.name for each in autotune.profile(module, [given], runs=2).dispatches} == {
                each.name for each in module.dispatches
            }
        np.testing.assert_allclose(plain(given)[0], sized(given)[0], rtol=1e-5)
