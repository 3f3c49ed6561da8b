"""The system's description of the machine, and what is refused because of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune import hardware, target
from autotune.errors import UsageError


@pytest.mark.parametrize(("quota", "cores"), [(None, 4), (2.9, 2), (1.5, 1), (0.3, 1), (64.0, 4)])
def test_whole_cores_are_used(monkeypatch: pytest.MonkeyPatch, quota: float | None, cores: int) -> None:
    monkeypatch.setattr(hardware.os, "sched_getaffinity", lambda process: {1, 3, 4, 7})
    monkeypatch.setattr(hardware, "cpu_quota", lambda: quota)
    assert hardware.usable_cores() == cores


def test_more_threads_than_cores_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "usable_cores", lambda: 2)
    hardware.check_threads(2, allow_oversubscription=False)
    hardware.check_threads(99, allow_oversubscription=True)
    with pytest.raises(UsageError) as caught:
        hardware.check_threads(99, allow_oversubscription=False)
    assert str(caught.value) == (
        "99 threads were requested, but this process may use 2 cores\n"
        "  threads that share a core wait for each other: use at most 2, or allow it by "
        "--allow-oversubscription (in Python allow_oversubscription=True)"
    )


def test_instruction_sets_are_those_that_llvm_sees() -> None:
    import llvmlite.binding as llvm

    known = hardware.instruction_sets()
    if not known:
        pytest.skip("this system does not say which instruction sets the processor has")
    have = hardware.permitted(name for name, value in llvm.get_host_cpu_features().items() if value)
    for name in target._KEPT_FEATURES[hardware.architecture()]:
        assert (name in known) == (name in have), name


@pytest.mark.parametrize("granted", [False, True])
def test_tiles_are_used_where_the_system_lets_a_process(
    granted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "tiles_permitted", lambda: granted)
    others, tiles = ["avx2", "avx512bf16"], ["amx-bf16", "amx-tile"]
    assert hardware.permitted([*others, *tiles]) == others + (tiles if granted else [])
    processor = {"flags": "avx2 amx_bf16 amx_int8 amx_tile"}
    monkeypatch.setattr(hardware, "_first_processor", lambda: processor)
    monkeypatch.setattr(hardware, "architecture", lambda: "x86_64")
    found = hardware.instruction_sets.__wrapped__()
    assert found == {"avx2"} | ({"amx-bf16", "amx-int8", "amx-tile"} if granted else set())


def test_the_system_is_not_asked_for_tiles_that_a_processor_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "tiles_permitted", lambda: pytest.fail("asked"))
    assert hardware.permitted(["avx2"]) == ["avx2"]


def test_what_is_lacking_here_needs_no_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    here = target.Target.detect()
    assert here.lacking_here() == []
    assert replace(here, features=(*here.features, "avx4096")).lacking_here() == ["avx4096"]
    assert replace(here, arch="riscv64").lacking_here() == ["riscv64"]
    level = "x86-64-v3" if hardware.architecture() == "x86_64" else "aarch64"
    monkeypatch.setenv("AUTOTUNE_HOST", level)
    assert target.Target.parse(level).lacking_here() == []
