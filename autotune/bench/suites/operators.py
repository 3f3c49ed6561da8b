"""The operator suite of Ansor (Zheng et al., OSDI 2020), batch 1, float32, and shapes no tile divides."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from autotune.bench.problem import BenchmarkCase, Problem
from autotune.bench.suites.convolutions import Convolution, capsule, convolution, transposed
from autotune.bench.suites.dense import attention_scores, matmul, norm, softmax
from autotune.errors import UsageError
from autotune.suggest import listing

Parameters = tuple[int, ...]
GROUPS, DILATION = 4, 2

FAMILIES: Mapping[str, str] = {
    "C1D": "conv1d_nlc (N,L,CI,CO,k,stride,pad)",
    "C2D": "conv2d_nhwc (N,H,W,CI,CO,k,s,p)",
    "C3D": "conv3d_ndhwc (N,D,H,W,CI,CO,k,s,p)",
    "GMM": "batch matmul (B,N,M,K)",
    "GRP": "grouped conv2d, 4 groups (N,H,W,CI,CO,k,s,p)",
    "DIL": "conv2d, dilation 2 (N,H,W,CI,CO,k,s,p)",
    "DEP": "depthwise conv2d (N,H,W,C,k,s,p)",
    "T2D": "transposed conv2d (N,H,W,CI,CO,k,s,p)",
    "CAP": "capsule conv2d, 4×4 capsules (N,H,W,CI,CO,k,s,p)",
    "NRM": "sqrt of the sum of squares a batch (B,M,N)",
    "SFM": "softmax over axis 1 (M,N)",
    "CBR": "conv2d + bias + batch norm + ReLU (N,H,W,CI,CO,k,s,p)",
    "TBG": "two transposes and a batch matmul (batch,seq,heads,dim)",
    "ODD": "conv2d at sizes no tile divides (N,H,W,CI,CO,k,s,p)",
}
"""The families, each with the order of its parameters."""

_IMAGES: Sequence[Parameters] = (
    (1, 224, 224, 3, 64, 7, 2, 3),
    (1, 56, 56, 64, 64, 1, 1, 0),
    (1, 14, 14, 256, 256, 3, 1, 1),
    (1, 7, 7, 512, 512, 3, 1, 1),
)

SHAPES: Mapping[str, Sequence[Parameters]] = {
    "C1D": (
        (1, 256, 64, 128, 3, 2, 1), (1, 128, 128, 256, 1, 2, 0),
        (1, 64, 256, 256, 5, 1, 2), (1, 32, 512, 512, 3, 1, 1),
    ),
    "C2D": _IMAGES,
    "C3D": tuple((n, 16, *rest) for n, *rest in _IMAGES),
    "GMM": ((1, 128, 128, 128), (1, 512, 32, 512), (1, 512, 512, 512), (1, 1024, 1024, 1024)),
    "GRP": ((1, 56, 56, 64, 128, 3, 2, 1), *_IMAGES[1:]),
    "DIL": _IMAGES,
    "DEP": (
        (1, 112, 112, 32, 3, 1, 1), (1, 112, 112, 64, 3, 2, 1),
        (1, 14, 14, 512, 3, 2, 1), (1, 7, 7, 1024, 3, 1, 1),
    ),
    "T2D": (
        (1, 4, 4, 512, 256, 4, 2, 1), (1, 8, 8, 256, 128, 4, 2, 1),
        (1, 16, 16, 128, 64, 4, 2, 1), (1, 32, 32, 64, 3, 4, 2, 1),
    ),
    "CAP": (
        (1, 16, 16, 32, 32, 3, 2, 1), (1, 8, 8, 32, 32, 3, 1, 1),
        (1, 16, 16, 8, 16, 3, 2, 1), (1, 8, 8, 16, 16, 3, 1, 1),
    ),
    "NRM": ((1, 256, 256), (1, 512, 512), (1, 1024, 1024), (1, 4096, 1024)),
    "SFM": ((256, 256), (512, 512), (1024, 1024), (2048, 2048)),
    "CBR": (
        (1, 224, 224, 3, 64, 7, 2, 3), (1, 56, 56, 64, 128, 3, 2, 1),
        (1, 28, 28, 128, 256, 1, 2, 0), (1, 7, 7, 512, 512, 3, 1, 1),
    ),
    "TBG": ((1, 128, 12, 64), (1, 128, 16, 64), (1, 64, 12, 128), (1, 128, 12, 128)),
    "ODD": tuple((1, h, h, c, c, 3, 1, 1) for h in (7, 13, 35) for c in (3, 48, 96, 336)),
}  # fmt: skip
"""Parameters of every operator."""


def _sizes(rank: int, parameters: Parameters, **more: int) -> Convolution:
    """From (N, spatial..., CI, CO, k, s, p)."""
    batch, size, rest = parameters[0], parameters[1 : rank + 1], parameters[rank + 1 :]
    inputs, outputs, kernel, stride, pad = rest
    return Convolution(size, inputs, outputs, kernel, stride, pad, batch=batch, **more)


def _depthwise(parameters: Parameters, seed: int) -> Problem:
    n, h, w, channels, kernel, stride, pad = parameters
    return convolution(
        Convolution((h, w), channels, channels, kernel, stride, pad, groups=channels, batch=n), seed
    )


_BUILD: Mapping[str, Callable[[Parameters, int], Problem]] = {
    "C1D": lambda p, seed: convolution(_sizes(1, p), seed),
    "C2D": lambda p, seed: convolution(_sizes(2, p), seed),
    "C3D": lambda p, seed: convolution(_sizes(3, p), seed),
    "GMM": lambda p, seed: matmul(p[1:], seed, batch=p[:1]),
    "GRP": lambda p, seed: convolution(_sizes(2, p, groups=GROUPS), seed),
    "DIL": lambda p, seed: convolution(_sizes(2, p, dilation=DILATION), seed),
    "DEP": _depthwise,
    "T2D": lambda p, seed: transposed(_sizes(2, p), seed),
    "CAP": lambda p, seed: capsule(_sizes(2, p), seed),
    "NRM": lambda p, seed: norm(p, seed),
    "SFM": lambda p, seed: softmax(p, seed),
    "CBR": lambda p, seed: convolution(_sizes(2, p), seed, normalised=True),
    "TBG": lambda p, seed: attention_scores(p, seed),
    "ODD": lambda p, seed: convolution(_sizes(2, p), seed),
}


def case(family: str, parameters: Parameters) -> BenchmarkCase:
    """One operator; its weights and inputs depend on its name only."""
    name = f"({','.join(map(str, parameters))})"
    seed = zlib.crc32(f"{family} {name}".encode())
    return BenchmarkCase(family, name, partial(_BUILD[family], parameters, seed))


def cases(families: Sequence[str] = tuple(FAMILIES)) -> Iterator[BenchmarkCase]:
    """All operators of the families, in the suite's order."""
    for family in families:
        for parameters in SHAPES[family]:
            yield case(family, parameters)


def named(name: str) -> list[BenchmarkCase]:
    """The operators of a family such as ``C2D``, or one of any size such as ``GMM:1,512,512,512``.

    Raises UsageError for an unknown family and for parameters that are not its.
    """
    family, colon, text = name.partition(":")
    if family not in FAMILIES:
        raise UsageError(f"unknown family {family!r}; there are: {listing(family, FAMILIES)}")
    if not colon:
        return list(cases([family]))
    sizes = text.split(",")
    count = len(SHAPES[family][0])
    if len(sizes) != count or not all(size.isdecimal() for size in sizes):
        raise UsageError(f"{name!r}: {family} takes {count} whole numbers: {FAMILIES[family]}")
    return [case(family, tuple(map(int, sizes)))]


def smallest(found: Iterable[BenchmarkCase]) -> list[BenchmarkCase]:
    """The operator of each family with the fewest operations."""
    by_family: dict[str, list[BenchmarkCase]] = {}
    for one in found:
        by_family.setdefault(one.family, []).append(one)
    return [min(members, key=lambda one: one.build().flops) for members in by_family.values()]


__all__ = ["DILATION", "FAMILIES", "GROUPS", "SHAPES", "case", "cases", "named", "smallest"]
