"""Model images on devices: the same answers as a module's."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autotune.errors import InputError, UsageError
from autotune.runtime.hal import open_device
from autotune.runtime.hal.buffer import host_buffer
from autotune.runtime.hal.executable import Code
from autotune.runtime.hal.recording import load_image
from autotune.runtime.image import IndexCheck
from autotune.runtime.module import Module
from tests.runtime.kernels import binding, chain, image, spec

PAGE = Path(__file__).parents[3] / "docs" / "devices.md"


@pytest.mark.parametrize("name", ["cpu", "cpu:0"])
def test_an_image_computes_what_its_module_does(name: str) -> None:
    model = chain(7, 64)
    x, y = np.arange(64, dtype=np.int64), np.zeros(64, np.int64)
    with open_device(name) as device, Module(model) as module:
        commands = load_image(device, model).record()
        device.compute.submit(commands, [host_buffer(x), host_buffer(y)]).wait()
        np.testing.assert_array_equal(y, module(x)[0])


def test_recordings_of_an_image_run_at_the_same_time() -> None:
    model = chain(5, 64, body="slow", tiles=1)
    with open_device("cpu") as device:
        loaded = load_image(device, model)
        queues = [device.compute, device.queue("second")]
        results = [np.zeros(64, np.int64) for _ in queues]
        submissions = [
            queue.submit(loaded.record(), [host_buffer(np.full(64, 10 * n)), host_buffer(results[n])])
            for n, queue in enumerate(queues)
        ]
        for submission in submissions:
            submission.wait()
        assert [int(result[0]) for result in results] == [0, 10]


def test_constants_and_scratch_memory_are_there() -> None:
    constant = np.arange(64, dtype=np.int64) * 3
    model = image(
        [("increment", binding("constant", 64), binding("output", 64), 64)],
        outputs=(spec("y", 64),),
        constants=(constant,),
        scratch_bytes=64,
    )
    y = np.zeros(64, np.int64)
    with open_device("cpu") as device:
        device.compute.submit(load_image(device, model).record(), [host_buffer(y)]).wait()
    np.testing.assert_array_equal(y, constant + 1)


def test_a_wrong_index_names_its_dispatch() -> None:
    model = chain(1, 64)
    check = IndexCheck(0, 0, binding("input", 64), 8, 1, 0, 64, 50, 0)
    with open_device("cpu") as device:
        commands = load_image(device, replace(model, checks=(check,))).record()
        y = np.zeros(64, np.int64)
        submission = device.compute.submit(commands, [host_buffer(np.arange(64)), host_buffer(y)])
        with pytest.raises(
            InputError,
            match=r"(?s)index \d+ is out of range: dispatch 'd0' of 'test'\n.*\n  at command 0 of test on cpu",
        ):
            submission.wait()


def test_the_page_on_devices_runs() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), {})


def test_code_of_another_kind_is_refused() -> None:
    with (
        open_device("cpu") as device,
        pytest.raises(UsageError, match="cpu runs code of format elf, got ptx"),
    ):
        device.load(Code("ptx", (), ()))
