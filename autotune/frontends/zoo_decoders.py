"""Language models with random weights that decode word by word, as exporters write them for a cache in a buffer.

Inputs are ``input_ids`` [1, sequence_length] and ``attention_mask`` [1, places] of int64, with a 1 for each word so
far, and for each layer ``past_key_values.N.key`` and ``.value`` [1, groups, places, size]; outputs are ``logits``
[1, sequence_length, words], and ``present.N.key`` and ``.value`` of the shape of the past. These are the names of
Hugging Face's exporters, and attention is GroupQueryAttention of com.microsoft as in models for onnxruntime-genai:
past and present are meant to be one buffer.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from autotune.frontends.model_builder import ModelBuilder
from autotune.graph.ir import Array

if TYPE_CHECKING:
    import onnx

Style = Literal["llama", "qwen", "phi", "gpt"]
STYLES: tuple[Style, ...] = ("llama", "qwen", "phi", "gpt")
_CONTRIB = "com.microsoft"
BLOCK = 32
"""Weights of few bits that have a scale."""
_ROTATIONS = 10000.0


@dataclass(frozen=True)
class Decoder:
    """The sizes of a model. Styles: "llama" (RMS norms, rotated heads, gated layers), "qwen" (the same with biases of
    queries, keys and values), "phi" (attention and layer side by side, half of a head rotated), "gpt" (learned places).

    ``bits`` of weights: 32 for float32, 4 or 8 for blocks of 32 with a float32 scale each.
    """

    style: Style = "llama"
    layers: int = 2
    width: int = 64
    heads: int = 4
    groups: int = 2
    inner: int = 128
    words: int = 96
    places: int = 64
    bits: int = 32

    @property
    def size(self) -> int:
        """Return the elements of a head."""
        return self.width // self.heads


LLAMA_1B = Decoder("llama", 16, 2048, 32, 8, 8192, 32000, 1024, 4)
"""The layers of Llama 3.2 1B, with the words of Llama 2."""


def decoder(sizes: Decoder, seed: int = 0, weights: Path | None = None) -> onnx.ModelProto:
    """Return the model, with weights of a normal distribution; those of few bits are uniform.

    With ``weights`` they are in that file, in whose folder the model is to be saved.
    """
    return _DecoderWriter(sizes, seed, weights).model()


class _DecoderWriter:
    def __init__(self, sizes: Decoder, seed: int, weights: Path | None) -> None:
        self.sizes = sizes
        self.b = ModelBuilder(f"{sizes.style}_decoder", seed, weights)
        self.simple = sizes.style in ("llama", "qwen")

    def model(self) -> onnx.ModelProto:
        b, sizes = self.b, self.sizes
        ids = b.input("input_ids", (1, "sequence_length"), "int64")
        mask = b.input("attention_mask", (1, sizes.places), "int64")
        along = b.constant("along", np.array([1], np.int64))
        length = b.node("ReduceSum", [mask, along], "length", keepdims=1)
        last = b.node("Sub", [length, b.constant("one", np.int64(1))], "last")
        places = b.constant("total_sequence_length", np.array([sizes.places], np.int32))
        self.ends = [b.node("Cast", [last], "seqlens_k", to=6), places]
        self.tables = self._tables()
        x, caches = self._embedded(ids, length), list[str]()
        for layer in range(sizes.layers):
            x, *cache = self._layer(x, f"layers.{layer}", layer)
            caches += cache
        logits = self._product(self._norm(x, "norm"), "lm_head", sizes.width, sizes.words, "logits")
        shapes: dict[str, list[int | str]] = {name: [*self._cache] for name in caches}
        shapes[logits] = [1, "sequence_length", sizes.words]
        return b.finish([logits, *caches], shapes=shapes)

    @property
    def _cache(self) -> tuple[int, ...]:
        return (1, self.sizes.groups, self.sizes.places, self.sizes.size)

    def _tables(self) -> list[str]:
        """Return cosines and sines of rotated places."""
        if self.sizes.style == "gpt":
            return ["", ""]
        rotated = self.sizes.size // (2 if self.sizes.style == "phi" else 1)
        angles = np.outer(np.arange(self.sizes.places), _ROTATIONS ** -(np.arange(0, rotated, 2) / rotated))
        named = (("cos_cache", np.cos(angles)), ("sin_cache", np.sin(angles)))
        return [self.b.constant(name, table.astype(np.float32)) for name, table in named]

    def _embedded(self, ids: str, length: str) -> str:
        x = self._rows("embed_tokens", ids)
        if self.sizes.style != "gpt":
            return x
        b, sizes = self.b, self.sizes
        zero, one = b.constant("zero", np.int64(0)), b.constant("step", np.int64(1))
        scalar = b.constant("scalar", np.zeros(0, np.int64))
        count = b.node("Shape", [ids], "count", start=1)
        end, number = (b.node("Reshape", [each, scalar], f"{each}.number") for each in (length, count))
        steps = b.node("Range", [zero, number, one], "steps")
        at = b.node("Add", [steps, b.node("Sub", [end, number], "first")], "at")
        table = b.normal("embed_places", (sizes.places, sizes.width), 0.3)
        return b.node("Add", [x, b.node("Gather", [table, at], "placed")], "embedded")

    def _rows(self, name: str, ids: str) -> str:
        """Look rows of the words up."""
        b, sizes = self.b, self.sizes
        if sizes.bits == 32:
            return b.node("Gather", [b.normal(name, (sizes.words, sizes.width), 1.0), ids], f"{name}.rows")
        q, scale = (array.reshape(sizes.words, -1) for array in self._few_bits(sizes.words, sizes.width, 1.0))
        operands = [b.constant(f"{name}.q", q), ids, b.constant(f"{name}.scale", scale)]
        return b.node("GatherBlockQuantized", operands, f"{name}.rows", domain=_CONTRIB, **self._blocks)

    @property
    def _blocks(self) -> dict[str, int]:
        return {"bits": self.sizes.bits, "block_size": BLOCK}

    def _few_bits(self, rows: int, columns: int, deviation: float) -> tuple[Array, Array]:
        """Return weights [rows, blocks, bytes] of uniform steps, and scales [rows * blocks]."""
        bits, blocks = self.sizes.bits, columns // BLOCK
        q = self.b.rng.integers(0, 256, (rows, blocks, BLOCK * bits // 8), np.uint8)
        steps = self.b.rng.uniform(0.8, 1.2, rows * blocks).astype(np.float32)
        return q, steps * np.float32(deviation * 12**0.5 / (1 << bits))

    def _product(
        self, x: str, name: str, inner: int, outer: int, result: str = "", bias: bool = False
    ) -> str:
        b, result = self.b, result or name
        offset = [b.normal(f"{name}.bias", (outer,), 0.02)] if bias else []
        if self.sizes.bits == 32:
            weight = b.normal(f"{name}.weight", (inner, outer), inner**-0.5)
            made = b.node("MatMul", [x, weight], f"{result}.product" if bias else result)
            return b.node("Add", [made, *offset], result) if bias else made
        q, scale = self._few_bits(outer, inner, inner**-0.5)
        operands = [
            x,
            b.constant(f"{name}.q", q),
            b.constant(f"{name}.scale", scale),
            *["", ""][: 2 * bias],
            *offset,
        ]
        return b.node("MatMulNBits", operands, result, domain=_CONTRIB, K=inner, N=outer, **self._blocks)

    def _norm(self, x: str, name: str) -> str:
        gain = self.b.constant(
            f"{name}.gain", self.b.rng.uniform(0.8, 1.2, self.sizes.width).astype(np.float32)
        )
        if self.simple:
            return self.b.node("SimplifiedLayerNormalization", [x, gain], name, epsilon=1e-5, axis=-1)
        offset = self.b.normal(f"{name}.offset", (self.sizes.width,), 0.02)
        return self.b.node("LayerNormalization", [x, gain, offset], name, epsilon=1e-5, axis=-1)

    def _layer(self, x: str, name: str, layer: int) -> tuple[str, str, str]:
        normed = self._norm(x, f"{name}.input_norm")
        attended, *cache = self._attention(normed, f"{name}.attention", layer)
        added = self.b.node("Add", [x, attended], f"{name}.attended")
        inner = normed if self.sizes.style == "phi" else self._norm(added, f"{name}.inner_norm")
        return self.b.node("Add", [added, self._mlp(inner, f"{name}.mlp")], f"{name}.out"), cache[0], cache[1]

    def _attention(self, x: str, name: str, layer: int) -> tuple[str, str, str]:
        b, sizes = self.b, self.sizes
        narrow, biased = sizes.groups * sizes.size, sizes.style != "llama"
        parts = [
            self._product(x, f"{name}.{part}_proj", sizes.width, width, bias=biased)
            for part, width in (("q", sizes.width), ("k", narrow), ("v", narrow))
        ]
        past = [b.input(f"past_key_values.{layer}.{part}", self._cache) for part in ("key", "value")]
        results = [f"{name}.out", *(f"present.{layer}.{part}" for part in ("key", "value"))]
        how = {"num_heads": sizes.heads, "kv_num_heads": sizes.groups, "do_rotary": int(sizes.style != "gpt")}
        b.nodes(
            "GroupQueryAttention", [*parts, *past, *self.ends, *self.tables], results, domain=_CONTRIB, **how
        )
        out = self._product(results[0], f"{name}.o_proj", sizes.width, sizes.width, bias=not self.simple)
        return out, results[1], results[2]

    def _mlp(self, x: str, name: str) -> str:
        b, sizes = self.b, self.sizes
        up = self._product(x, f"{name}.up_proj", sizes.width, sizes.inner, bias=not self.simple)
        if self.simple:
            gate = self._product(x, f"{name}.gate_proj", sizes.width, sizes.inner)
            opened = b.node("Mul", [gate, b.node("Sigmoid", [gate], f"{name}.sigmoid")], f"{name}.silu")
            middle = b.node("Mul", [opened, up], f"{name}.gated")
        else:
            middle = b.node("FastGelu", [up], f"{name}.gelu", domain=_CONTRIB)
        return self._product(middle, f"{name}.down_proj", sizes.inner, sizes.width, bias=not self.simple)


__all__ = ["BLOCK", "LLAMA_1B", "STYLES", "Decoder", "decoder"]
