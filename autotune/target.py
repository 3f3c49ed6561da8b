"""The machine that code is generated for, with a fingerprint that keys the tuning database."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from typing import NamedTuple

from autotune import settings
from autotune.errors import TargetError
from autotune.foreign import parse_json
from autotune.hardware import (
    architecture,
    cache_sizes,
    device_name,
    instruction_sets,
    permitted,
    usable_cores,
)
from autotune.suggest import counted, listing

ITEM_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint64": 8,
    "uint32": 4,
    "uint16": 2,
    "uint8": 1,
    "bool": 1,
    "int4": 1,
    "uint4": 1,
    "int2": 1,
    "uint2": 1,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float6_e2m3fn": 1,
    "float6_e3m2fn": 1,
    "float4_e2m1fn": 1,
}
"""Bytes of an element in memory, by dtype."""

GROUP_BYTES = 16
"""Part of a vector register within which interleaving two registers is one instruction everywhere."""


class _InstructionSet(NamedTuple):
    """The instructions that code may use: architecture, LLVM's name of a processor and its features,
    sorted; vector bits."""

    arch: str
    cpu: str
    features: tuple[str, ...]
    vector_bits: int


_V2 = ("sse2", "sse4.2")
_V3 = (*_V2, "avx", "avx2", "f16c", "fma")
_V4 = (*_V3, "avx512bw", "avx512dq", "avx512f", "avx512vl")
_V4_BF16 = (*_V4, "avx512vnni", "avx512bf16")
_AMX = ("amx-bf16", "amx-int8", "amx-tile")
_CUDA = ("fma", "fp64", "gpu", "local", "mma")
"""Fused products and sums, tensor cores for half, bfloat16 and TF32, and memory that a block of threads shares."""


def _sorted(features: tuple[str, ...], *more: str) -> tuple[str, ...]:
    return tuple(sorted((*features, *more)))


_LEVELS = {
    "x86-64": _InstructionSet("x86_64", "x86-64", ("sse2",), 128),
    "x86-64-v2": _InstructionSet("x86_64", "x86-64-v2", _V2, 128),
    "x86-64-v3": _InstructionSet("x86_64", "x86-64-v3", _sorted(_V3), 256),
    "x86-64-v3-vnni": _InstructionSet("x86_64", "x86-64-v3", _sorted(_V3, "avxvnni"), 256),
    "x86-64-v4": _InstructionSet("x86_64", "x86-64-v4", _sorted(_V4), 512),
    "x86-64-v4-vnni": _InstructionSet("x86_64", "cascadelake", _sorted(_V4, "avx512vnni"), 512),
    "x86-64-v4-bf16": _InstructionSet("x86_64", "cooperlake", _sorted(_V4_BF16), 512),
    "x86-64-v4-amx": _InstructionSet("x86_64", "cooperlake", _sorted(_V4_BF16, *_AMX), 512),
    "aarch64": _InstructionSet("aarch64", "generic", ("neon",), 128),
    "aarch64-dotprod": _InstructionSet("aarch64", "generic", ("dotprod", "neon"), 128),
}
"""Instruction sets by name; as targets their caches are those of a plain server core."""

_LLVM_FEATURES = {"nvptx64": "+ptx78"}
"""The options of LLVM where features are more than instruction sets: for NVIDIA the version of PTX, that
of CUDA 11.8."""


# The features that change which code is generated or how fast it runs; others would only split the database.
_KEPT_FEATURES = {
    "x86_64": (
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
        "amx-bf16",
        "amx-fp16",
        "amx-int8",
        "amx-tile",
    ),
    "aarch64": ("neon", "dotprod", "sve"),
}


_OF_DEVICES = ("group_items", "shared_bytes", "driver")
"""Fields that a CPU has not: its key is the same as before there were any."""


@dataclass(frozen=True, repr=False)
class Target:
    """A machine as the compiler sees it: a CPU, an OpenCL device, or a GPU of NVIDIA.

    Sizes are in bytes; ``l3_bytes`` is the shared cache. ``threads`` is how many workers a model uses, and is
    part of the key because the best schedule depends on it. Of a device that runs groups of threads ``cores`` are the
    compute units, ``group_items`` the most threads of a group and ``shared_bytes`` the memory that these share;
    ``driver`` is the version of what compiles code for it: another one makes other machine code.
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
    group_items: int = 0
    shared_bytes: int = 0
    driver: str = ""

    def __repr__(self) -> str:
        return (
            f"<Target {self.arch} {self.cpu}, {self.device}: {self.vector_bits}-bit vectors, "
            f"{counted(self.threads, 'thread')} of {counted(self.cores, 'core')}, caches {self.l1_bytes >> 10} KiB, "
            f"{self.l2_bytes >> 10} KiB and {self.l3_bytes / (1 << 20):g} MiB>"
        )

    @property
    def key(self) -> str:
        """SHA-256 of the canonical JSON: equal on equal machines, whatever the version."""
        return _key(self)

    @property
    def name(self) -> str:
        """Return the name that people use: the processor, or else the level, and the number of workers of a model."""
        return f"{self.cpu if self.device == 'generic' else self.device}, {counted(self.threads, 'thread')}"

    @property
    def registers(self) -> int:
        """Architectural vector registers."""
        return 32 if self.vector_bits >= 512 or self.arch == "aarch64" or self.is_nvidia else 16

    @property
    def is_nvidia(self) -> bool:
        """Return whether code is PTX, for the threads of a grid."""
        return self.arch == "nvptx64"

    @property
    def activations(self) -> str:
        """The type of first operands that the dot products of small integers take: weights are int8."""
        return "int8" if self.arch == "aarch64" else "uint8"

    @property
    def has_byte_dots(self) -> bool:
        """Return whether dot products of bytes of either sign are one instruction of vectors (VNNI)."""
        return self.arch == "x86_64" and not {"avx512vnni", "avxvnni"}.isdisjoint(self.features)

    @property
    def llvm_features(self) -> str:
        """Features as LLVM takes them, beside ``cpu``: a processor's name alone promises what a hypervisor may mask."""
        if self.arch in _LLVM_FEATURES:
            return _LLVM_FEATURES[self.arch]
        kept = _KEPT_FEATURES.get(self.arch, ())
        return ",".join(("+" if feature in self.features else "-") + feature for feature in kept)

    def lacking_here(self) -> list[str]:
        """Return features, or the architecture, that this target's code needs beyond this machine; empty when it runs.

        Where the setting ``host`` names a level, the machine counts as that. Needs no LLVM where the system tells.
        """
        own, level = instruction_sets(), _LEVELS.get(settings.current().host)
        if not own or (settings.current().host and (level is None or not {*level.features} <= own)):
            return Target.detect().lacks(self)  # which says what is wrong with the level
        if self.arch != architecture():
            return [self.arch]
        return sorted({*self.features} - (own if level is None else {*level.features}))

    def lacks(self, other: Target) -> list[str]:
        """Return features, or the architecture, that code for ``other`` needs beyond this machine; empty
        when it runs."""
        return _lacks(self, other)

    def lanes(self, dtype: str) -> int:
        """Return elements of ``dtype`` in one vector register.

        >>> Target.parse("x86-64-v3").lanes("float32")
        8
        """
        return max(1, self.vector_bits // 8 // ITEM_BYTES[dtype])

    def to_json(self) -> str:
        """Return the canonical JSON, parsed back by :meth:`from_json`."""
        fields = {name: value for name, value in asdict(self).items() if value or name not in _OF_DEVICES}
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Target:
        """Read what :meth:`to_json` wrote; raises TargetError."""
        try:
            fields = parse_json(text)
            fields["features"] = tuple(fields["features"])
            return Target(**fields)
        except (ValueError, TypeError, KeyError) as error:
            raise TargetError(f"not a target description: {text[:80]!r} ({error})") from error

    def with_threads(self, threads: int | None) -> Target:
        """Return the same machine used with another number of threads (None keeps it)."""
        if threads is None:
            return self
        if threads < 1:
            raise TargetError(f"threads must be at least 1, got {threads}")
        return replace(self, threads=threads)

    @staticmethod
    def parse(text: str | Target, threads: int | None = None) -> Target:
        """Return a target from its name: ``host``, a named level, or a device that is here, ``opencl``
        or ``opencl:NUMBER``.

        Raises TargetError, and MissingExtraError for an OpenCL device without the package.
        """
        if isinstance(text, Target):
            return text.with_threads(threads)
        if text == "host":
            return Target.detect(threads)
        if text == "opencl" or text.startswith("opencl:"):
            from autotune.opencl import target_named

            return target_named(text).with_threads(threads)
        if text == _GENERIC_DEVICE.cpu:
            return _GENERIC_DEVICE.with_threads(threads)
        if text in NVIDIA:
            return NVIDIA[text].with_threads(threads)
        if text not in _LEVELS:
            raise TargetError(f"unknown target {text!r}; known targets: {listing(text, known_targets())}")
        return Target(*_LEVELS[text], cores=1, threads=1).with_threads(threads)

    @staticmethod
    def detect(threads: int | None = None) -> Target:
        """Return this machine's target; ``threads`` defaults to the cores that this process may use.

        Where the setting ``host`` names a level, the instruction set is that level's; cores and caches stay those
        of the machine. Raises TargetError for a level that the machine cannot run.
        """
        cores, caches = usable_cores(), cache_sizes()
        return Target(
            *_instruction_set(),
            cores=cores,
            threads=cores,
            l1_bytes=caches.get(1, 32 << 10),
            l2_bytes=caches.get(2, 512 << 10),
            l3_bytes=caches.get(3, 8 << 20),
            device=device_name(),
        ).with_threads(threads)


_GENERIC_DEVICE = Target(
    "opencl",
    "opencl-generic",
    ("fp64", "gpu", "local"),
    128,
    cores=8,
    threads=8,
    l3_bytes=1 << 20,
    group_items=256,
    shared_bytes=32 << 10,
)
"""An OpenCL device that code can be made for where there is none."""


def _nvidia(cpu: str, units: int, l2_bytes: int) -> Target:
    return Target(
        "nvptx64",
        cpu,
        _CUDA,
        128,
        cores=units,
        threads=units,
        l1_bytes=128 << 10,
        l2_bytes=l2_bytes,
        l3_bytes=l2_bytes,
        group_items=1024,
        shared_bytes=48 << 10,
    )


NVIDIA = {
    "cuda:sm_80": _nvidia("sm_80", 108, 40 << 20),
    "cuda:sm_86": _nvidia("sm_86", 84, 6 << 20),
    "cuda:sm_89": _nvidia("sm_89", 128, 72 << 20),
    "cuda:sm_90": _nvidia("sm_90", 132, 50 << 20),
}
"""GPUs of NVIDIA by what code is for; caches and multiprocessors are those of common ones."""


def known_targets() -> list[str]:
    """Return the names that :meth:`Target.parse` takes, but for those of devices of this machine."""
    return ["host", *_LEVELS, "opencl", _GENERIC_DEVICE.cpu, *NVIDIA]


@lru_cache(maxsize=1024)
def _key(target: Target) -> str:
    return hashlib.sha256(target.to_json().encode()).hexdigest()


def _instruction_set() -> _InstructionSet:
    """Return the instruction set that this machine counts as: its own, or the level that the settings name."""
    own, name = _own_instruction_set(), settings.current().host
    if not name:
        return own
    level = _LEVELS.get(name)
    lacking = _lacks(own, level) if level else []
    if level and not lacking:
        return level
    reason = f"this machine lacks {', '.join(lacking)}" if level else "no such level"
    allowed = ", ".join(known for known, other in _LEVELS.items() if not _lacks(own, other))
    variable = settings.environment_name("host")
    raise TargetError(f"{variable}={name}: {reason}; this machine can count as {allowed or 'itself only'}")


def _lacks(own: _InstructionSet | Target, other: _InstructionSet | Target) -> list[str]:
    if other.arch != own.arch:
        return [other.arch]
    return sorted({*other.features} - {*own.features})


@cache
def _own_instruction_set() -> _InstructionSet:
    """Return the processor's own instruction set, whatever the settings say."""
    import llvmlite.binding as llvm

    have = llvm.get_host_cpu_features()
    kept = (name for name in _KEPT_FEATURES.get(architecture(), ()) if have.get(name))
    features = tuple(sorted(permitted(kept)))
    bits = 512 if "avx512f" in features else 256 if "avx2" in features else 128
    return _InstructionSet(architecture(), llvm.get_host_cpu_name(), features, bits)


__all__ = ["GROUP_BYTES", "ITEM_BYTES", "NVIDIA", "Target", "known_targets"]
