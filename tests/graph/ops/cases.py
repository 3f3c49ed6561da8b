"""At least one small case of every operator that has a tensor expression: name, arrays, attributes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

RNG = np.random.default_rng(7)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> Any:
    return RNG.uniform(0.5, 1.5, shape).astype(np.float32)


def flags(*shape: int) -> Any:
    return RNG.integers(0, 2, shape).astype(bool)


def integers(*shape: int, dtype: str = "int64") -> Any:
    return (RNG.integers(1, 9, shape) * RNG.choice([-1, 1], shape)).astype(dtype)


def words(*shape: int) -> Any:
    return RNG.integers(-(1 << 31), 1 << 31, shape).astype(np.int32)


def middles(*shape: int) -> Any:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def rows_of_bytes(rows: int, steps: int, blocks: int) -> tuple[Any, ...]:
    """Planes, factors and sums of blocks."""
    planes = RNG.integers(-64, 65, (3, rows, steps)).astype(np.int8)
    return planes, np.full((rows, blocks), 2.0**-19, np.float32), normal(rows, blocks)


@dataclass(frozen=True)
class Case:
    op: str
    arrays: tuple[Any, ...]
    attrs: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        shapes = ",".join(f"{a.dtype}{list(a.shape)}" for a in self.arrays)
        return f"{self.op}({shapes})" + "".join(f" {k}={v}" for k, v in self.attrs.items())


def case(op: str, *arrays: Any, **attrs: Any) -> Case:
    return Case(op, arrays, attrs)


NHWC = {"layout": "NHWC"}
TREES = (
    np.array([4, 3], np.int32),
    np.array([0, 0, 0, 0, 0, 2], np.int32),
    np.array([0, 0, 0, 0, 0.1, -0.2], np.float32),
    np.array([[0, 0], [1, 1], [2, 2], [3, 3], [0, 5], [1, 2]], np.int32),
    normal(4, 2),
)
"""A tree of three leaves, and one of a single leaf."""
NAN_FIRST = np.array([0, 0, 0, 0, 1, 0], bool)

UNARY = [
    *(
        case(op, normal(3, 37))
        for op in [
            "Abs",
            "Asinh",
            "Atan",
            "Ceil",
            "Cos",
            "Cosh",
            "Dropout",
            "Elu",
            "Erf",
            "Exp",
            "Floor",
            "Gelu",
            "HardSigmoid",
            "HardSwish",
            "Identity",
            "LeakyRelu",
            "Neg",
            "Relu",
            "Round",
            "Sigmoid",
            "Sin",
            "Sinh",
            "Softplus",
            "Tan",
            "Tanh",
        ]
    ),
    *(case(op, positive(3, 37)) for op in ("Log", "Reciprocal", "Sqrt")),
    *(case(op, RNG.uniform(-1, 1, (3, 37)).astype(np.float32)) for op in ("Asin", "Acos", "Atanh")),
    case("Acosh", 1 + positive(37)),
    case("BitwiseNot", integers(3, 37, dtype="int32")),
    case("BitCast", normal(3, 37), to="int32"),
    case("BitCast", flags(37), to="uint8"),
    case("BitCast", integers(37, dtype="int16"), to="bfloat16"),
    case("Cast", normal(37), to="float8_e5m2"),
    case("Cast", normal(37).astype("float8_e4m3fn"), to="bool"),
    case("IsInf", np.array([np.inf, -np.inf, np.nan, 1], np.float32)),
    case("IsInf", np.array([np.inf, -np.inf, np.nan, 1], np.float32), detect_negative=0),
    case("IsInf", np.array([np.inf, -np.inf, np.nan, 1], np.float32), detect_negative=0, detect_positive=0),
    case("IsNaN", np.where(flags(37), normal(37), np.float32("nan"))),
    case("Sign", integers(37)),
    case("Sign", np.where(flags(37), normal(37), np.float32(0))),
    case("Gelu", normal(37), approximate="tanh"),
    case("Clip", normal(37), min=-0.5, max=0.5),
    case("Relu", integers(37)),
    case("Not", flags(37)),
    *(case("Cast", normal(37) * 3, to=to) for to in ("float64", "int32", "int64", "bool")),
    case("Cast", integers(37), to="float32"),
    case("Cast", flags(37), to="float32"),
]

NARY = [
    *(case(op, normal(3, 1, 19), normal(4, 1)) for op in ("Add", "Mul", "Sub", "Max", "Min", "Mean")),
    *(case(op, normal(3, 19), normal(19)) for op in ("Equal", "Less", "LessOrEqual", "Greater")),
    case("GreaterOrEqual", integers(3, 19), integers(19)),
    *(case(op, flags(3, 19), flags(19)) for op in ("And", "Or", "Xor")),
    *(case(op, integers(3, 19), integers(19)) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
    case("BitShift", integers(3, 19, dtype="uint8"), np.arange(19, dtype="uint8"), direction="LEFT"),
    case("BitShift", integers(3, 19, dtype="uint64"), np.arange(19, dtype="uint64") * 5, direction="RIGHT"),
    case("Div", normal(3, 19), positive(19)),
    case("Div", integers(3, 19), integers(19)),
    case("Mod", integers(3, 19), integers(19)),
    case("Mod", integers(3, 19), integers(19), fmod=1),
    case("Mod", normal(3, 19), positive(19), fmod=1),
    case("Pow", positive(3, 19), normal(19)),
    case("PRelu", normal(3, 4, 5), normal(4, 1)),
    case("Sum", normal(3, 19), normal(19), normal(1)),
    case("Where", flags(3, 1), normal(19), normal(2, 1, 1)),
]

CONTRACTIONS = [
    case("MatMul", normal(5, 7), normal(7, 9)),
    case("MatMul", normal(2, 1, 5, 7), normal(3, 7, 9)),
    case("MatMul", normal(7), normal(7)),
    case("MatMul", normal(5, 7), normal(7, 9).astype("float16")),
    case("MatMul", normal(2, 5, 7), normal(2, 7, 9).astype("bfloat16")),
    case("MatMul", normal(3, 7), integers(7, 9, dtype="int8")),
    case("IntegerMatMul", integers(5, 22, dtype="uint8"), integers(22, 37, dtype="int8")),
    case("IntegerMatMul", integers(2, 5, 8, dtype="int8"), integers(8, 40, dtype="int8")),
    case("IntegerMatMul", integers(5, 8, dtype="int8"), integers(8, 9, dtype="int16")),
    case("BlockMatMul", normal(5, 64), words(8, 9), normal(4, 9), zero_point=8),
    case("BlockMatMul", normal(1, 32), words(8, 20), normal(2, 20), middles(2, 20), bits=8),
    case("BlockFactors", normal(3, 64), block=16),
    case("BlockPlanes", normal(3, 64), np.full((3, 4), 2.0**-19, np.float32)),
    case("PlaneSums", normal(3, 64), np.full((3, 4), 2.0**-19, np.float32)),
    case("BlockDot", *rows_of_bytes(3, 64, 4), words(8, 9), normal(4, 9), zero_point=8),
    case("BlockDot", *rows_of_bytes(1, 32, 2), words(4, 20), normal(2, 20), middles(2, 20)),
    case("Gemm", normal(5, 7), normal(7, 9), normal(9), alpha=0.5),
    case("Gemm", normal(7, 5), normal(9, 7), transA=1, transB=1),
    case("Conv", normal(1, 3, 7, 6), normal(4, 3, 3, 3), pads=(1, 1, 1, 1), strides=(2, 1)),
    case("Conv", normal(1, 7, 6, 4), normal(3, 2, 2, 6), normal(6), group=2, dilations=(1, 2), **NHWC),
    case("Conv", normal(2, 7, 6, 4), normal(3, 3, 1, 8), group=4, pads=(1, 1, 0, 2), **NHWC),
    case("Conv", normal(1, 4, 9), normal(4, 1, 3), group=4),
    case("Conv", normal(1, 7, 6, 4), normal(3, 2, 4, 6).astype("float16"), **NHWC),
    case("Conv", normal(1, 7, 6, 4), normal(3, 2, 4, 6).astype("bfloat16"), normal(6), **NHWC),
    case("Conv", normal(1, 7, 6, 4), integers(3, 2, 4, 6, dtype="int8"), **NHWC),
    case("GroupedConv", normal(1, 5, 6, 8), normal(1, 1, 2, 4, 5)),
    case("GroupedConv", normal(2, 7, 6, 6), normal(3, 2, 3, 2, 20), pads=(1, 0, 1, 2), strides=(2, 1)),
    case("GroupedConv", normal(1, 9, 4), normal(3, 2, 2, 3), dilations=(2,)),
    case(
        "IntegerConv",
        integers(1, 5, 6, 8, dtype="uint8"),
        integers(3, 3, 8, 20, dtype="int8"),
        np.array(7, "uint8"),
        pads=(1, 1, 1, 1),
        **NHWC,
    ),
    case("IntegerConv", integers(1, 4, 7, 6, dtype="int8"), integers(4, 2, 3, 3, dtype="int8"), group=2),
    case("ShortMatMul", normal(5, 22).astype("bfloat16"), normal(22, 37).astype("bfloat16")),
    case("ShortMatMul", normal(2, 5, 8).astype("bfloat16"), normal(2, 8, 40).astype("bfloat16")),
    case(
        "ShortConv",
        normal(1, 5, 6, 8).astype("bfloat16"),
        normal(3, 3, 8, 20).astype("bfloat16"),
        pads=(1, 1, 1, 1),
        **NHWC,
    ),
    case("ShortConv", normal(1, 4, 7, 6).astype("bfloat16"), normal(4, 2, 3, 3).astype("bfloat16"), group=2),
    case(
        "ShortConv",
        normal(2, 7, 6, 4).astype("bfloat16"),
        normal(3, 3, 1, 8).astype("bfloat16"),
        group=4,
        strides=(2, 1),
        **NHWC,
    ),
    case("ShortGroupedConv", normal(1, 5, 6, 8).astype("bfloat16"), normal(1, 1, 2, 4, 5).astype("bfloat16")),
    case(
        "ShortGroupedConv",
        normal(2, 7, 6, 6).astype("bfloat16"),
        normal(3, 2, 3, 2, 20).astype("bfloat16"),
        pads=(1, 0, 1, 2),
        strides=(2, 1),
    ),
    case("Conv", normal(1, 2, 4, 5, 3), normal(3, 2, 2, 3, 2)),
    case("Patches", normal(2, 5, 6, 3), kernel_shape=(3, 2), strides=(2, 1), pads=(0, 1, 2, 1)),
    case("Patches", normal(1, 9, 4), kernel_shape=(3,), dilations=(2,)),
    case("Patches", normal(1, 3, 4, 5, 2), kernel_shape=(2, 3, 2), pads=(1, 1, 0, 0, 1, 2)),
    case("WinogradInput", normal(1, 7, 6, 5), tile=2, pads=(1, 1, 1, 1)),
    case("WinogradInput", normal(2, 7, 9, 5), tile=4, pads=(0, 1, 2, 0)),
    case("WinogradInput", normal(1, 9, 8, 3), tile=6, pads=(1, 1, 1, 1)),
    case("WinogradOutput", normal(4, 4, 1, 2, 3, 5), tile=2, size=(4, 5)),
    case("WinogradOutput", normal(6, 6, 2, 2, 2, 5), tile=4, size=(7, 6)),
    case("WinogradOutput", normal(8, 8, 1, 1, 2, 3), tile=6, size=(6, 7)),
    case("WinogradInput", normal(2, 9, 11, 3), tile=2, pads=(2, 0, 1, 2), dilations=(2, 3)),
    case("WinogradInput", normal(2, 11, 5), tile=4, pads=(2, 1), taps=5),
    case("WinogradInput", normal(2, 13, 4), tile=4, pads=(2, 2), dilations=(2,)),
    case("WinogradInput", normal(1, 3, 8, 5), tile=2, pads=(0, 1, 0, 2), axes=1),
    case("WinogradInput", normal(1, 3, 7, 6, 4), tile=4, pads=(1, 1, 0, 2, 1, 1)),
    case("WinogradOutput", normal(4, 4, 2, 4, 6, 3), tile=2, size=(7, 11), dilations=(2, 3)),
    case("WinogradOutput", normal(8, 2, 3, 5), tile=4, taps=5, size=(11,)),
    case("WinogradOutput", normal(6, 2, 4, 5), tile=4, size=(13,), dilations=(2,)),
    case("WinogradOutput", normal(6, 6, 1, 3, 2, 2, 4), tile=4, size=(7, 6)),
    case("WinogradProducts", normal(4, 2, 6, 5, 3), normal(4, 3, 3, 7)),
    case("WinogradProducts", normal(3, 1, 9, 2, 5), normal(3, 3, 5, 4), strides=(2,), dilations=(2,)),
    case("WinogradProducts", normal(2, 1, 4, 5, 3, 2), normal(2, 2, 3, 2, 6), strides=(1, 2)),
    case("StrassenInput", normal(6, 10)),
    case("StrassenInput", normal(2, 3, 2, 4)),
    case("StrassenOutput", normal(7, 3, 5)),
    case("StrassenOutput", normal(7, 2, 3, 1, 2)),
]

WINDOWS = [
    case("MaxPool", normal(1, 2, 7, 6), kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
    case("MaxPool", normal(1, 7, 6, 5), kernel_shape=(2, 2), strides=(2, 2), ceil_mode=1, **NHWC),
    case("AveragePool", normal(1, 7, 6, 5), kernel_shape=(2, 2), strides=(2, 2), **NHWC),
    case("AveragePool", normal(1, 2, 7, 6), kernel_shape=(3, 3), pads=(1, 1, 1, 1), strides=(2, 2)),
    case("GlobalAveragePool", normal(1, 5, 4, 19), **NHWC),
    case("GlobalMaxPool", normal(2, 3, 5, 4)),
]

EMPTY_ROWS = np.arange(36).reshape(6, 6) % 12 < 6

ROWS = [
    case("BatchNormalization", normal(1, 3, 4, 5), *(positive(3) for _ in range(4))),
    case("InstanceNormalization", normal(1, 4, 5, 3), normal(3), normal(3), **NHWC),
    case("GroupNormalization", normal(2, 4, 5, 6), normal(6), normal(6), num_groups=3, **NHWC),
    case("GroupNormalization", normal(2, 6, 5), normal(6), normal(6), num_groups=2),
    case("LayerNormalization", normal(3, 19), normal(19), normal(19)),
    case("LayerNormalization", normal(2, 3, 5), normal(3, 5), axis=1),
    case("RMSNormalization", normal(3, 19), normal(19)),
    case("RMSNormalization", normal(2, 3, 5), normal(5), axis=1),
    case("LRN", normal(1, 5, 4, 3), size=3),
    case("LRN", normal(1, 4, 3, 9), size=4, beta=0.6, **NHWC),
    case("Attention", normal(2, 7, 4), normal(2, 13, 4), normal(2, 13, 5)),
    case("Attention", normal(7, 4), normal(13, 4), normal(13, 5), normal(1, 13), causal=1, scale=2.0),
    case("Attention", normal(7, 4), normal(13, 4), normal(13, 5), normal(7, 13), causal=1, block=5),
    case("Attention", normal(7, 4), normal(13, 4), normal(13, 5), causal=1, first=3),
    case("Attention", *(normal(2, 6, 4) for _ in range(3)), EMPTY_ROWS, zero_empty=1),
    case("Attention", *(normal(2, 6, 4) for _ in range(3)), EMPTY_ROWS, zero_empty=1, causal=1, block=4),
    case("Attention", *(normal(2, 12, 4) for _ in range(3)), flags(2, 1, 12), fill=-9.0, block=4),
    case("Softmax", normal(3, 19)),
    case("Softmax", normal(3, 5, 4), axis=1),
    case("LogSoftmax", normal(3, 19)),
    case("ReduceMax", normal(3, 19), axes=(1,)),
    case("ReduceMin", normal(3, 19), axes=(0,), keepdims=0),
    case("ReduceMean", normal(3, 5, 4), axes=(1, 2)),
    case("ReduceProd", positive(3, 5)),
    case("ArgMax", np.round(normal(3, 19)), axis=1),
    case("ArgMin", integers(3, 5, 4), axis=1, keepdims=0),
    case("ReduceSum", integers(3, 19)),
]

MOVEMENT = [
    case("Reshape", normal(4, 6, 5), shape=(3, 8, 5)),
    case("Flatten", normal(2, 3, 5)),
    case("Squeeze", normal(1, 3, 1)),
    case("Unsqueeze", normal(3, 5), axes=(1,)),
    case("Expand", normal(3, 1), shape=(2, 3, 5)),
    case("Tile", normal(3, 1, 4), repeats=(2, 5, 1)),
    case("Transpose", normal(3, 5, 4), perm=(2, 0, 1)),
    case("Concat", normal(2, 3), normal(2, 1), normal(2, 19), axis=1),
    case("Split", normal(2, 23), axis=1, split=(3, 1, 19)),
    case("ChannelShuffle", normal(1, 3, 2, 6), groups=3, **NHWC),
    case("DepthToSpace", normal(1, 8, 2, 3), blocksize=2),
    case("SpaceToDepth", normal(1, 4, 6, 3), blocksize=2, **NHWC),
    case("SpaceToDepth", normal(1, 3, 4, 6), blocksize=2, mode="CRD"),
    case("Slice", normal(5, 9), starts=(4, 1), ends=(-6, 8), steps=(-2, 3)),
    case("Gather", normal(5, 9), np.array([[0, -1], [4, 2]]), axis=1),
    case("Gather", normal(5, 9), np.array([3, -5, 0], np.int32)),
    case("Gather", integers(5), np.array(2)),
    case("GatherElements", normal(5, 9), np.array([[0, -1, 3]]), axis=0),
    case("GatherND", normal(5, 9, 3), np.array([[0, -1], [4, 2]])),
    case("GatherND", normal(2, 5, 3), np.array([[[4], [0]], [[1], [-5]]], np.int32), batch_dims=1),
    case("OneHot", np.array([[0, -1], [7, 2]]), normal(2), depth=4),
    case("OneHot", np.array([1.0, 3.0], np.float32), np.array([2, 5]), depth=4, axis=0),
    case("ReverseSequence", normal(4, 3, 5), np.array([4, 1, 2])),
    case("TopK", normal(4, 9), k=3),
    case("TopK", integers(9, 2), k=2, axis=0, largest=0),
    case("TopK", normal(2, 90), k=20),
    case("TopK", normal(1, 30), k=30),
    case("TreeEnsemble", normal(6, 3), *TREES, levels=2),
    case("TreeEnsemble", normal(1, 3), *TREES, levels=2, parts=2, reduce="min"),
    case("TreeEnsemble", np.array([[np.nan, 1, 0]], np.float32), *TREES, NAN_FIRST, levels=2, reduce="max"),
    case("CumSum", normal(3, 5, 4), axis=1),
    case("CumSum", normal(4, 7), axis=-1, exclusive=1),
    case("CumProd", normal(2, 5), axis=1, reverse=1),
    case("ScatterElements", normal(3, 5), np.array([[1, 3, -1]]), normal(1, 3), axis=1),
    case("ScatterElements", integers(4), np.array([1, 1, 0]), integers(3), reduction="add"),
    case("ScatterND", normal(4, 3, 2), np.array([[2, 1], [2, 1]]), normal(2, 2), reduction="max"),
    case("ScatterND", normal(8, 8, 8), np.array([[-1]]), normal(1, 8, 8)),
    case("TensorScatter", normal(2, 6, 3), normal(2, 2, 3), np.array([5, 1]), mode="circular"),
    case("TensorScatter", normal(2, 2, 5, 3), normal(2, 2, 2, 3), np.array([4, -1]), np.array(1), axis=2),
    case("NonZero", flags(3, 4)),
    case("NonZero", integers(5) // 4),
    case("Unique", integers(9, 1)),
    case("Unique", integers(9, 1, dtype="int8"), sorted=0),
    case("Unique", flags(9, 3).astype(np.float64)),
    case("Unique", np.array([2, np.nan, -0.0, 2, np.nan, 0], np.float32).reshape(6, 1)),
    case(
        "NonMaxSuppression",
        normal(2, 9, 4),
        positive(2, 2, 9),
        max_output_boxes_per_class=3,
        iou_threshold=0.3,
    ),
    case(
        "NonMaxSuppression",
        positive(1, 9, 4),
        normal(1, 1, 9),
        max_output_boxes_per_class=20,
        iou_threshold=0.5,
        score_threshold=0.1,
        center_point_box=1,
    ),
    case("Trilu", normal(2, 5, 7), k=-1),
    case("Trilu", normal(5, 7), k=1, upper=0),
    case("Pad", normal(3, 5), pads=(1, 0, 2, 3), value=1.5),
    case("Pad", normal(3, 5), pads=(-1, 2, 0, -1)),
    case("Pad", normal(3, 5).astype("float8_e4m3fn"), pads=(1, 0, 2, 3), value=1.5),
    case("Pad", normal(3, 5), pads=(2, 3, 1, 4), mode="reflect"),
    case("Pad", normal(3, 5), pads=(2, 0, 1, 7), mode="edge"),
    case("Pad", normal(3, 5), pads=(2, -1, 4, 7), mode="wrap"),
    case("ConstantOfShape", shape=(2, 19), value=2.5),
]

DOUBLED = {"axes": (1, 2), "size": (6, 38), "steps": (2, 2), "units": (4, 4)}
"""Images of twice the size, places between pixels: (2i - 1) / 4."""

RESIZED = [
    case("Resize", normal(2, 3, 19), **{**DOUBLED, "starts": (0, 0)}),
    case("Resize", integers(2, 3, 19), **{**DOUBLED, "starts": (-1, 3)}),
    case("Resize", normal(3, 5), axes=(-1,), size=(37,), starts=(1,), steps=(7,), units=(20,)),
    case("Interpolate", normal(2, 3, 19), **{**DOUBLED, "starts": (-1, -1)}),
    case("Interpolate", normal(2, 3, 19), mode="cubic", **{**DOUBLED, "starts": (-1, -1)}),
    case("Interpolate", normal(3, 5), axes=(1,), size=(37,), starts=(-31,), steps=(19,), units=(93,)),
    case("Interpolate", normal(3, 5, 4), axes=(1,), size=(2,), starts=(2,), steps=(5,), units=(2,)),
]

GRID = RNG.uniform(-1.3, 1.3, (2, 3, 5, 2)).astype(np.float32)
ROIS = np.array([[0, 0, 7, 5], [2, 1, 9, 8], [-3, -2, 2, 3], [1, 1, 1, 1]], np.float32)
WHERE = np.array([0, 1, -1, 0])
POOLED = {"kernel_shape": (3, 2), "strides": (2, 1), "pads": (1, 1, 1, 0)}

SAMPLED = [
    *(
        case("GridSample", normal(2, 3, 4, 5), GRID, mode=mode, padding_mode=padding, align_corners=corners)
        for mode in ("nearest", "linear", "cubic")
        for padding, corners in (("zeros", 0), ("border", 1), ("reflection", 0), ("reflection", 1))
    ),
    case("GridSample", normal(2, 4, 5, 9), GRID, **NHWC),
    case("GridSample", integers(2, 3, 4, 5), GRID, mode="nearest"),
    case("GridSample", normal(1, 2, 6), RNG.uniform(-2, 2, (1, 7, 1)).astype(np.float32), mode="cubic"),
    case("RoiAlign", normal(2, 3, 6, 8), ROIS, WHERE, output_height=2, output_width=3, sampling_ratio=2),
    case("RoiAlign", normal(2, 6, 8, 9), ROIS, WHERE, output_height=3, output_width=2, half_pixel=0, **NHWC),
    case("RoiAlign", normal(2, 3, 6, 8), ROIS, WHERE, output_height=2, output_width=2, mode="max"),
    case(
        "RoiAlign", normal(2, 6, 8, 5), ROIS, WHERE, mode="max", sampling_ratio=3, spatial_scale=0.5, **NHWC
    ),
    case("Col2Im", normal(1, 8, 12), image_shape=(4, 5), block_shape=(2, 2)),
    case(
        "Col2Im",
        normal(2, 12, 9),
        image_shape=(7, 6),
        block_shape=(3, 2),
        strides=(2, 2),
        pads=(1, 0, 1, 1),
        dilations=(2, 1),
    ),
    case("DeformedColumns", normal(1, 2, 5, 4), normal(1, 8, 4, 3), kernel_shape=(2, 2)),
    case(
        "DeformedColumns",
        normal(2, 4, 7, 6),
        normal(2, 24, 4, 5),
        positive(2, 12, 4, 5),
        kernel_shape=(3, 2),
        strides=(2, 1),
        pads=(1, 0, 1, 1),
        dilations=(1, 2),
        offset_group=2,
    ),
    case("SumPool", normal(1, 2, 7, 6), **POOLED),
    case("MaxPoolIndices", normal(2, 2, 7, 6), **POOLED),
    case("MaxPoolIndices", np.zeros((2, 7, 6, 3), "uint8"), **POOLED, storage_order=1, **NHWC),
    case("MaxPoolIndices", normal(1, 2, 9), kernel_shape=(3,), strides=(2,), dilations=(2,), ceil_mode=1),
    case("MaxPoolIndices", normal(1, 2, 5), kernel_shape=(1,), strides=(2,)),
    case("MaxPoolIndices", normal(1, 5, 1), kernel_shape=(3,), pads=(1, 1)),
]

TRANSPOSED = [
    case("ConvTranspose", normal(1, 4, 5, 3), normal(4, 4, 3, 5), strides=(2, 2), pads=(1, 1, 1, 1), **NHWC),
    case("ConvTranspose", normal(2, 4, 5), normal(4, 3, 3), normal(6), group=2, strides=(3,), dilations=(2,)),
    case("OverlapAdd", normal(1, 3, 4, 48), kernel_shape=(4, 4), strides=(2, 2), pads=(1, 1), size=(6, 8)),
    case("Interleave", normal(1, 3, 5), normal(1, 2, 5), strides=(2,), size=(5,)),
]

CASES = [*TRANSPOSED, *UNARY, *NARY, *CONTRACTIONS, *WINDOWS, *ROWS, *MOVEMENT, *RESIZED, *SAMPLED]
