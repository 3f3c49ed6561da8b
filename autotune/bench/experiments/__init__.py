"""The experiments that users run on machines of their own, with peers in the same run."""

from __future__ import annotations

from collections.abc import Mapping

EXPERIMENTS: Mapping[str, str] = {
    "models": "autotune.bench.experiments.models",
    "operators": "autotune.bench.experiments.operators",
    "gemm": "autotune.bench.experiments.gemm",
}
"""The module of each, which has it as ``EXPERIMENT``."""

__all__ = ["EXPERIMENTS"]
