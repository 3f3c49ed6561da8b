"""The one list of everything that changes the code generated for a configuration.

A stored configuration means something only together with the passes that turn it into code. Whoever changes
what a pass emits for an unchanged schedule raises its number here: the key of every space changes, and old
measurements are no longer taken for measurements of the new code.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

VERSIONS: Mapping[str, int] = MappingProxyType(
    {
        "graph.compute": 8,  # the tensor expression that an operator becomes
        "graph.region": 1,  # how a region's text is read back
        "schedule.primitives": 1,
        "lower.bounds": 2,
        "lower.tails": 2,
        "lower.vectorize": 1,
        "lower.unroll": 1,
        "lower.storage": 1,
        "lower.hoist": 1,
        "lower.partial_sums": 1,
        "codegen.cpu": 8,
        "codegen.fast_math": 9,
        "space.attention": 7,
        "space.chain": 1,
        "space.contraction": 7,
        "space.convolution": 4,
        "space.depthwise": 4,
        "space.reduction": 4,
        "space.softmax": 3,
        "space.normalization": 3,
        "space.pool": 3,
        "space.elementwise": 4,
        "space.sequential": 1,
        "space.strassen": 1,
        "space.winograd": 2,
        "space.winograd_blocks": 2,
    }
)

STEPS: Mapping[str, int] = MappingProxyType({"double_buffer": 2, "software_pipeline": 2})
"""The same for primitives that became other code: of programs of users' own that take such a step."""


def versions_of(family: str, versions: Mapping[str, int] = VERSIONS) -> tuple[tuple[str, int], ...]:
    """Return the versions that a space of ``family`` depends on: its own, and those of all common passes."""
    return tuple(
        (name, number)
        for name, number in sorted(versions.items())
        if not name.startswith("space.") or name == f"space.{family}"
    )


__all__ = ["STEPS", "VERSIONS", "versions_of"]
