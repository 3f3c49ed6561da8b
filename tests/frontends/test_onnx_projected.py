"""Operators of com.microsoft that project, embed, look up and mix, alongside NumPy and, where there, ONNX Runtime."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from autotune.frontends.onnx import importer as frontend
from autotune.graph import evaluate
from tests.frontends.foreign_nodes import agree, node_model, normal, refused, seeds
from tests.frontends.test_onnx_language import by_heads, fast_gelu, flat, layer_norm, packed, softmax

SEEDS = seeds(100)


def mask_of(rng: Any, kind: int, batch: int, queries: int, keys: int) -> tuple[Any, Any]:
    """A mask in one of its forms, and flags of the keys that are read."""
    if kind == 0:
        return None, np.ones((1, 1, 1, 1), bool)
    places = np.arange(keys)
    ends = rng.integers(1, keys + 1, batch).astype(np.int32)
    if kind == 1:
        return ends, (places < ends[:, None])[:, None, None]
    if kind == 2:
        starts = (rng.random(batch) * ends).astype(np.int32)
        return np.concatenate([ends, starts]), ((places < ends[:, None]) & (places >= starts[:, None]))[
            :, None, None
        ]
    mask = rng.integers(0, 2, (batch, keys) if kind == 3 else (batch, queries, keys)).astype(np.int32)
    mask[..., 0] = 1
    return mask, mask[:, None] if kind == 4 else mask[:, None, None]


def attended(q: Any, k: Any, v: Any, flags: Any, causal: bool, scale: float, added: Any = 0) -> Any:
    scores = q @ k.swapaxes(-1, -2) * (scale or 1 / math.sqrt(q.shape[-1])) + added
    scores = scores + np.where(flags, 0, -10000.0)
    queries, keys = scores.shape[-2:]
    seen = np.tril(np.ones((queries, keys), bool), keys - queries) | (not causal)
    return flat(softmax(np.where(seen, scores, -np.inf)) @ v)


@pytest.mark.parametrize("seed", seeds(120))
def test_attention_with_its_projection(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch, heads, places = (int(n) for n in rng.integers(1, 5, 3))
    size, past = 4, int(rng.choice([0, 3]))
    wide = size if past else int(rng.choice([4, 8]))
    hidden, widths = int(rng.integers(2, 9)), [heads * size, heads * size, heads * wide]
    x, weights = normal(rng, batch, places, hidden), normal(rng, hidden, sum(widths))
    bias = normal(rng, sum(widths))
    causal, scale, total = int(rng.integers(2)), float(rng.choice([0.0, 0.3])), past + places
    mask, flags = mask_of(rng, int(rng.integers(5)), batch, places, total)
    old = normal(rng, 2, batch, heads, past, size) if past else None
    q, k, v = (by_heads(each, heads) for each in np.split(x @ weights + bias, np.cumsum(widths[:2]), -1))
    if old is not None:
        k, v = (np.concatenate([a, b], 2) for a, b in zip(old, (k, v), strict=True))
    added = normal(rng, *rng.choice([1, batch], 1), *rng.choice([1, heads], 1), places, total)
    added = added if rng.integers(2) else None
    wanted = {"y": attended(q, k, v, flags, bool(causal), scale, 0 if added is None else added)}
    outputs = ("y", "present") if past or (wide == size and seed % 2) else ("y",)
    if len(outputs) > 1:
        wanted["present"] = np.stack([k, v])
    operands = [("x", x), ("w", weights), ("bias", bias), ("mask", mask), ("past", old), ("added", added)]
    attrs: dict[str, Any] = {"num_heads": heads, "unidirectional": causal, "scale": scale}
    attrs |= {"qkv_hidden_sizes": widths} if wide != size else {}
    judge = added is None or not past  # it takes one of them
    agree("Attention", operands, wanted, outputs, ("w", "bias"), judge, tolerance=2e-3, near=2e-3, **attrs)


@pytest.mark.parametrize("seed", SEEDS)
def test_attention_of_integers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch, heads, places = (int(n) for n in rng.integers(1, 5, 3))
    size, hidden, past = 4, int(rng.integers(2, 9)), int(rng.choice([0, 3]))
    q_of_x, q_of_w = (
        rng.integers(0, 256, (batch, places, hidden)),
        rng.integers(-63, 64, (hidden, 3 * heads * size)),
    )
    steps, zeros, bias = (0.02, 0.01), (120, 0), normal(rng, 3 * heads * size)
    columns = bool(rng.integers(2))
    scale = rng.uniform(0.005, 0.02, 3 * heads * size if columns else 1).astype(np.float32)
    product = ((q_of_x - zeros[0]) * steps[0]) @ (q_of_w * scale) + bias
    causal, total = int(rng.integers(2)), past + places
    mask, flags = mask_of(rng, int(rng.integers(4)), batch, places, total)
    old = normal(rng, 2, batch, heads, past, size) if past else None
    q, k, v = (by_heads(each, heads) for each in np.split(product, 3, -1))
    if old is not None:
        k, v = (np.concatenate([a, b], 2) for a, b in zip(old, (k, v), strict=True))
    wanted = {"y": attended(q, k, v, flags, bool(causal), 0.0), "present": np.stack([k, v])}
    operands = [("x", q_of_x.astype(np.uint8)), ("w", q_of_w.astype(np.int8)), ("bias", bias)]
    operands += [
        ("xs", np.array(steps[0], np.float32)),
        ("ws", scale if columns else scale.reshape(())),
        ("mask", mask),
    ]
    zero_of_w = np.zeros(scale.shape if columns else (), np.int8)
    operands += [("xz", np.array(zeros[0], np.uint8)), ("wz", zero_of_w), ("past", old)]
    outputs = ("y", "present") if past else ("y",)
    wanted = {name: wanted[name] for name in outputs}
    fixed = ("w", "bias", "xs", "ws", "xz", "wz")
    agree(
        *("QAttention", operands, wanted, outputs, fixed),
        tolerance=2e-3,
        near=5e-3,
        num_heads=heads,
        unidirectional=causal,
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_embeddings_are_summed_and_normalised(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch, places, hidden = (int(n) for n in rng.integers(1, 7, 3))
    hidden += 1
    ids = rng.integers(0, 9, (batch, places)).astype(np.int32)
    words, at = normal(rng, 9, hidden), normal(rng, 12, hidden)
    scale, bias = normal(rng, hidden), normal(rng, hidden)
    total, segments, of_segments = words[ids] + at[:places], None, None
    where = rng.integers(0, 12, (batch, places)).astype(np.int32) if rng.integers(2) else None
    if where is not None:
        total = words[ids] + at[where]
    if rng.integers(2):
        segments, of_segments = rng.integers(0, 2, (batch, places)).astype(np.int32), normal(rng, 2, hidden)
        total = total + of_segments[segments]
    mask = rng.integers(0, 2, (batch, places)).astype(np.int32) if rng.integers(2) else None
    counts = np.zeros(batch) if mask is None else mask.sum(1)
    wanted = {"y": layer_norm(total, scale, bias, 1e-5), "integers": counts, "sum": total}
    operands = [
        ("ids", ids),
        ("segments", segments),
        ("words", words),
        ("at", at),
        ("of_segments", of_segments),
    ]
    operands += [("scale", scale), ("bias", bias), ("mask", mask), ("where", where)]
    agree(
        "EmbedLayerNormalization",
        operands,
        wanted,
        tuple(wanted),
        ("words", "at"),
        tolerance=1e-4,
        epsilon=1e-5,
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_of_few_bits_are_looked_up(seed: int) -> None:
    rng = np.random.default_rng(seed)
    bits, block = int(rng.choice([4, 8])), int(rng.choice([16, 32]))
    rows, columns = int(rng.integers(2, 9)), int(rng.choice([block, 2 * block, block + block // 2]))
    blocks = math.ceil(columns / block)
    q, scale = rng.integers(0, 1 << bits, (rows, columns)), normal(rng, rows, blocks)
    zero = rng.integers(0, 1 << bits, (rows, blocks)) if rng.integers(2) else None
    moved = np.full((rows, blocks), 1 << (bits - 1)) if zero is None else zero
    spread = [np.repeat(each, block, 1)[:, :columns] for each in (moved, scale)]
    ids = rng.integers(0, rows, tuple(rng.integers(1, 5, int(rng.integers(1, 3)))))
    operands = [("q", packed(q, bits)), ("ids", ids), ("scale", scale)]
    operands += [("zero", None if zero is None else packed(zero, bits))]
    wanted = {"y": ((q - spread[0]) * spread[1])[ids]}
    attrs = {"bits": bits, "block_size": block, "gather_axis": 0, "quantize_axis": 1}
    agree("GatherBlockQuantized", operands, wanted, ("y",), ("q", "scale", "zero"), **attrs)


@pytest.mark.parametrize("seed", SEEDS)
def test_products_of_integers_are_numbers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, inner, columns = (int(n) for n in rng.integers(1, 9, 3))
    wide = columns if rng.integers(2) else 1
    w, scale = rng.integers(-63, 64, (inner, columns)), rng.uniform(0.01, 0.1, wide).astype(np.float32)
    zero = rng.integers(-9, 10, wide)
    scale, zero = (scale, zero) if wide > 1 else (scale.reshape(()), zero.reshape(()))
    numbers, bias = ((w - zero) * scale), normal(rng, columns) if rng.integers(2) else None
    x, later = rng.integers(0, 256, (2, rows, inner)), 0 if bias is None else bias
    operands = [
        ("x", x.astype(np.uint8)),
        ("w", w.astype(np.int8)),
        ("xs", np.array(0.03, np.float32)),
        ("ws", scale),
    ]
    operands += [("xz", np.array(99, np.uint8)), ("wz", np.asarray(zero).astype(np.int8)), ("bias", bias)]
    wanted = {"y": (x - 99) * np.float32(0.03) @ numbers + later}
    agree("MatMulIntegerToFloat", operands, wanted, fixed=("w", "ws", "wz"), tolerance=1e-4)
    real = normal(rng, rows, inner)
    operands = [
        ("x", real),
        ("w", w.astype(np.int8)),
        ("ws", scale),
        ("wz", np.asarray(zero).astype(np.int8)),
        ("bias", bias),
    ]
    step = (max(real.max(), 0) - min(real.min(), 0)) / 255
    near = np.abs(numbers).sum(0).max() * step  # activations are rounded
    proto = node_model("DynamicQuantizeMatMul", operands, fixed=("w", "ws", "wz"))
    found = evaluate.run(frontend.load(proto), {"x": real} | ({} if bias is None else {"bias": bias}))["y"]
    np.testing.assert_allclose(found, real @ numbers + later, atol=near + 1e-5)
    agree("DynamicQuantizeMatMul", operands, {}, fixed=("w", "ws", "wz"))


def lstm(x: Any, w: Any, r: Any, bias: Any, reverse: bool) -> Any:
    """The states of one direction, [places, batch, hidden]."""
    hidden = r.shape[1]
    h = c = np.zeros((x.shape[1], hidden))
    states = []
    for step in x[::-1] if reverse else x:
        i, o, f, g = np.split(step @ w.T + h @ r.T + bias[: 4 * hidden] + bias[4 * hidden :], 4, 1)
        i, o, f = (1 / (1 + np.exp(-each)) for each in (i, o, f))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
        states.append(h)
    return np.stack(states[::-1] if reverse else states)


@pytest.mark.parametrize("seed", seeds(20))
def test_recurrences_with_integers_as_weights(seed: int) -> None:
    rng = np.random.default_rng(seed)
    places, batch, features, hidden = (int(n) for n in rng.integers(1, 6, 4))
    directions, columns = int(rng.integers(1, 3)), bool(rng.integers(2))
    x, bias = normal(rng, places, batch, features), normal(rng, directions, 8 * hidden)
    w, r = (rng.integers(-63, 64, (directions, n, 4 * hidden)) for n in (features, hidden))
    shape = (directions, 4 * hidden) if columns else (directions,)
    scales = [rng.uniform(0.002, 0.01, shape).astype(np.float32) for _ in range(2)]
    numbers = [q * s.reshape(directions, 1, -1) for q, s in zip((w, r), scales, strict=True)]
    y = np.stack([lstm(x, numbers[0][d].T, numbers[1][d].T, bias[d], bool(d)) for d in range(directions)], 1)
    zero = np.zeros(shape, np.int8)
    operands = [("x", x), ("w", w.astype(np.int8)), ("r", r.astype(np.int8)), ("bias", bias)]
    operands += [("lengths", None), ("h", None), ("c", None), ("p", None)]
    operands += [("ws", scales[0]), ("wz", zero), ("rs", scales[1]), ("rz", zero)]
    fixed = ("w", "r", "ws", "wz", "rs", "rz", "bias")
    direction = "bidirectional" if directions > 1 else "forward"
    attrs = {"hidden_size": hidden, "direction": direction}
    # The judge rounds activations to eight bits.
    agree("DynamicQuantizeLSTM", operands, {"y": y}, ("y",), fixed, near=0.3, tolerance=1e-4, **attrs)


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": fast_gelu,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "identity": lambda x: x,
}


def mixed(x: Any, router: Any, k: int, normalize: int, expert: Any) -> Any:
    """The results of the k best experts of each token, by their probabilities."""
    p = softmax(router)
    y = np.zeros_like(x)
    for n, row in enumerate(p):
        best = np.argsort(-row, kind="stable")[:k]
        weights = row[best] / (row[best].sum() if normalize else 1)
        y[n] = sum(w * expert(e, x[n]) for w, e in zip(weights, best, strict=True))
    return y


def swiglu(y: Any, alpha: float, beta: float, limit: float, fusion: int) -> Any:
    gate, rest = (y[::2], y[1::2]) if fusion == 1 else np.split(y, 2)
    gate, rest = np.minimum(gate, limit), np.clip(rest, -limit, limit)
    return gate / (1 + np.exp(-alpha * gate)) * (rest + beta)


@pytest.mark.parametrize("seed", seeds(60))
def test_mixtures_of_experts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tokens, hidden, inner, experts = (int(n) for n in rng.integers(1, 9, 4))
    experts += 1
    k, normalize = int(rng.integers(1, min(experts, 4) + 1)), int(rng.integers(2))
    kind = str(rng.choice([*ACTIVATIONS, "swiglu"]))
    wide = 2 * inner if kind == "swiglu" else inner
    x, router = normal(rng, tokens, hidden), normal(rng, tokens, experts)
    w1, w2 = normal(rng, experts, wide, hidden), normal(rng, experts, hidden, inner)
    b1, b2 = (normal(rng, experts, n) for n in (wide, hidden))
    alpha, beta, limit, fusion = 1.7, 1.0, 2.0, 1

    def expert(e: int, row: Any) -> Any:
        y = w1[e] @ row + b1[e]
        y = swiglu(y, alpha, beta, limit, fusion) if kind == "swiglu" else ACTIVATIONS[kind](y)
        return w2[e] @ y + b2[e]

    operands = [("x", x), ("router", router), ("w1", w1), ("b1", b1), ("w2", w2), ("b2", b2)]
    attrs: dict[str, Any] = {"k": k, "normalize_routing_weights": normalize, "activation_type": kind}
    if kind == "swiglu":
        attrs |= {
            "activation_alpha": alpha,
            "activation_beta": beta,
            "swiglu_limit": limit,
            "swiglu_fusion": fusion,
        }
    wanted = {"y": mixed(x, router, k, normalize, expert)}
    agree("MoE", operands, wanted, ("y",), ("w1", "w2"), tolerance=1e-4, **attrs)


@pytest.mark.parametrize("seed", SEEDS)
def test_mixtures_of_experts_of_few_bits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tokens, experts, k = int(rng.integers(1, 5)), int(rng.integers(2, 6)), int(rng.integers(1, 3))
    hidden, inner, bits, block = 32, 64, int(rng.choice([4, 8])), int(rng.choice([0, 16, 32]))
    x, router = normal(rng, tokens, hidden), normal(rng, tokens, experts)
    given, weights = [], []
    for columns, rows in ((2 * inner, hidden), (hidden, inner)):
        q = rng.integers(0, 1 << bits, (experts, columns, rows))
        scale = rng.uniform(0.002, 0.01, (experts, columns, *([rows // block] if block else []))).astype(
            np.float32
        )
        spread = np.repeat(scale.reshape(experts, columns, -1), block or rows, -1)
        weights.append((q - (1 << (bits - 1))) * spread)
        given.append((packed(q, bits), scale))
    b1 = normal(rng, experts, 2 * inner)

    def expert(e: int, row: Any) -> Any:
        return weights[1][e] @ swiglu(weights[0][e] @ row + b1[e], 1.7, 1.0, 7.0, 1)

    operands = [("x", x), ("router", router), ("w1", given[0][0]), ("s1", given[0][1]), ("b1", b1)]
    operands += [("w2", given[1][0]), ("s2", given[1][1])]
    wanted = {"y": mixed(x, router, k, 1, expert)}
    agree(
        *("QMoE", operands, wanted, ("y",), ("w1", "s1", "w2", "s2", "b1")),
        judge=bits == 4 or not block,  # which rounds activations elsewhere
        tolerance=1e-4,
        near=1e-2,
        k=k,
        normalize_routing_weights=1,
        activation_type="swiglu",
        activation_alpha=1.7,
        activation_beta=1.0,
        swiglu_limit=7.0,
        swiglu_fusion=1,
        expert_weight_bits=bits,
        **({"block_size": block} if block else {}),
    )


ROW, INT = np.zeros((1, 2, 32), np.float32), np.zeros((1, 2), np.int32)
WEIGHTS = np.zeros((32, 96), np.float32)


@pytest.mark.parametrize(
    ("op", "arrays", "attrs", "words"),
    [
        (
            "Attention",
            [ROW, WEIGHTS],
            {"num_heads": 5},
            "weights of 96 columns are not [32, 32, 32], of 5 heads each",
        ),
        (
            "Attention",
            [ROW, WEIGHTS],
            {"num_heads": 4, "do_rotary": 1},
            "attribute 'do_rotary' is 1; only 0 is supported",
        ),
        ("Attention", [ROW[0], WEIGHTS], {"num_heads": 4}, "it is [batch, places, hidden], with weights"),
        (
            "GatherBlockQuantized",
            [INT.astype(np.uint8), INT, ROW[0]],
            {"bits": 5},
            "bits are 5, block_size is 128",
        ),
        ("MoE", [ROW, ROW[0], ROW, None, ROW], {"k": 99}, "k is 99 of 32 experts"),
        (
            "MoE",
            [ROW, ROW[0], ROW, None, ROW],
            {"activation_type": "tanh"},
            "activation_type is 'tanh'; it is one of relu",
        ),
    ],
)
def test_what_does_not_fit_is_one_error(op: str, arrays: Any, attrs: dict[str, Any], words: str) -> None:
    assert words in refused(op, *arrays, **attrs)
