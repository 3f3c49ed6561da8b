"""The machine and the versions that a result belongs to."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping

from autotune.target import Target
from autotune.versions import versions_of

DATE = "%Y-%m-%d %H:%M UTC"
_OURS = ("autotune", "llvmlite", "numpy", "xgboost-cpu", "xgboost", "optuna")
"""Of xgboost's two distributions one is installed."""


def facts() -> dict[str, str]:
    """Processor, caches, load, versions and date."""
    target = Target.detect()
    caches = ", ".join(
        f"{name} {size >> 10} KiB"
        for name, size in (("L1", target.l1_bytes), ("L2", target.l2_bytes), ("L3", target.l3_bytes))
    )
    return {
        "processor": f"{target.device}, {target.cores} usable cores, {target.vector_bits}-bit vectors, {caches}",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "load before": load_average(),
        "versions": ", ".join(f"{name} {number}" for name, number in versions_of(_OURS).items()),
        "date": time.strftime(DATE, time.gmtime()),
    }


def with_peers(known: Mapping[str, str], versions: Mapping[str, str]) -> dict[str, str]:
    """The facts and the versions of the systems that took part, by label."""
    others = {label: number for label, number in versions.items() if label not in _OURS}
    if not others:
        return dict(known)
    return {**known, "peers": ", ".join(f"{label} {number}" for label, number in sorted(others.items()))}


def load_average() -> str:
    """The load of the last minute: on a quiet machine it is near 0."""
    try:
        return f"{os.getloadavg()[0]:.1f}"
    except OSError:
        return "unknown"


__all__ = ["DATE", "facts", "load_average", "with_peers"]
