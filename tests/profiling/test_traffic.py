"""The cache in which a dispatch finds its memory."""

from __future__ import annotations

from dataclasses import replace

from autotune.profiling.traffic import MemoryTraffic, traffic
from autotune.runtime.image import Binding
from tests.profiling.made_up import command, image


def test_bytes_count_once_a_dispatch_and_are_near_while_they_fit() -> None:
    # 4 KiB of input, 1 KiB of weights, 2 KiB of workspace and 4 KiB of result; then result and output
    near = [[MemoryTraffic(11_264, 0, 0), MemoryTraffic(8192, 0, 0)]]
    assert traffic([image()], 1e6, 1e6) == near
    assert traffic([image()], 15_360, 15_360) == near  # all that a run touches


def test_what_is_touched_in_between_pushes_memory_further_away() -> None:
    # Of a cache of 8 KiB the convolution finds what the relu touched last: its result. The relu finds the result too.
    assert traffic([image()], 8192, 1e6) == [[MemoryTraffic(11_264, 7168, 0), MemoryTraffic(8192, 4096, 0)]]
    assert traffic([image()], 4096, 8192) == [
        [MemoryTraffic(11_264, 11_264, 7168), MemoryTraffic(8192, 4096, 4096)]
    ]
    assert traffic([image()], 0, 0) == [
        [MemoryTraffic(11_264, 11_264, 11_264), MemoryTraffic(8192, 8192, 8192)]
    ]


def test_parts_of_memory_are_what_bindings_overlap_in() -> None:
    halves = [Binding("arena", 0, offset, 4096) for offset in (0, 2048)]
    overlapping = replace(image(), commands=(command(0, *halves), command(1, halves[1])))
    assert traffic([overlapping], 4096, 4096) == [
        [MemoryTraffic(6144, 2048, 2048), MemoryTraffic(4096, 0, 0)]
    ]


def test_images_of_a_device_share_its_caches_and_nothing_may_be_bound() -> None:
    assert [len(each) for each in traffic([image(), image()], 16_000, 1e6)] == [2, 2]
    assert traffic([image(), image()], 16_000, 1e6)[0][0] == MemoryTraffic(11_264, 11_264, 0)
    empty = replace(image(), commands=(command(0), command(1, Binding("input", 0, 0, 0))))
    assert traffic([empty], 1, 1) == [[MemoryTraffic(0, 0, 0), MemoryTraffic(0, 0, 0)]]
    assert traffic([], 1, 1) == []
