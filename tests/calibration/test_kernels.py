"""The micro-kernels: they compile for every vector width, and keep what they are made to measure."""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest

from autotune.calibration import kernels
from autotune.calibration.probe import Probe
from autotune.codegen.llvm import assembly
from autotune.target import Target

TARGETS = ("x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64")


def loop_of(ir: str, target: Target) -> str:
    """The machine instructions between the loop's label and the jump back."""
    text = assembly(ir, target)
    found = re.search(r"^(\.LBB0_\d+):(.*?)\b(?:jl|b\.lt)\s+\1", text, re.M | re.S)
    assert found, text
    return found[2]


@pytest.mark.parametrize("name", TARGETS)
def test_all_kernels_compile(name: str) -> None:
    target = Target.parse(name)
    lanes = target.lanes("float32")
    for ir in (
        kernels.moves("kernel", lanes, [0, 64], store=True),
        kernels.broadcasts("kernel", lanes, 4),
        kernels.stream("kernel", lanes, 4096, copy=True),
        kernels.stream("kernel", lanes, 4096, piece=128, distance=384),
        kernels.side_by_side("kernel", lanes, 4, 4096),
        kernels.folds("kernel", lanes, 4),
        kernels.chase("kernel"),
    ):
        assert "kernel:" in assembly(ir, target)


def test_a_step_has_as_many_instructions_as_asked_for() -> None:
    target = Target.parse("x86-64-v3")
    body = loop_of(kernels.multiply_adds("kernel", 8, 6, 2, loads=5, integers=(3, 4)), target)
    assert len(re.findall(r"vfmadd", body)) == 12
    assert len(re.findall(r"vmovups\s+\d+\(", body)) == 5
    assert len(re.findall(r"\b(?:addq|xorq)\s+%", body)) == 12


def test_loads_and_stores_of_a_step_are_all_made() -> None:
    target = Target.parse("x86-64-v4")
    offsets = [64 * number for number in range(7)]
    assert len(re.findall(r"vmovups\s.*%zmm", loop_of(kernels.moves("kernel", 16, offsets), target))) == 7
    stored = loop_of(kernels.moves("kernel", 16, offsets, store=True), target)
    assert len(re.findall(r"vmovups\s+%zmm\d+, ", stored)) == 7


def test_products_of_tiles_have_sums_of_their_own() -> None:
    target = Target.parse("x86-64-v4-amx")
    for product in ("tdpbf16ps", "tdpbusd"):
        found = re.findall(
            rf"{product}\s+%tmm\d, %tmm\d, %tmm(\d)",
            loop_of(kernels.tile_products("kernel", product), target),
        )
        assert found == [str(tile) for tile in range(kernels.TILES)]
        assert "tilerelease" in assembly(kernels.tile_products("kernel", product), target)


def test_a_step_reads_a_line_of_every_row() -> None:
    target = Target.parse("x86-64-v3")
    body = loop_of(kernels.side_by_side("kernel", 8, 5, 4096), target)
    assert len(re.findall(r"vmovups\s", body)) == 10


def test_a_chase_goes_where_the_data_say() -> None:
    probe = Probe(Target.detect(1))
    kernel = probe.kernel(kernels.chase("kernel"))
    chain = np.zeros(4, np.int64)
    chain[:] = chain.ctypes.data + np.asarray([2, 0, 3, 1]) * 8
    kernel(chain.ctypes.data, 1000)  # any other place would be a fault
    assert ctypes.c_int64.from_address(int(chain[0])).value == chain.ctypes.data + 3 * 8
