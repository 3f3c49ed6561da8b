"""The machine that code is generated for, with a fingerprint that keys the tuning database."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from autotune.errors import TargetError

ITEM_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
"""Bytes of an element in memory, by dtype."""

GROUP_BYTES = 16
"""Part of a vector register within which interleaving two registers is one instruction everywhere."""

# Named instruction-set levels: LLVM cpu, LLVM features, vector bits. Caches are those of a plain server core.
_NAMED: dict[str, tuple[str, str, tuple[str, ...], int]] = {
    "x86-64": ("x86_64", "x86-64", ("sse2",), 128),
    "x86-64-v2": ("x86_64", "x86-64-v2", ("sse2", "sse4.2"), 128),
    "x86-64-v3": ("x86_64", "x86-64-v3", ("avx", "avx2", "f16c", "fma"), 256),
    "x86-64-v3-vnni": (
        "x86_64",
        "x86-64-v3",
        ("avx", "avx2", "avxvnni", "f16c", "fma"),
        256,
    ),
    "x86-64-v4": (
        "x86_64",
        "x86-64-v4",
        ("avx", "avx2", "avx512bw", "avx512dq", "avx512f", "avx512vl", "f16c", "fma"),
        512,
    ),
    "x86-64-v4-vnni": (
        "x86_64",
        "cascadelake",
        ("avx", "avx2", "avx512bw", "avx512dq", "avx512f", "avx512vl", "avx512vnni", "f16c", "fma"),
        512,
    ),
    "x86-64-v4-bf16": (
        "x86_64",
        "cooperlake",
        (
            "avx",
            "avx2",
            "avx512bf16",
            "avx512bw",
            "avx512dq",
            "avx512f",
            "avx512vl",
            "avx512vnni",
            "f16c",
            "fma",
        ),
        512,
    ),
    "aarch64": ("aarch64", "generic", ("neon",), 128),
    "aarch64-dotprod": ("aarch64", "generic", ("dotprod", "neon"), 128),
}

# The features that change which code is generated or how fast it runs; others would only split the database.
_KEPT_FEATURES = (
    "sse2",
    "sse4.2",
    "avx",
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512bw",
    "avx512dq",
    "avx512vl",
    "avx512vnni",
    "avx512bf16",
    "avxvnni",
    "amx-int8",
    "amx-tile",
    "neon",
    "dotprod",
    "sve",
)


@dataclass(frozen=True, repr=False)
class Target:
    """A CPU as the compiler sees it.

    Sizes are in bytes; ``l3_bytes`` is the shared cache. ``threads`` is how many workers a model uses, and is
    part of the key because the best schedule depends on it.
    """

    arch: str
    cpu: str
    features: tuple[str, ...]
    vector_bits: int
    cores: int
    threads: int
    l1_bytes: int = 32 << 10
    l2_bytes: int = 512 << 10
    l3_bytes: int = 8 << 20
    device: str = "generic"

    def __repr__(self) -> str:
        return (
            f"<Target {self.arch} {self.cpu}, {self.device}: {self.vector_bits}-bit vectors, "
            f"{self.threads} threads of {self.cores} cores, caches {self.l1_bytes >> 10} KiB, "
            f"{self.l2_bytes >> 10} KiB and {self.l3_bytes / (1 << 20):g} MiB>"
        )

    @property
    def key(self) -> str:
        """SHA-256 of the canonical JSON: equal on equal machines, whatever the version."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @property
    def name(self) -> str:
        """What people call it: the processor, or else the level, and how many workers a model uses."""
        return f"{self.cpu if self.device == 'generic' else self.device}, {self.threads} threads"

    @property
    def registers(self) -> int:
        """Architectural vector registers."""
        return 32 if self.vector_bits >= 512 or self.arch == "aarch64" else 16

    @property
    def activations(self) -> str:
        """The type of first operands that the dot products of small integers take: weights are int8."""
        return "int8" if self.arch == "aarch64" else "uint8"

    def lanes(self, dtype: str) -> int:
        """Elements of ``dtype`` in one vector register.

        >>> Target.parse("x86-64-v3").lanes("float32")
        8
        """
        return max(1, self.vector_bits // 8 // ITEM_BYTES[dtype])

    def to_json(self) -> str:
        """Canonical JSON, parsed back by :meth:`from_json`."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Target:
        """Read what :meth:`to_json` wrote; raises TargetError."""
        try:
            fields = json.loads(text)
            fields["features"] = tuple(fields["features"])
            return Target(**fields)
        except (ValueError, TypeError, KeyError) as error:
            raise TargetError(f"not a target description: {text[:80]!r} ({error})") from error

    def with_threads(self, threads: int | None) -> Target:
        """The same machine used with another number of threads (None keeps it)."""
        if threads is None:
            return self
        if threads < 1:
            raise TargetError(f"threads must be at least 1, got {threads}")
        return replace(self, threads=threads)

    @staticmethod
    def parse(text: str | Target, threads: int | None = None) -> Target:
        """A target from its name: ``host`` or one of the named levels; raises TargetError."""
        if isinstance(text, Target):
            return text.with_threads(threads)
        if text == "host":
            return Target.detect(threads)
        if text not in _NAMED:
            known = ", ".join(["host", *_NAMED])
            raise TargetError(f"unknown target {text!r}; known targets: {known}")
        arch, cpu, features, bits = _NAMED[text]
        return Target(arch, cpu, features, bits, cores=1, threads=1).with_threads(threads)

    @staticmethod
    def detect(threads: int | None = None) -> Target:
        """This machine; ``threads`` defaults to the cores that this process may use."""
        import platform

        import llvmlite.binding as llvm

        cores = usable_cores()
        have = llvm.get_host_cpu_features()
        features = tuple(sorted(f for f in _KEPT_FEATURES if have.get(f)))
        caches = _cache_sizes()
        return Target(
            arch={"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine()),
            cpu=llvm.get_host_cpu_name(),
            features=features,
            vector_bits=512 if "avx512f" in features else 256 if "avx2" in features else 128,
            cores=cores,
            threads=cores,
            l1_bytes=caches.get(1, 32 << 10),
            l2_bytes=caches.get(2, 512 << 10),
            l3_bytes=caches.get(3, 8 << 20),
            device=_device_name(),
        ).with_threads(threads)


def usable_cores() -> int:
    """Cores that this process may use: affinity mask and cgroup quota respected."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        cores = os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            cores = min(cores, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        pass  # no cgroup v2 here: the affinity mask is all there is to know
    return cores


def _cache_sizes() -> dict[int, int]:
    """Data and unified cache sizes by level, from sysfs; empty where the kernel does not tell."""
    sizes: dict[int, int] = {}
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            if (index / "type").read_text().strip() == "Instruction":
                continue
            text = (index / "size").read_text().strip()
            unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1], 1)
            sizes[int((index / "level").read_text())] = int(text.rstrip("KM")) * unit
        except (OSError, ValueError):
            continue
    return sizes


def _device_name() -> str:
    """The processor's own name, for provenance and the key."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return " ".join(line.split(":", 1)[1].split())
    except OSError:
        pass
    import platform

    return platform.processor() or platform.machine()


__all__ = ["GROUP_BYTES", "ITEM_BYTES", "Target", "usable_cores"]
