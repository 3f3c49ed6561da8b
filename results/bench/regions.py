"""Regions of every family of search spaces, by family: what predictions of the cost model are tried on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.graph.build import GraphBuilder
from autotune.graph.region import Region, Workload


def _workload(builder: GraphBuilder, output: str, *constants: str) -> Workload:
    return Workload.from_region(Region(builder.graph(output), frozenset(constants)))


def _matmul(*shape: int, batch: Sequence[int] = ()) -> Workload:
    """[batch, m, k] @ [k, n] with constant weights, or @ [batch, k, n]."""
    m, k, n = shape
    b = GraphBuilder("matmul")
    out = b.node("MatMul", b.input("x", (*batch, m, k)), b.input("w", (*batch, k, n)))
    return _workload(b, out) if batch else _workload(b, b.node("Relu", out), "w")


def _conv(image: Sequence[int], channels: int, kernel: int, stride: int = 1, group: int = 1) -> Workload:
    """A channels-last convolution of an image [h, w, c] that keeps its size, with bias and ReLU."""
    h, w, c = image
    b = GraphBuilder("conv")
    weights = b.input("w", (kernel, kernel, c // group, channels))
    inputs = (b.input("x", (1, h, w, c)), weights, b.input("bias", (channels,)))
    pads = (kernel // 2,) * 4
    out = b.node("Conv", *inputs, layout="NHWC", strides=(stride,) * 2, pads=pads, group=group)
    return _workload(b, b.node("Relu", out), "w", "bias")


def _depthwise(image: Sequence[int], kernel: int, stride: int = 1) -> Workload:
    channels = image[-1]
    return _conv(image, channels, kernel, stride, group=channels)


def _pool(op: str, image: Sequence[int], kernel: int, stride: int) -> Workload:
    b = GraphBuilder("pool")
    window: dict[str, Any] = {"kernel_shape": (kernel,) * 2, "strides": (stride,) * 2}
    return _workload(b, b.node(op, b.input("x", (1, *image)), layout="NHWC", **window))


def _unary(op: str, shape: Sequence[int], **attributes: Any) -> Workload:
    b = GraphBuilder(op)
    return _workload(b, b.node(op, b.input("x", shape), **attributes))


def _gather(rows: int, width: int, picked: int) -> Workload:
    """Rows of a table at int64 indices."""
    b = GraphBuilder("gather")
    return _workload(b, b.node("Gather", b.input("t", (rows, width)), b.input("i", (picked,), "int64")))


def _layer_norm(*shape: int) -> Workload:
    b = GraphBuilder("norm")
    inputs = (b.input("x", shape), b.input("s", shape[-1:]), b.input("b", shape[-1:]))
    return _workload(b, b.node("LayerNormalization", *inputs), "s", "b")


def _winograd_output(image: Sequence[int], tile: int) -> Workload:
    h, w, c = image
    b = GraphBuilder("winograd")
    transformed = b.input("m", (tile + 2, tile + 2, 1, -(-h // tile), -(-w // tile), c))
    return _workload(b, b.node("Relu", b.node("WinogradOutput", transformed, tile=tile, size=(h, w))))


def _attention(heads: int, queries: int, keys: int, depth: int) -> Workload:
    b = GraphBuilder("attention")
    sizes = {"q": queries, "k": keys, "v": keys}
    return _workload(
        b, b.node("Attention", *(b.input(n, (1, heads, size, depth)) for n, size in sizes.items()))
    )


def workloads() -> Mapping[str, Mapping[str, Workload]]:
    """The regions by family and name, small ones that stay in the caches and large ones that do not."""
    return {
        "contraction": {
            "512×512×512": _matmul(512, 512, 512),
            "128×768×3072": _matmul(128, 768, 3072),
            "12 of 128×64×128": _matmul(128, 64, 128, batch=(12,)),
        },
        "convolution": {
            "56²×64 3×3": _conv((56, 56, 64), 64, 3),
            "14²×256 3×3": _conv((14, 14, 256), 256, 3),
            "28²×128 1×1": _conv((28, 28, 128), 256, 1),
        },
        "depthwise": {
            "112²×32 3×3": _depthwise((112, 112, 32), 3),
            "56²×144 5×5": _depthwise((56, 56, 144), 5),
            "14²×512 3×3/2": _depthwise((14, 14, 512), 3, 2),
            "7²×1024 3×3": _depthwise((7, 7, 1024), 3),
        },
        "pool": {
            "max 112²×64 3×3/2": _pool("MaxPool", (112, 112, 64), 3, 2),
            "mean 56²×256 2×2/2": _pool("AveragePool", (56, 56, 256), 2, 2),
            "max 14²×512 5×5": _pool("MaxPool", (14, 14, 512), 5, 1),
            "mean 448²×64 3×3": _pool("AveragePool", (448, 448, 64), 3, 1),
        },
        "elementwise": {
            "heads 128×12×64": _unary("Transpose", (1, 128, 12, 64), perm=(0, 2, 3, 1)),
            "transpose 1024×768": _unary("Transpose", (1024, 768), perm=(1, 0)),
            "channels last 64×112²": _unary("Transpose", (1, 64, 112, 112), perm=(0, 2, 3, 1)),
            "gather 4096 of 20000×256": _gather(20_000, 256, 4096),
        },
        "reduction": {
            "mean 7²×2048": _unary("ReduceMean", (2048, 49), axes=(1,), keepdims=0),
            "sum 512×4096": _unary("ReduceSum", (512, 4096), axes=(1,), keepdims=0),
            "sum 4×65536": _unary("ReduceSum", (4, 65536), axes=(1,), keepdims=0),
        },
        "softmax": {
            "512×512": _unary("Softmax", (512, 512), axis=1),
            "1536×128": _unary("Softmax", (1536, 128), axis=1),
            "64×8192": _unary("Softmax", (64, 8192), axis=1),
        },
        "normalization": {"128×768": _layer_norm(128, 768), "2048×1024": _layer_norm(2048, 1024)},
        "winograd": {
            "input 56²×64": _unary("WinogradInput", (1, 56, 56, 64), tile=4, pads=(1, 1, 1, 1)),
            "input 14²×512": _unary("WinogradInput", (1, 14, 14, 512), tile=4, pads=(1, 1, 1, 1)),
            "output 28²×128": _winograd_output((28, 28, 128), 4),
            "output 56²×256": _winograd_output((56, 56, 256), 4),
        },
        "attention": {"12×128×64": _attention(12, 128, 128, 64), "8×512×64": _attention(8, 512, 512, 64)},
    }


__all__ = ["workloads"]
