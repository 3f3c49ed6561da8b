"""Operators that exporters of language models write, alongside NumPy and, where it is installed, ONNX Runtime."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from autotune.compiler.dividing import divide
from autotune.errors import UnknownParameterError
from tests.frontends.foreign_nodes import DOMAIN, agree, node_model, normal, refused, seeds

SEEDS = seeds(100)


def gelu(x: Any) -> Any:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def fast_gelu(x: Any) -> Any:
    return x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("seed", SEEDS)
def test_activations(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 9, rng.integers(1, 4)))
    x, bias = normal(rng, *shape), normal(rng, shape[-1])
    agree("Gelu", [("x", x)], {"y": gelu(x)})
    agree("FastGelu", [("x", x)], {"y": fast_gelu(x)})
    agree("FastGelu", [("x", x), ("b", bias)], {"y": fast_gelu(x + bias)})
    agree("BiasGelu", [("x", x), ("b", bias)], {"y": gelu(x + bias)})
    alpha = float(rng.uniform(0.5, 3))
    agree("QuickGelu", [("x", x)], {"y": x / (1 + np.exp(-np.float32(alpha) * x))}, alpha=alpha)
    agree("QuickGelu", [("x", x)], {"y": x / (1 + np.exp(-np.float32(1.702) * x))})


@pytest.mark.parametrize("seed", SEEDS)
def test_products_of_transposed_operands(seed: int) -> None:
    rng = np.random.default_rng(seed)
    attrs = {name: int(rng.integers(2)) for name in ("transA", "transB", "transBatchA", "transBatchB")}
    m, n, k, *batch = (int(each) for each in rng.integers(1, 7, 5))
    whole = {"A": normal(rng, *batch, m, k), "B": normal(rng, *batch, k, n)}
    given = dict(whole)
    for letter, array in whole.items():
        array = np.swapaxes(array, -1, -2) if attrs[f"trans{letter}"] else array
        given[letter] = np.moveaxis(array, -2, 0) if attrs[f"transBatch{letter}"] else array
    alpha = float(rng.choice([1.0, 0.25]))
    wanted = {"y": whole["A"] @ whole["B"] * np.float32(alpha)}
    arrays = [(letter, np.ascontiguousarray(array)) for letter, array in given.items()]
    agree("FusedMatMul", arrays, wanted, alpha=alpha, **attrs)


def layer_norm(x: Any, scale: Any, bias: Any, epsilon: float) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    y = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) * scale
    return y if bias is None else y + bias


def rms_norm(x: Any, scale: Any, epsilon: float) -> Any:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * scale


@pytest.mark.parametrize("seed", SEEDS)
def test_norms_of_sums(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch, places, hidden = (int(n) for n in rng.integers(2, 9, 3))
    x, scale = normal(rng, batch, places, hidden), normal(rng, hidden)
    skip = normal(rng, *((batch, places, hidden) if seed % 3 else (places, hidden)))
    beta, bias = (normal(rng, hidden) if rng.integers(2) else None for _ in range(2))
    total = x + skip + (0 if bias is None else bias)
    outputs = ("y", "", "", "sum") if rng.integers(2) else ("y",)
    sums = {"sum": total} if len(outputs) > 1 else {}
    first = [("x", x), ("skip", skip), ("scale", scale)]
    epsilon = float(rng.choice([1e-12, 1e-5, 1e-2]))
    wanted = {"y": layer_norm(total, scale, beta, epsilon), **sums}
    agree(
        "SkipLayerNormalization", [*first, ("beta", beta), ("bias", bias)], wanted, outputs, epsilon=epsilon
    )
    wanted = {"y": rms_norm(total, scale, epsilon), **sums}
    agree("SkipSimplifiedLayerNormalization", [*first, ("bias", bias)], wanted, outputs, epsilon=epsilon)
    for domain in ("", DOMAIN):
        wanted = {"y": rms_norm(x, scale, epsilon)}
        operands = [("x", x), ("scale", scale)]
        agree(
            *("SimplifiedLayerNormalization", operands, wanted),
            domain=domain,
            judge=not domain,
            axis=-1,
            epsilon=epsilon,
            stash_type=1,
        )


def turned(x: Any, cos: Any, sin: Any, places: Any, interleaved: int) -> Any:
    """Rotate [batch, heads, places, size] by the rows of the caches that ``places``, [batch, places], name."""
    half = cos.shape[1]
    c, s = (table[places][:, None] for table in (cos, sin))
    part = x[..., : 2 * half]
    a, b = (part[..., ::2], part[..., 1::2]) if interleaved else (part[..., :half], part[..., half:])
    first, second = a * c - b * s, a * s + b * c
    both = (
        np.stack([first, second], -1).reshape(part.shape)
        if interleaved
        else np.concatenate([first, second], -1)
    )
    return np.concatenate([both, x[..., 2 * half :]], -1)


def by_heads(x: Any, heads: int) -> Any:
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def flat(x: Any) -> Any:
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def caches(rng: Any, places: int, half: int) -> tuple[Any, Any]:
    angles = rng.uniform(0, 6, (places, half)).astype(np.float32)
    return np.cos(angles), np.sin(angles)


@pytest.mark.parametrize("seed", SEEDS)
def test_rotations(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch, heads, places = (int(n) for n in rng.integers(1, 5, 3))
    size, interleaved = 16, int(rng.integers(2))
    partly = bool(rng.integers(2))
    cos, sin = caches(rng, 12, size // (4 if partly else 2))
    x = normal(rng, batch, places, heads * size)
    offset = bool(rng.integers(2))
    given = np.array([3]) if offset else rng.integers(0, 12, (batch, places))
    rows = np.broadcast_to(3 + np.arange(places), (batch, places)) if offset else given
    attrs = {"interleaved": interleaved}
    if partly:
        attrs |= {"rotary_embedding_dim": size // 2, "num_heads": heads}
    elif rng.integers(2):
        attrs["num_heads"] = heads
    y = turned(by_heads(x, heads), cos, sin, rows, interleaved)
    tables = [("places", given), ("cos", cos), ("sin", sin)]
    agree("RotaryEmbedding", [("x", x), *tables], {"y": flat(y)}, **attrs)
    agree("RotaryEmbedding", [("x", by_heads(x, heads)), *tables], {"y": y}, **attrs)


def packed(numbers: Any, bits: int) -> Any:
    """Return numbers of the last axis in bytes, of two the first in the lower half."""
    if bits == 8:
        return numbers.astype(np.uint8)
    even = np.concatenate([numbers, np.zeros((*numbers.shape[:-1], numbers.shape[-1] % 2), int)], -1)
    return (even[..., ::2] | even[..., 1::2] << 4).astype(np.uint8)


@pytest.mark.parametrize("block", [16, 32, 64, 128, 256])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zero", ["none", "packed", "float"])
def test_products_with_blocks_of_few_bits(block: int, bits: int, zero: str) -> None:
    rng = np.random.default_rng(block + bits)
    rows, columns = 5, 2 * block + (block // 2)
    blocks = math.ceil(columns / block)
    q = rng.integers(0, 1 << bits, (rows, blocks, block))
    scale = rng.uniform(0.01, 0.1, (rows, blocks)).astype(np.float32)
    middle = np.full((rows, blocks), 1 << (bits - 1))
    moved = rng.integers(0, 1 << bits, (rows, blocks)) if zero != "none" else middle
    moved = moved + 0.25 if zero == "float" else moved
    weights = ((q - moved[..., None]) * scale[..., None]).reshape(rows, -1)[:, :columns]
    stored = {"none": None, "packed": packed(moved.astype(int), bits), "float": moved.astype(np.float32)}[
        zero
    ]
    x, bias = normal(rng, 2, 3, columns), normal(rng, rows)
    operands = [("x", x), ("q", packed(q, bits)), ("scale", scale), ("zero", stored), ("g", None)]
    attrs = {"K": columns, "N": rows, "bits": bits, "block_size": block}
    fixed, wanted = ("q", "scale", "zero", "bias"), x @ weights.T
    judge = zero != "float" or bits == 4
    agree("MatMulNBits", operands, {"y": wanted}, ("y",), fixed, judge, tolerance=1e-4, **attrs)
    agree(
        *("MatMulNBits", [*operands, ("bias", bias)], {"y": wanted + bias}, ("y",), fixed, judge),
        tolerance=1e-4,
        **attrs,
    )


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("seed", seeds(150))
def test_attention_of_many_heads(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch, heads, queries, keys = (int(n) for n in rng.integers(1, 6, 4))
    size, wide, past = 8, int(rng.choice([8, 16])), int(rng.choice([0, 3]))
    causal = int(rng.integers(2)) if not past else 0
    keys = queries if causal or past else keys
    total, scale = past + keys, float(rng.choice([0.0, 0.3]))
    wide = size if past else wide
    q, k, v = (normal(rng, batch, n, heads * w) for n, w in ((queries, size), (keys, size), (keys, wide)))
    bias = normal(rng, heads * (2 * size + wide)) if rng.integers(2) else None
    parts = np.split(bias, [heads * size, 2 * heads * size]) if bias is not None else (0, 0, 0)
    qs, ks, vs = (by_heads(a + b, heads) for a, b in zip((q, k, v), parts, strict=True))
    old = [normal(rng, batch, heads, past, size) for _ in range(2)] if past else [None, None]
    if past:
        ks, vs = (np.concatenate([a, b], 2) for a, b in zip(old, (ks, vs), strict=True))
    added = normal(rng, *rng.choice([1, batch], 1), *rng.choice([1, heads], 1), queries, total)
    added = added if rng.integers(2) else None
    kind = int(rng.integers(4))
    mask, flags = None, None
    if kind == 1:
        mask = rng.integers(1, total + 1, batch).astype(np.int32)
        flags = (np.arange(total) < mask[:, None])[:, None, None]
    elif kind:
        mask = rng.integers(0, 2, (batch, total) if kind == 2 else (batch, queries, total)).astype(np.int32)
        mask[..., 0] = 1
        flags = mask[:, None] if kind == 3 else mask[:, None, None]
    scores = qs @ ks.swapaxes(-1, -2) * (scale or 1 / math.sqrt(size))
    scores = scores + (0 if added is None else added)
    if flags is not None:
        scores = scores + np.where(flags, 0, -10000.0)
    if causal:
        scores = np.where(np.tril(np.ones((queries, total), bool)), scores, -np.inf)
    wanted = {"y": flat(softmax(scores) @ vs), "k2": ks, "v2": vs}
    operands = [("q", q), ("k", k), ("v", v), ("bias", bias), ("mask", mask), ("added", added)]
    operands += [("past_k", old[0]), ("past_v", old[1])]
    outputs = ("y", "k2", "v2") if past or seed % 2 else ("y",)
    wanted = {name: wanted[name] for name in outputs}
    attrs = {"num_heads": heads, "unidirectional": causal, "scale": scale}
    agree("MultiHeadAttention", operands, wanted, outputs, **attrs)


def test_packed_operands_of_attention() -> None:
    rng = np.random.default_rng(0)
    qkv = normal(rng, 2, 5, 3, 3, 8)
    q, k, v = (qkv[:, :, :, n].transpose(0, 2, 1, 3) for n in range(3))
    wanted = {"y": flat(softmax(q @ k.swapaxes(-1, -2) / math.sqrt(8)) @ v)}
    agree("MultiHeadAttention", [("qkv", qkv)], wanted, judge=False, num_heads=3)
    apart = [("q", np.ascontiguousarray(flat(q))), ("kv", np.ascontiguousarray(qkv[:, :, :, 1:]))]
    agree("MultiHeadAttention", apart, wanted, judge=False, num_heads=3)
    crossed = [("q", flat(q)), ("k", np.ascontiguousarray(k)), ("v", np.ascontiguousarray(v))]
    agree("MultiHeadAttention", crossed, wanted, num_heads=3)


@pytest.mark.parametrize("seed", seeds(150))
def test_attention_of_groups_with_a_cache(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch, groups, shared = (int(n) for n in rng.integers(1, 4, 3))
    heads, size, new = groups * shared, 16, int(rng.choice([1, 1, 4]))
    prompt, buffer = bool(rng.integers(2)), int(rng.choice([0, 0, 5]))
    room = 0 if prompt else 6
    lengths = (
        rng.integers(new if not prompt else 1, room + new + 1, batch) if batch > 1 else np.array([room + new])
    )
    lengths[0] = room + new
    past = room + (new if prompt else 0) * bool(buffer) + buffer
    total = room + new
    q, k, v = (normal(rng, batch, new, n * size) for n in (heads, groups, groups))
    old = [normal(rng, batch, groups, past, size) if past else None for _ in range(2)]
    for each in old:
        if each is not None:
            each[:, :, room:] = (
                0  # beyond the past a buffer keeps what it has, and a new one of ONNX Runtime zeros
            )
    rotary, interleaved, window = int(rng.integers(2)), int(rng.integers(2)), int(rng.choice([-1, 3]))
    softcap, scale = float(rng.choice([0.0, 5.0])), float(rng.choice([0.0, 0.3]))
    cos, sin = caches(rng, 16, size // 2)
    qs, ks, vs = (by_heads(x, n) for x, n in ((q, heads), (k, groups), (v, groups)))
    first = np.zeros(batch, int) if prompt else lengths - new
    places = first[:, None] + np.arange(new)
    if rotary:
        qs, ks = (turned(x, cos, sin, places, interleaved) for x in (qs, ks))
    long = max(past, total)
    caches_now = [np.zeros((batch, groups, long, size), np.float32) for _ in range(2)]
    for cache, before, now in zip(caches_now, old, (ks, vs), strict=True):
        for b in range(batch):
            if before is not None:
                cache[b, :, :past] = before[b]
            cache[b, :, first[b] : first[b] + new] = now[b]
    everything, values = (np.repeat(cache, shared, 1) for cache in caches_now)
    scores = qs @ everything.swapaxes(-1, -2) * (scale or 1 / math.sqrt(size))
    scores = softcap * np.tanh(scores / softcap) if softcap else scores
    key, query = np.arange(long), places[:, None, :, None]
    kept = (key <= query) & ((key > query - window) | (window < 0))
    wanted = {
        "y": flat(softmax(np.where(kept, scores, -np.inf)) @ values),
        "k2": caches_now[0],
        "v2": caches_now[1],
    }
    tables = [("cos", cos), ("sin", sin)] if rotary else [("cos", None), ("sin", None)]
    operands = [("q", q), ("k", k), ("v", v), ("past_k", old[0]), ("past_v", old[1])]
    if rng.integers(2):
        operands[:3] = [("q", np.concatenate([q, k, v], -1)), ("k", None), ("v", None)]
    operands += [("lengths", (lengths - 1).astype(np.int32)), ("total", np.array([total], np.int32)), *tables]
    attrs: dict[str, Any] = {"num_heads": heads, "kv_num_heads": groups, "scale": scale, "softcap": softcap}
    attrs |= {"do_rotary": rotary, "rotary_interleaved": interleaved, "local_window_size": window}
    whole = bool((lengths == total).all())  # results of padding are anything
    whole &= batch == 1 or new == 1 or not past  # what ONNX Runtime takes
    fixed = ("total",) if not buffer or seed % 2 else ()
    agree("GroupQueryAttention", operands, wanted, ("y", "k2", "v2"), fixed, judge=whole, **attrs)


@pytest.mark.parametrize(("groups", "past"), [(4, 0), (2, 0), (2, 9)])
def test_attention_of_groups_is_one_region(groups: int, past: int) -> None:
    rng = np.random.default_rng(0)
    shapes = {"q": 64, "k": 16 * groups, "v": 16 * groups}
    operands: list[tuple[str, Any]] = [(n, normal(rng, 1, 6, w)) for n, w in shapes.items()]
    operands += [(n, normal(rng, 1, groups, past, 16) if past else None) for n in ("past_k", "past_v")]
    operands += [("lengths", np.array([past + 5], np.int32)), ("total", np.array([past + 6], np.int32))]
    proto = node_model("GroupQueryAttention", operands, fixed=("total",), num_heads=4, kv_num_heads=groups)
    assert "attention" in [d.workload.kind for d in divide(proto).dispatches]


ROW = np.zeros((1, 2, 32), np.float32)
INT = np.zeros(1, np.int32)


@pytest.mark.parametrize(
    ("op", "arrays", "attrs", "words"),
    [
        ("Gelu", [], {}, "node 'node' (Gelu): input 0 is missing"),
        ("Gelu", [ROW, ROW], {}, "node 'node' (Gelu): it has 2 inputs of at most 1"),
        ("QuickGelu", [ROW], {"alfa": 1.0}, "attribute 'alfa' is not known; did you mean 'alpha'?"),
        ("QuickGelu", [ROW], {"alpha": "much"}, "attribute 'alpha' is 'much'; it is of type float"),
        ("MultiHeadAttention", [ROW, ROW, ROW], {}, "attribute 'num_heads' is missing"),
        (
            "MultiHeadAttention",
            [ROW] * 3,
            {"num_heads": 5},
            "input 'x0' is float32[1, 2, 32]; it is [batch, places",
        ),
        ("MultiHeadAttention", [ROW] * 3, {"num_heads": 0}, "num_heads is 0; it is 1 or more"),
        ("MultiHeadAttention", [ROW], {"num_heads": 4}, "input 1, the keys, is missing"),
        (
            *("GroupQueryAttention", [ROW, ROW, ROW, None, None, INT, INT]),
            {"num_heads": 3, "kv_num_heads": 2},
            "num_heads is 3, kv_num_heads is 2: the first is a multiple of the second",
        ),
        (
            *("GroupQueryAttention", [ROW, ROW, ROW, None, None, INT, INT]),
            {"num_heads": 2, "kv_num_heads": 2, "smooth_softmax": 1},
            "attribute 'smooth_softmax' is 1; only 0 is supported",
        ),
        (
            *("GroupQueryAttention", [ROW, ROW, ROW, None, None, INT, INT]),
            {"num_heads": 2, "kv_num_heads": 2},
            "2 new keys do not fit a cache of 0 places; input 'x6' says how many",
        ),
        (
            "MatMulNBits",
            [ROW] * 3,
            {"K": 32, "N": 4, "bits": 3, "block_size": 16},
            "bits are 3, block_size is 16",
        ),
        (
            *("MatMulNBits", [ROW, ROW, ROW, None, INT], {"K": 32, "N": 4, "block_size": 16}),
            "input 'x4', which orders the columns (g_idx; act-order), is not supported",
        ),
    ],
)
def test_what_does_not_fit_is_one_error(op: str, arrays: Any, attrs: dict[str, Any], words: str) -> None:
    assert words in refused(op, *arrays, **attrs)


def test_weights_of_few_bits_are_constants() -> None:
    attrs = {"K": 32, "N": 4, "bits": 8, "block_size": 16}
    q, scale = np.zeros((4, 2, 16), np.uint8), np.ones((4, 2), np.float32)
    text = refused("MatMulNBits", ROW, q, scale, error=UnknownParameterError, **attrs)
    assert "input 'x1' is not a constant" in text
    assert "give values={'x1': ...}" in text
    text = refused("MatMulNBits", ROW, q[:, :1], scale, fixed=("x1", "x2"), **attrs)
    assert "input 'x1' is uint8[4, 1, 16]; it is uint8[4, 2, 16]" in text
