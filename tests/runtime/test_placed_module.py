"""Modules on several devices: answers, requests in flight, errors, files."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import autotune
from autotune.errors import ArtifactError, DeviceError, InputError, PlacementError, UsageError
from autotune.graph import Graph
from autotune.graph.build import GraphBuilder
from autotune.graph.text import parse_graph
from autotune.runtime.artifacts import artifact
from autotune.runtime.hal import driver
from autotune.runtime.hal.cpu.cores import core_ids
from autotune.runtime.hal.driver import open_device
from autotune.runtime.hal.opencl.shared import shares_memory
from autotune.runtime.module import Module
from autotune.tuning.placement.placing import known_devices
from tests.graph.graphs import small_convnet

pytestmark = pytest.mark.skipif(len(core_ids()) < 2, reason="one core is no two devices")

X = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)


def placed(model: object, placement: dict[str, str] | None) -> Module:
    return autotune.compile(model, placement=placement)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def module() -> Iterator[Module]:
    with placed(small_convnet(), {"Conv": "cpu:1", "*": "cpu:0"}) as made:
        yield made


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    with autotune.compile(small_convnet(), threads=1) as plain:
        (found,) = plain(X)
    return found


def test_answers_are_those_of_one_device(module, expected):
    (found,) = module(X)
    np.testing.assert_allclose(found, expected, 1e-5, 1e-6)
    out = np.zeros_like(expected)
    assert module(X, out=[out])[0] is out
    np.testing.assert_array_equal(out, found)
    np.testing.assert_array_equal(module.run({"x/0:0": X})["y"], found)
    assert module.devices == ("cpu:1", "cpu:0")
    assert "4 parts on cpu:1, cpu:0" in repr(module)


def test_many_requests_are_in_flight_at_once(module):
    inputs = [X + np.float32(i) for i in range(24)]
    alone = [module(x)[0] for x in inputs]
    futures = [module.submit(x) for x in inputs]
    for future, one in zip(futures, alone, strict=True):
        np.testing.assert_array_equal(future.result()[0], one)


def test_steps_are_timed_in_the_rows_of_their_devices(module):
    events = module.loaded.timeline([X])
    steps = module.compiled.cases[0].program.steps
    assert [steps[event.step].kind for event in events] == ["run"] * 4  # nothing is moved in one memory
    assert [event.device for event in events] == ["cpu:1", "cpu:0", "cpu:1", "cpu:0"]
    assert all(a.end_ns <= b.begin_ns for a, b in pairwise(events))
    assert len(module.time([X], warmup=0, repeat=3)) == 3


def test_wrong_inputs_are_refused_before_anything_runs(module):
    with pytest.raises(InputError, match="takes 1 inputs, got 2"):
        module(X, X)
    with pytest.raises(InputError, match="missing x/0:0; unknown z"):
        module.run({"z": X})


def gathering() -> Graph:
    """The second device looks rows up: by an index that may be wrong."""
    return parse_graph(
        """graph rows {
  input x: float32[4, 8]
  input i: int64[3]
  r = Relu(x) : float32[4, 8] on cpu:0
  y = Gather(r, i) {axis=0} : float32[3, 8] on cpu:1
  z = Exp(y) : float32[3, 8] on cpu:0
  output z, r
}"""
    )


def test_an_error_travels_to_its_request_only():
    x, good, bad = np.ones((4, 8), np.float32), np.array([0, 1, 3]), np.array([0, 9, 1])
    with placed(gathering(), None) as module:
        futures = [module.submit(x, index) for index in (good, bad, good)]
        for future in (futures[0], futures[2]):
            np.testing.assert_allclose(future.result()[0], np.exp(np.ones((3, 8))), 1e-6)
        with pytest.raises((InputError, DeviceError)) as caught:
            futures[1].result()
        assert "index 9" in str(caught.value)
        assert "cpu:1" in str(caught.value)
        np.testing.assert_allclose(module(x, good)[1], x)


def test_outputs_that_are_inputs_or_twice_the_same():
    b = GraphBuilder("echo")
    x = b.input("x", (4,))
    graph = b.graph(b.node("Relu", x, name="y"), "y", x)
    with placed(graph, {"y": "cpu:1"}) as module:
        given = np.array([-1, 2, -3, 4], np.float32)
        first, second, third = module(given)
        np.testing.assert_array_equal(first, [0, 2, 0, 4])
        np.testing.assert_array_equal(second, first)
        np.testing.assert_array_equal(third, given)
        assert third is not given


@pytest.mark.parametrize(
    "rules", [{"Conv": "opencl:0", "*": "cpu:0"}, {"*": "opencl:0"}], ids=["mixed", "alone"]
)
@pytest.mark.parametrize("memory", ["own", ""], ids=["own memory", "this process's"])
def test_a_device_beside_the_cpu(rules, memory, expected, monkeypatch):
    monkeypatch.setenv("AUTOTUNE_OPENCL_MEMORY", memory)
    monkeypatch.setattr(driver, "_opened", {})
    if "opencl:0" not in known_devices():
        pytest.skip("there is no OpenCL device")
    with placed(small_convnet(), rules) as module:
        inputs = [X + np.float32(i) for i in range(6)]
        alone = [module(x)[0] for x in inputs]
        np.testing.assert_allclose(alone[0], expected, 1e-5, 1e-6)
        for future, one in zip([module.submit(x) for x in inputs], alone, strict=True):
            np.testing.assert_array_equal(future.result()[0], one)
    pinned = open_device("opencl:0").host_allocator
    assert (pinned is not None) == (memory == "own" or not shares_memory(0))
    if pinned is not None:  # where what crosses between devices lies in this process
        assert bool(pinned.statistics.allocations) == ("cpu:0" in rules.values())
        assert pinned.statistics.live == 0
    for device in driver._opened.values():
        device.close()


def test_a_closed_module_says_so():
    device = open_device("cpu:1")
    before = len(device._queues)
    made = placed(small_convnet(), {"*": "cpu:1"})
    assert len(device._queues) == before + 2  # for its steps and its transfers
    made.close()
    made.close()
    assert len(device._queues) == before  # a device that serves many modules does not keep them
    with pytest.raises(UsageError, match="module 'small convnet' is closed"):
        made(X)


# --- files ------------------------------------------------------------------------------------------------


def test_an_artifact_runs_where_it_says(module, expected, tmp_path):
    path = tmp_path / "two.atm"
    module.save(path)
    loaded = autotune.load(path)
    with loaded:
        np.testing.assert_allclose(loaded(X)[0], expected, 1e-5, 1e-6)
        assert str(loaded.compiled.cases[0].program) == str(module.compiled.cases[0].program)
        loaded.save(tmp_path / "again.atm")
    assert (tmp_path / "again.atm").read_bytes() == path.read_bytes()
    with pytest.raises(UsageError, match=r"threads were given for .*, which runs on cpu:1, cpu:0"):
        autotune.load(path, 1)


def rewritten(path: Path, change: object, target: Path) -> Path:
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "manifest.json":
                manifest = json.loads(data)
                change(manifest)  # type: ignore[operator]
                data = json.dumps(manifest).encode()
            new.writestr(name, data)
    return target


def test_a_damaged_artifact_is_refused(module, tmp_path):
    path = tmp_path / "two.atm"
    module.save(path)

    def error(change: object) -> str:
        with pytest.raises(ArtifactError) as caught:
            artifact.load(rewritten(path, change, tmp_path / "bad.atm"))
        return str(caught.value).partition("bad.atm: ")[2]

    def nowhere(manifest: dict[str, list[dict[str, object]]]) -> None:
        manifest["cases"][0]["program"]["steps"][1]["waits"] = []

    assert error(nowhere) == (
        "the compiled program 'small convnet' is inconsistent: step 1 waits for steps (), what it reads is made by (0,)"
    )
    assert error(lambda m: m.update(version=9)) == (
        "format 'autotune-model' version 9; this release reads 'autotune-model' version 2: "
        "compile the model again"
    )
    assert error(lambda m: m["images"].pop()).startswith("case 0 runs images (0, 1")
    assert error(lambda m: m["cases"][0]["program"]["steps"][0].update(kind="jump")).startswith(
        "manifest.cases[0].program.steps[0].kind: expected"
    )


# --- naming devices ---------------------------------------------------------------------------------------


def test_a_device_that_is_not_there():
    with pytest.raises(PlacementError, match="there is no device 'cpu:99', which placement 'Conv' names"):
        autotune.compile(small_convnet(), placement={"Conv": "cpu:99"})


def test_devices_say_what_to_compile_for():
    with pytest.raises(
        UsageError, match="threads given for a model that runs on the devices that are named for it"
    ):
        autotune.compile(small_convnet(), placement={"Conv": "cpu:1"}, threads=1)
