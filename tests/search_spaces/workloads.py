"""Small workloads of every family, and a runner of their schedules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from autotune.codegen.backend import compile_schedule
from autotune.codegen.code import BufferSpec
from autotune.codegen.jit import LoadedCode
from autotune.graph.build import GraphBuilder
from autotune.graph.ops.minimal_filtering import Filtering
from autotune.graph.region import Region, Workload
from autotune.passes.algorithms.separable_pool import SeparablePool
from autotune.passes.algorithms.winograd import Winograd
from autotune.passes.options import options_of
from autotune.target import Target
from search_spaces.space import Space
from tests.codegen.native import call_kernel

AVX2 = Target.parse("x86-64-v3", threads=2)
AVX512 = Target.parse("x86-64-v4", threads=2)


@cache
def host() -> Target:
    """This machine."""
    return Target.detect(threads=2)


def matmul(*shape: int, batch: Sequence[int] = (), constant: bool = True, relu: bool = True) -> Workload:
    """[batch, m, k] @ [batch or none, k, n], with a bias and ReLU on request."""
    m, k, n = shape
    b = GraphBuilder("matmul")
    x = b.input("x", (*batch, m, k))
    w = b.input("w", (k, n) if constant else (*batch, k, n))
    out = b.node("MatMul", x, w, name="mm")
    if relu:
        bias = b.input("bias", (n,))
        out = b.node("Relu", b.node("Add", out, bias))
    fixed = {"w", "bias"} if constant else set()
    return of(b, out, fixed & set(b.graph(out).inputs))


def stored_matmul(dtype: str, *shape: int, batch: Sequence[int] = ()) -> Workload:
    """[batch, m, k] @ [batch, k, n] of weights that are stored in a shorter type, scaled and with a bias."""
    m, k, n = shape
    b = GraphBuilder("stored")
    x, w = b.input("x", (*batch, m, k)), b.input("w", (*batch, k, n), dtype)
    out = b.node("Mul", b.node("MatMul", x, w, name="mm"), b.input("scale", (n,)))
    return of(b, b.node("Add", out, b.input("bias", (n,))), {"w", "scale", "bias"})


def stored_conv(dtype: str, image: tuple[int, int, int, int], oc: int) -> Workload:
    """A 3x3 convolution with weights that are stored in a shorter type, and ReLU."""
    b = GraphBuilder("stored")
    x, w = b.input("x", image), b.input("w", (3, 3, image[-1], oc), dtype)
    return of(b, b.node("Relu", b.node("Conv", x, w, pads=(1, 1, 1, 1), layout="NHWC")), {"w"})


def gemm(m: int, k: int, n: int, trans_b: int = 1) -> Workload:
    """Gemm with a constant, possibly transposed weight."""
    b = GraphBuilder("gemm")
    x, w = b.input("x", (m, k)), b.input("w", (n, k) if trans_b else (k, n))
    out = b.node("Gemm", x, w, b.input("c", (n,)), transB=trans_b)
    return of(b, out, {"w", "c"})


def conv(
    image: tuple[int, int, int, int],
    oc: int,
    kernel: int,
    *,
    stride: int = 1,
    pad: int = 0,
    group: int = 1,
    layout: str = "NHWC",
    bias: bool = True,
    residual: bool = False,
) -> Workload:
    """A convolution of an [n, h, w, c] image (given in that order for both layouts), ReLU behind it."""
    n, h, w, c = image
    b = GraphBuilder("conv")
    last = layout == "NHWC"
    x = b.input("x", (n, h, w, c) if last else (n, c, h, w))
    shape = (kernel, kernel, c // group, oc) if last else (oc, c // group, kernel, kernel)
    inputs = [x, b.input("w", shape)]
    if bias:
        inputs.append(b.input("bias", (oc,)))
    out = b.node("Conv", *inputs, layout=layout, strides=(stride,) * 2, pads=(pad,) * 4, group=group)
    if residual:
        out = b.node("Add", out, b.input("r", b.type_of(out).shape))
    return of(b, b.node("Relu", out), {"w", "bias"} if bias else {"w"})


def depthwise_chain(
    image: tuple[int, int, int, int],
    oc: int,
    kernel: int = 3,
    stride: int = 1,
    *,
    widened: int = 0,
    residual: bool = False,
) -> Workload:
    """A depthwise convolution of an [n, h, w, c] image, before it one of 1x1 if ``widened``, one after it if ``oc``."""
    b = GraphBuilder("chain")
    x, channels, weights = b.input("x", image), image[-1], []

    def convolved(x: str, shape: tuple[int, ...], **attrs: Any) -> str:
        weights.append(b.input(f"w{len(weights)}", shape))
        return b.node("Conv", x, weights[-1], layout="NHWC", **attrs)

    def finished(x: str) -> str:
        weights.append(b.input(f"w{len(weights)}", (channels,)))
        return b.node("Clip", b.node("Add", x, weights[-1]), min=0.0, max=6.0)

    if widened:
        x = convolved(x, (1, 1, channels, widened))
        channels = widened
        x = finished(x)
    window = {"strides": (stride,) * 2, "pads": (kernel // 2,) * 4, "group": channels}
    x = finished(convolved(x, (kernel, kernel, 1, channels), **window))
    if oc:
        x = convolved(x, (1, 1, channels, oc))
    if residual:
        x = b.node("Add", x, b.input("r", b.type_of(x).shape))
    return of(b, x, set(weights))


def pooled_convolution(op: str, image: tuple[int, int, int, int], oc: int, *, stride: int = 1) -> Workload:
    """A 3x3 convolution of an [n, h, w, c] image with ReLU, then a pool by windows that overlap."""
    b = GraphBuilder("chain")
    weights = b.input("w", (3, 3, image[-1], oc))
    x = b.node("Conv", b.input("x", image), weights, layout="NHWC", strides=(stride,) * 2, pads=(1,) * 4)
    window = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 0, 0), "layout": "NHWC"}
    return of(b, b.node(op, b.node("Relu", x), **window), {"w"})


def chained_products(m: int, k: int, n: int) -> Workload:
    """Rows that are normalised after a product: a chain that no family has tiles for."""
    b = GraphBuilder("chain")
    return of(b, b.node("Softmax", b.node("MatMul", b.input("x", (m, k)), b.input("w", (k, n)))), {"w"})


def stem(image: tuple[int, int, int, int], oc: int, kernel: int, stride: int, pad: int) -> Workload:
    """A channels-last convolution of an image [n, c, h, w]."""
    n, c, h, w = image
    b = GraphBuilder("stem")
    x = b.node("Transpose", b.input("x", (n, c, h, w)), perm=(0, 2, 3, 1))
    weights = b.input("w", (kernel, kernel, c, oc))
    out = b.node("Conv", x, weights, layout="NHWC", strides=(stride,) * 2, pads=(pad,) * 4)
    return of(b, b.node("Relu", out), {"w"})


def conv_nd(
    size: tuple[int, ...], c: int, oc: int, kernel: int, *, stride: int = 1, pad: int = 0, dilation: int = 1
) -> Workload:
    """A channels-last convolution of one image of any rank, ReLU behind it."""
    b, rank = GraphBuilder("conv"), len(size)
    x, w = b.input("x", (1, *size, c)), b.input("w", (*(kernel,) * rank, c, oc))
    window = {"strides": (stride,) * rank, "dilations": (dilation,) * rank, "pads": (pad,) * 2 * rank}
    return of(b, b.node("Relu", b.node("Conv", x, w, layout="NHWC", **window)), {"w"})


def winograd_input(image: tuple[int, ...], tile: int, **attrs: Any) -> Workload:
    """The transformed windows of an image [n, spatial..., c], padded by one."""
    b = GraphBuilder("winograd_input")
    pads = (1,) * 2 * (len(image) - 2)
    return of(b, b.node("WinogradInput", b.input("x", image), tile=tile, pads=pads, **attrs))


def winograd_products(v: tuple[int, ...], kernel: int, channels: int, **attrs: Any) -> Workload:
    """Products of windows [p, n, d, tiles, c] with constant weights of a window along d."""
    b = GraphBuilder("winograd_products")
    u = b.input("u", (v[0], kernel, v[-1], channels))
    return of(b, b.node("WinogradProducts", b.input("v", v), u, **attrs), {"u"})


def winograd_output(image: tuple[int, ...], tile: int, taps: int = 3, dilation: int = 1) -> Workload:
    """The result [n, h, w, c] or [n, w, c] of transformed products, with bias, residual and ReLU."""
    n, *size, c = image
    b = GraphBuilder("winograd_output")
    filterings = [Filtering(tile, taps, length, dilation) for length in size]
    m = b.input("m", (*(f.window for f in filterings), n, *(f.tiles for f in filterings), c))
    own = {"tile": tile, "taps": taps, "dilations": (dilation,) * len(size)}
    y = b.node("WinogradOutput", m, size=tuple(size), **own)
    y = b.node("Add", b.node("Add", y, b.input("bias", (c,))), b.input("r", image))
    return of(b, b.node("Relu", y), {"bias"})


def winograd_blocks(
    image: tuple[int, int, int, int],
    channels: int,
    tile: int,
    pads: tuple[int, ...] = (1,) * 4,
    tail: bool = True,
) -> Workload:
    """A convolution 3x3 of an image [n, h, w, c] by Winograd's steps in one, with bias, residual and ReLU."""
    b = GraphBuilder("winograd_blocks")
    x, w = b.input("x", image), b.input("w", (3, 3, image[-1], channels))
    y = b.node("Conv", x, w, layout="NHWC", pads=pads)
    if tail:
        y = b.node("Add", b.node("Add", y, b.input("bias", (channels,))), b.input("r", b.type_of(y).shape))
        y = b.node("Relu", y)
    whole = of(b, y, {"w", "bias"} if tail else {"w"})
    (found,) = (o for o in options_of(whole) if o.name == Winograd(tile, fused=True).label)
    return found.regions[0]


def separable_pool(image: tuple[int, int, int, int], window: int, pads: tuple[int, ...]) -> Workload:
    """Maxima of square windows of an image [n, h, w, c], along rows and then along columns in one."""
    whole = pool(image, kernel_shape=(window, window), pads=pads)
    (found,) = (o for o in options_of(whole) if o.name == SeparablePool.label)
    return found.regions[0]


def strassen_output(shape: tuple[int, ...]) -> Workload:
    """The result of seven products of this shape, with bias, residual and ReLU."""
    b = GraphBuilder("strassen_output")
    y = b.node("StrassenOutput", b.input("m", (7, *shape)))
    y = b.node("Add", b.node("Add", y, b.input("bias", (2 * shape[-1],))), b.input("r", b.type_of(y).shape))
    return of(b, b.node("Relu", y), {"bias"})


def pool(image: tuple[int, int, int, int], op: str = "MaxPool", **attrs: Any) -> Workload:
    """A pool of a channels-last image."""
    b = GraphBuilder("pool")
    return of(b, b.node(op, b.input("x", image), layout="NHWC", **attrs))


def unary(op: str, shape: tuple[int, ...], dtype: str = "float32", **attrs: Any) -> Workload:
    """One operator of one input."""
    b = GraphBuilder("unary")
    return of(b, b.node(op, b.input("x", shape, dtype), **attrs))


def attention(
    queries: tuple[int, ...],
    keys: int,
    values: int,
    mask: tuple[int, ...] = (),
    mask_dtype: str = "float32",
    *,
    relu: bool = False,
    dtype: str = "float32",
    **attrs: Any,
) -> Workload:
    """Attention of queries [..., m, d] over ``keys`` keys with values of ``values`` elements."""
    b = GraphBuilder("attention")
    *lead, _, d = queries
    shapes = {"q": queries, "k": (*lead, keys, d), "v": (*lead, keys, values)}
    inputs = [b.input(name, shape, dtype) for name, shape in shapes.items()]
    if mask:
        inputs.append(b.input("mask", mask, mask_dtype))
    y = b.node("Attention", *inputs, **attrs)
    return of(b, b.node("Relu", y) if relu else y)


def typed_matmul(dtype: str) -> Workload:
    """A small matrix product of another type."""
    b = GraphBuilder("typed")
    return of(b, b.node("MatMul", b.input("x", (9, 17), dtype), b.input("w", (17, 33), dtype)), {"w"})


def two_outputs() -> Workload:
    """A matrix product that is stored before and after its ReLU."""
    b = GraphBuilder("two")
    product = b.node("MatMul", b.input("x", (9, 16)), b.input("w", (16, 24)))
    graph = b.graph(product, b.node("Relu", product))
    return Workload.from_region(Region(graph, frozenset({"w"})))


def transposed_around() -> Workload:
    """Views and arithmetic before a matrix product, a transpose behind it."""
    b = GraphBuilder("around")
    x = b.node("Relu", b.node("Transpose", b.input("x", (20, 12)), perm=(1, 0)))
    return of(b, b.node("Transpose", b.node("MatMul", x, b.input("w", (20, 24))), perm=(1, 0)), {"w"})


def layer_norm(*shape: int) -> Workload:
    """LayerNormalization of the last axis, with scale and bias."""
    b = GraphBuilder("norm")
    x = b.input("x", shape)
    scale, bias = b.input("s", shape[-1:]), b.input("b", shape[-1:])
    return of(b, b.node("LayerNormalization", x, scale, bias), {"s", "b"})


def row_norms(*shape: int) -> Workload:
    """Root of the sum of squares of each row, the squares in the region."""
    b = GraphBuilder("norms")
    x = b.input("x", shape)
    total = b.node("ReduceSum", b.node("Mul", x, x), axes=tuple(range(1, len(shape))), keepdims=0)
    return of(b, b.node("Sqrt", total))


def added_norm(*shape: int) -> Workload:
    """LayerNormalization of a sum, which several stages read."""
    b = GraphBuilder("added")
    x = b.node("Add", b.input("x", shape), b.input("y", shape))
    scale, bias = b.input("s", shape[-1:]), b.input("b", shape[-1:])
    return of(b, b.node("LayerNormalization", x, scale, bias), {"s", "b"})


def instance_norm(*shape: int) -> Workload:
    """InstanceNormalization of a channels-last image."""
    b = GraphBuilder("instance")
    x = b.input("x", shape)
    scale, bias = b.input("s", shape[-1:]), b.input("b", shape[-1:])
    return of(b, b.node("InstanceNormalization", x, scale, bias, layout="NHWC"), {"s", "b"})


def group_norm(groups: int, *shape: int) -> Workload:
    """GroupNormalization of a channels-last image, and a gate."""
    b = GraphBuilder("group")
    x = b.input("x", shape)
    scale, bias = b.input("s", shape[-1:]), b.input("b", shape[-1:])
    y = b.node("GroupNormalization", x, scale, bias, num_groups=groups, layout="NHWC")
    return of(b, b.node("Mul", y, b.node("Sigmoid", y)), {"s", "b"})


def looked_up(table: int, m: int, k: int, n: int) -> Workload:
    """Products of matrices that indices choose."""
    b = GraphBuilder("experts")
    data, indices = b.input("w", (table, m, k)), b.input("i", (3,), "int64")
    return of(b, b.node("MatMul", b.node("Gather", data, indices), b.input("x", (3, k, n))), {"w"})


def looked_up_on_the_right(table: int, m: int, k: int, n: int) -> Workload:
    """The same as the right operand."""
    b = GraphBuilder("experts")
    data, indices = b.input("w", (table, k, n)), b.input("i", (3, 1), "int64")
    found = b.node("GatherND", data, indices)
    return of(b, b.node("MatMul", b.input("x", (3, m, k)), found), {"w"})


def looked_up_sums(table: int, rows: int, k: int) -> Workload:
    """Sums of products of rows that pairs of indices choose."""
    b = GraphBuilder("rows")
    data, indices = b.input("w", (table, 3, k)), b.input("i", (rows, 2), "int64")
    terms = b.node("Mul", b.node("GatherND", data, indices), b.input("x", (rows, k)))
    return of(b, b.node("ReduceSum", terms, axes=(1,)), {"w"})


def residual_add(*shape: int) -> Workload:
    """Relu(x + y) * s with a broadcast s."""
    b = GraphBuilder("add")
    total = b.node("Add", b.input("x", shape), b.input("y", shape))
    return of(b, b.node("Mul", b.node("Relu", total), b.input("s", shape[-1:])), {"s"})


def strided_matmul() -> Workload:
    """A matrix product that reads and writes slices of wider buffers."""
    return Workload.parse(
        """region workload {
  input i0: float32[1, 4, 24, 16] strides=(1536, 16, 64, 1)
  input i1: float32[1, 4, 16, 20]
  v0 = MatMul(i0, i1) : float32[1, 4, 24, 20] strides=(1920, 20, 80, 1)
  output v0
}"""
    )


def gather(rows: int, width: int, picked: int) -> Workload:
    """Rows of a table at int64 indices."""
    b = GraphBuilder("gather")
    return of(b, b.node("Gather", b.input("t", (rows, width)), b.input("i", (picked,), "int64")))


def concat(*shapes: tuple[int, ...], axis: int = -1) -> Workload:
    """Concat along an axis."""
    b = GraphBuilder("concat")
    return of(b, b.node("Concat", *(b.input(f"x{i}", s) for i, s in enumerate(shapes)), axis=axis))


def of(builder: GraphBuilder, output: str, constants: set[str] | None = None) -> Workload:
    """The workload of a built graph."""
    return Workload.from_region(Region(builder.graph(output), frozenset(constants or ())))


def run(space: Space, config: Any, seed: int = 0) -> tuple[list[Any], list[Any]]:
    """(computed, expected) outputs of a configuration compiled for the space's target."""
    inputs = space.workload.random_inputs(seed)
    return run_on(space, config, inputs), space.workload.reference(inputs)


def run_on(space: Space, config: Any, inputs: list[Any]) -> list[Any]:
    """The outputs for given inputs."""
    program = space.workload.program()
    schedule = space.apply(program, config)
    code = compile_schedule(
        schedule, program.args, space.target, constants=program.constants, strides=program.strides
    )
    named = dict(zip([t.name for t in program.inputs], inputs, strict=True))
    memory = [_aligned(spec.nbytes) for spec in code.buffers]
    for spec, block in zip(code.buffers, memory, strict=True):
        if spec.role == "input":
            _view(block, spec, program.strides)[...] = named[spec.name]
    loaded = LoadedCode([code.object_code])
    for kernel in code.kernels:
        address = loaded.address(0, kernel.symbol)
        buffers = [memory[b] for b in kernel.buffers]
        call_kernel(address, buffers, kernel.tiles, kernel.scratch_bytes)
    loaded.close()
    computed = {
        spec.name: _view(block, spec, program.strides).copy()
        for spec, block in zip(code.buffers, memory, strict=True)
        if spec.role == "output"
    }
    return [computed[t.name] for t in program.outputs]


def _aligned(nbytes: int) -> Any:
    raw = np.zeros(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


def _view(block: Any, spec: BufferSpec, strides: Mapping[str, tuple[int, ...]]) -> Any:
    flat = block.view(spec.dtype)
    steps = strides.get(spec.name)
    if steps is None:
        return flat[: math.prod(spec.shape)].reshape(spec.shape)
    in_bytes = [s * flat.itemsize for s in steps]
    return np.lib.stride_tricks.as_strided(flat, spec.shape, in_bytes)


def gelu_matmul(m: int, k: int, n: int) -> Workload:
    """A matrix product whose epilogue is long: bias and an exact GELU."""
    b = GraphBuilder("gelu")
    y = b.node("Add", b.node("MatMul", b.input("x", (m, k)), b.input("w", (k, n))), b.input("b", (n,)))
    return of(b, b.node("Mul", y, b.node("Erf", y)), {"w", "b"})
