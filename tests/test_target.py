"""Targets: what the machine is, and what it counts as by the settings."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from autotune.codegen.llvm import assembly
from autotune.errors import TargetError
from autotune.target import Target

pytestmark = pytest.mark.registers

LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
SUM_OF_16 = """
define void @f(ptr %p) {
  %a = load <16 x float>, ptr %p
  %c = fadd <16 x float> %a, %a
  store <16 x float> %c, ptr %p
  ret void
}"""


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Target:
    """Return this machine's target, as detected."""
    monkeypatch.delenv("AUTOTUNE_HOST", raising=False)
    return Target.detect()


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest, own: Target) -> str:
    """Each level that this machine can run."""
    name: str = request.param
    if own.lacks(Target.parse(name)):
        pytest.skip(f"this machine cannot run {name}")
    return name


def test_the_host_counts_as_a_level(level: str, own: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_HOST", level)
    pretended, named = Target.detect(), Target.parse(level)
    for field in ("arch", "cpu", "features", "vector_bits"):
        assert getattr(pretended, field) == getattr(named, field)
    for field in ("cores", "threads", "l1_bytes", "l2_bytes", "l3_bytes", "device"):
        assert getattr(pretended, field) == getattr(own, field)
    assert not own.lacks(pretended)
    assert not pretended.lacks(named)
    assert pretended.lacks(own) == sorted({*own.features} - {*named.features})


def test_each_level_runs_the_code_of_those_below() -> None:
    targets = [Target.parse(name) for name in LEVELS]
    for at, target in enumerate(targets):
        assert [bool(target.lacks(other)) for other in targets] == [n > at for n in range(len(targets))]


def test_a_level_that_is_unknown_or_beyond_the_machine_is_refused(
    own: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_HOST", "x86-64-v9")
    with pytest.raises(
        TargetError, match=r"^AUTOTUNE_HOST=x86-64-v9: no such level; this machine can count as "
    ):
        Target.detect()
    monkeypatch.setenv("AUTOTUNE_HOST", "aarch64" if own.arch == "x86_64" else "x86-64-v3")
    with pytest.raises(TargetError, match=r"this machine lacks \w+; this machine can count as "):
        Target.detect()


def test_features_that_a_hypervisor_masks_are_not_used() -> None:
    """LLVM knows by a processor's name more than the machine may have."""
    masked = dataclasses.replace(Target.parse("x86-64-v3"), cpu="znver4")
    assert "zmm" not in assembly(SUM_OF_16, masked)
    assert "zmm" in assembly(SUM_OF_16, Target.parse("x86-64-v4"))


def test_the_library_counts_as_the_level_too(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own, where OpenBLAS was loaded before anybody asked for its address."""
    monkeypatch.setenv("AUTOTUNE_HOST", level)
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    script = """
import ctypes, os, scipy.special
from autotune.library import blas
blas.address("float32")
(library,) = blas._copies()
library.scipy_openblas_get_corename.restype = ctypes.c_char_p
print(library.scipy_openblas_get_corename().decode(), "OPENBLAS_CORETYPE" in os.environ)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    core = {"x86-64": "Katmai", "x86-64-v2": "Nehalem", "x86-64-v3": "Haswell", "x86-64-v4": "SkylakeX"}
    assert done.stdout.split() == [core[level], "False"]
