"""Generated code never changes under an unchanged version: measurements of the old code would pass for the new."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.codegen.backend import compile_schedule
from autotune.graph.region import Workload
from search_spaces import spaces
from search_spaces.versions import VERSIONS, versions_of
from tests.search_spaces import workloads as w
from tests.search_spaces.every_value import covering

GOLDEN = Path(__file__).parent / "golden" / "versions.json"

WORKLOADS: dict[str, Callable[[], Workload]] = {
    "attention": lambda: w.attention((2, 20, 16), 24, 16),
    "chain": lambda: w.depthwise_chain((1, 10, 12, 16), 24),
    "contraction": lambda: w.matmul(30, 40, 50),
    "convolution": lambda: w.conv((1, 9, 11, 8), 24, 3, stride=2, pad=1),
    "depthwise": lambda: w.conv((1, 10, 12, 16), 16, 3, pad=1, group=16),
    "elementwise": lambda: w.unary("Gelu", (30, 50)),
    "normalization": lambda: w.layer_norm(20, 50),
    "pool": lambda: w.pool((1, 12, 12, 16), kernel_shape=(3, 3), strides=(2, 2)),
    "reduction": lambda: w.unary("ReduceSum", (20, 50), axes=(1,)),
    "sequential": lambda: w.unary("CumSum", (20, 50), axis=0),
    "softmax": lambda: w.unary("Softmax", (20, 50), axis=1),
    "strassen": lambda: w.strassen_output((4, 14, 20)),
    "winograd": lambda: w.winograd_input((1, 9, 11, 40), 4),
    "winograd_blocks": lambda: w.winograd_blocks((1, 9, 11, 40), 24, 4),
}


def test_every_family_is_here() -> None:
    assert {f"space.{family}" for family in WORKLOADS} == {name for name in VERSIONS if name[:5] == "space"}


@pytest.mark.parametrize("family", sorted(WORKLOADS))
def test_code_changes_with_a_version(family: str, request: pytest.FixtureRequest) -> None:
    known = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    now = {
        "versions": ", ".join(f"{name} {number}" for name, number in versions_of(family)),
        "code": _code(family),
    }
    before = known.get(family)
    if before is not None and before["versions"] == now["versions"]:
        assert now["code"] == before["code"], (
            f"the code of family {family} changed: raise a number in search_spaces/versions.py, then run this "
            "test with --update-golden"
        )
    if request.config.getoption("--update-golden"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(json.dumps(known | {family: now}, indent=1, sort_keys=True) + "\n")
        before = now
    assert now == before, "the versions changed: run this test with --update-golden"


TARGETS = (w.AVX2, w.AVX512, replace(w.AVX2, l1_bytes=256, l2_bytes=512, l3_bytes=1024))
"""The last has caches that hold nothing: prefetches are knobs there."""


def _code(family: str) -> str:
    """Hash the LLVM IR text of schedules that have each value of each knob, for all :data:`TARGETS`."""
    found = hashlib.sha256()
    for target in TARGETS:
        space = spaces.space_for(WORKLOADS[family](), target)
        assert space.family == family
        configs, _ = covering(space, seed=0)
        for config in (space.default(), *configs):
            program = space.workload.program()
            code = compile_schedule(
                space.apply(program, config),
                program.args,
                target,
                name="k",
                constants=program.constants,
                strides=program.strides,
            )
            found.update(code.ir.encode())
    return found.hexdigest()
