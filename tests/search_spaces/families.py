"""Workloads of every family, small, of shapes that little divides."""

from __future__ import annotations

from collections.abc import Callable

from autotune.graph.build import GraphBuilder
from autotune.graph.region import Workload
from tests.search_spaces import workloads as make

FIXED: dict[str, Callable[[], Workload]] = {
    "attention": lambda: make.attention((2, 3, 32, 16), 48, 16),
    "attention_prime": lambda: make.attention((2, 13, 7), 197, 7, relu=True),
    "attention_long": lambda: make.attention((197, 64), 197, 64, block=64),
    "attention_masked": lambda: make.attention((2, 2, 7, 13), 13, 5, (2, 1, 1, 13), causal=1),
    "attention_flags": lambda: make.attention((2, 7, 5), 37, 33, (7, 37), "bool", fill=-9.0, block=16),
    "attention_causal_blocks": lambda: make.attention((1, 2, 40, 8), 40, 20, causal=1, block=7),
    "attention_one_query": lambda: make.attention((3, 1, 8), 20, 1),
    "attention_float64": lambda: make.attention((2, 9, 5), 11, 6, dtype="float64"),
    "matmul": lambda: make.matmul(26, 24, 40),
    "matmul_prime": lambda: make.matmul(13, 7, 37),
    "matmul_looked_up": lambda: make.looked_up(5, 13, 7, 37),
    "matmul_looked_up_column": lambda: make.looked_up(5, 13, 31, 1),
    "matmul_looked_up_right": lambda: make.looked_up_on_the_right(5, 6, 13, 37),
    "sums_looked_up": lambda: make.looked_up_sums(5, 7, 40),
    "matmul_row": lambda: make.matmul(1, 31, 100),
    "matmul_column": lambda: make.matmul(17, 9, 1),
    "matmul_batch": lambda: make.matmul(11, 8, 20, batch=(2, 3), constant=False, relu=False),
    "matmul_strided": make.strided_matmul,
    "matmul_gelu": lambda: make.gelu_matmul(13, 16, 40),
    "gemm_transposed": lambda: make.gemm(5, 33, 47),
    "matmul_float64": lambda: make.typed_matmul("float64"),
    "matmul_int32": lambda: make.typed_matmul("int32"),
    "matmul_two_outputs": make.two_outputs,
    "matmul_transposed": make.transposed_around,
    "conv": lambda: make.conv((1, 8, 9, 5), 24, 3, pad=1, residual=True),
    "conv_strided": lambda: make.conv((2, 11, 11, 3), 20, 5, stride=2, pad=2),
    "conv_1x1": lambda: make.conv((1, 7, 7, 16), 33, 1, bias=False),
    "conv_grouped": lambda: make.conv((1, 6, 6, 8), 24, 3, pad=1, group=4),
    "conv_nchw": lambda: make.conv((1, 6, 7, 4), 5, 3, pad=1, layout="NCHW"),
    "depthwise": lambda: make.conv((1, 9, 9, 20), 20, 3, pad=1, group=20),
    "depthwise_strided": lambda: make.conv((1, 10, 7, 16), 16, 5, pad=2, stride=2, group=16),
    "chain_depthwise": lambda: make.depthwise_chain((1, 9, 11, 20), 24, residual=True),
    "chain_depthwise_strided": lambda: make.depthwise_chain((2, 10, 7, 16), 37, kernel=5, stride=2),
    "chain_inverted": lambda: make.depthwise_chain((1, 9, 7, 5), 6, widened=20, residual=True),
    "chain_widened": lambda: make.depthwise_chain((1, 8, 11, 3), 0, stride=2, widened=33),
    "chain_pooled": lambda: make.pooled_convolution("MaxPool", (1, 11, 9, 3), 21, stride=2),
    "chain_averaged": lambda: make.pooled_convolution("AveragePool", (2, 8, 7, 5), 16),
    "chain_of_maxima": lambda: make.separable_pool((2, 9, 7, 37), 3, (1, 1, 1, 1)),
    "chain_of_long_maxima": lambda: make.separable_pool((1, 11, 12, 20), 5, (2, 0, 1, 2)),
    "chain_of_products": lambda: make.chained_products(5, 7, 9),
    "max_pool": lambda: make.pool((1, 9, 9, 20), kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
    "average_pool": lambda: make.pool((1, 7, 7, 5), "AveragePool", kernel_shape=(2, 2)),
    "global_pool": lambda: make.pool((1, 7, 5, 40), "GlobalAveragePool"),
    "winograd_input": lambda: make.winograd_input((2, 9, 7, 37), 4),
    "winograd_input_wide": lambda: make.winograd_input((1, 13, 12, 48), 6),
    "winograd_output": lambda: make.winograd_output((2, 7, 9, 37), 4),
    "winograd_output_wide": lambda: make.winograd_output((1, 4, 6, 48), 2),
    "winograd_input_dilated": lambda: make.winograd_input((2, 13, 14, 20), 2, dilations=(2, 3)),
    "winograd_output_dilated": lambda: make.winograd_output((2, 7, 11, 37), 4, dilation=2),
    "winograd_input_line": lambda: make.winograd_input((2, 19, 37), 4, taps=5),
    "winograd_output_line": lambda: make.winograd_output((2, 17, 37), 4, taps=5, dilation=2),
    "winograd_products": lambda: make.winograd_products((4, 2, 7, 5, 6), 3, 37, strides=(2,)),
    "winograd_blocks": lambda: make.winograd_blocks((2, 9, 7, 20), 37, 4),
    "winograd_blocks_wide": lambda: make.winograd_blocks((1, 5, 32, 5), 64, 2, (1, 0, 0, 2), tail=False),
    "winograd_blocks_one_tile": lambda: make.winograd_blocks((1, 4, 5, 3), 16, 6),
    "strassen_input": lambda: make.unary("StrassenInput", (6, 74)),
    "strassen_input_batch": lambda: make.unary("StrassenInput", (2, 3, 4, 128)),
    "strassen_output": lambda: make.strassen_output((5, 37)),
    "strassen_output_batch": lambda: make.strassen_output((2, 3, 3, 64)),
    "softmax": lambda: make.unary("Softmax", (3, 5, 64)),
    "softmax_prime": lambda: make.unary("Softmax", (6, 197)),
    "softmax_inner": lambda: make.unary("Softmax", (3, 7, 20), axis=1),
    "running_sums": lambda: make.unary("CumSum", (5, 37), axis=1),
    "log_softmax": lambda: make.unary("LogSoftmax", (12, 48)),
    "reduce_rows": lambda: make.unary("ReduceSum", (16, 100), axes=(1,)),
    "reduce_mean": lambda: make.unary("ReduceMean", (2, 9, 64), axes=(2,), keepdims=0),
    "reduce_columns": lambda: make.unary("ReduceMax", (3, 5, 40), axes=(1,)),
    "reduce_all": lambda: make.unary("ReduceSum", (30, 64)),
    "reduce_few_rows": lambda: make.unary("ReduceSum", (1, 96, 256), axes=(1, 2)),
    "reduce_long_row": lambda: make.unary("ReduceMean", (2, 24576), axes=(1,)),
    "row_norms": lambda: make.row_norms(1, 96, 256),
    "added_norm": lambda: make.added_norm(6, 50),
    "reduce_int64": lambda: make.unary("ReduceSum", (20, 33), "int64", axes=(1,)),
    "arg_max": lambda: make.unary("ArgMax", (6, 33), axis=1),
    "layer_norm": lambda: make.layer_norm(4, 6, 96),
    "lrn": lambda: make.unary("LRN", (1, 4, 4, 20), size=5, layout="NHWC"),
    "instance_norm": lambda: make.instance_norm(1, 6, 5, 24),
    "group_norm": lambda: make.group_norm(5, 2, 8, 9, 35),
    "add": lambda: make.residual_add(1, 6, 7, 30),
    "add_flat": lambda: make.residual_add(301),
    "transpose": lambda: make.unary("Transpose", (1, 8, 6, 24), perm=(0, 2, 3, 1)),
    "gather_int64": lambda: make.gather(50, 33, 7),
    "concat": lambda: make.concat((1, 3, 8), (1, 3, 20)),
    "not_bool": lambda: make.unary("Not", (7, 33), "bool"),
    "empty": lambda: make.unary("Relu", (0, 4)),
    "rank_zero": lambda: make.unary("Relu", ()),
    "scalar_shapes": lambda: make.unary("Relu", (1, 1)),
}


def integer_product() -> Workload:
    """Sums of products of small integers, which dot products compute where the target has them."""
    b = GraphBuilder("integers")
    x, w = b.input("x", (9, 37), "uint8"), b.input("w", (37, 21), "int8")
    return make.of(b, b.node("IntegerMatMul", x, w), {"w"})


def integer_convolution() -> Workload:
    """The same of windows, what is padded counting as a number that is given."""
    b = GraphBuilder("integers")
    x, w = b.input("x", (1, 7, 6, 5), "uint8"), b.input("w", (3, 3, 5, 19), "int8")
    window = {"strides": (1, 1), "pads": (1,) * 4, "dilations": (1, 1)}
    return make.of(
        b, b.node("IntegerConv", x, w, b.input("fill", (), "uint8"), layout="NHWC", **window), {"w"}
    )


def block_product(m: int, k: int, n: int) -> Workload:
    """A product with weights of four bits, in blocks of 32."""
    b = GraphBuilder("blocks")
    words, scale = b.input("words", (k // 8, n), "int32"), b.input("scale", (k // 32, n))
    y = b.node("BlockMatMul", b.input("x", (m, k)), words, scale, zero_point=8)
    return make.of(b, b.node("Relu", y), {"words", "scale"})


LARGER: dict[str, Callable[[], Workload]] = {
    "matmul_words": lambda: block_product(5, 96, 21),
    "matmul_blas": lambda: make.matmul(37, 50, 23),
    "matmul_panels": lambda: make.matmul(1031, 1100, 21, constant=False),
    "matmul_panels_batch": lambda: make.matmul(517, 1030, 37, batch=(2,), constant=False, relu=False),
    "matmul_k_blocks": lambda: make.matmul(7, 515, 21),
    "conv_k_blocks": lambda: make.conv((1, 5, 6, 67), 19, 3, pad=1),
    "conv_1d": lambda: make.conv_nd((29,), 41, 23, 3, pad=2, dilation=2),
    "conv_3d": lambda: make.conv_nd((3, 5, 6), 7, 19, 3, stride=2, pad=1),
    "conv_stem": lambda: make.stem((1, 3, 17, 19), 21, 3, 2, 1),
    "integer_product": integer_product,
    "integer_convolution": integer_convolution,
    "matmul_float16": lambda: make.typed_matmul("float16"),
    "matmul_bfloat16": lambda: make.typed_matmul("bfloat16"),
    "stored_row": lambda: make.stored_matmul("float16", 1, 37, 100),
    "stored_prime": lambda: make.stored_matmul("float16", 13, 7, 37),
    "stored_bfloat16": lambda: make.stored_matmul("bfloat16", 5, 515, 41),
    "stored_int8": lambda: make.stored_matmul("int8", 7, 33, 53),
    "stored_batch": lambda: make.stored_matmul("float16", 9, 21, 35, batch=(3,)),
    "stored_conv": lambda: make.stored_conv("float16", (1, 9, 7, 13), 37),
    "stored_conv_int8": lambda: make.stored_conv("int8", (2, 5, 6, 8), 19),
    "softmax_float16": lambda: make.unary("Softmax", (5, 37), "float16"),
    "transpose_bytes": lambda: make.unary("Transpose", (45, 37), "uint8", perm=(1, 0)),
    "transpose_matrix": lambda: make.unary("Transpose", (45, 70), perm=(1, 0)),
    "pool_prefetch": lambda: make.pool((1, 11, 13, 41), "AveragePool", kernel_shape=(3, 3)),
}
"""Those that have knobs which small ones of the families have not."""
