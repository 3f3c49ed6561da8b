"""Models with requests of twelve sizes each: what ``torch.compile`` meets in use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torchvision
from torch import nn
from torch.nn import functional

from results.bench.held_out import blocks, language, vision
from results.bench.held_out.export import settle
from results.bench.worker_torch_sizes import BATCHES, LENGTHS, SIDES, SMALL_SIDES

Request = tuple[torch.Tensor, ...]
Sized = Callable[[], tuple[nn.Module, list[Request]]]


class _Attention(nn.Module):
    """Attention with a projection before and behind it; ``attend`` is what is between."""

    def __init__(self, attend: Callable[..., Any]) -> None:
        super().__init__()
        self.inside, self.outside = nn.Linear(128, 384), nn.Linear(128, 128)
        self._attend = attend

    def forward(self, x: torch.Tensor) -> Any:
        batch, length, _ = x.shape
        query, key, value = self.inside(x).view(batch, length, 3, 4, 32).permute(2, 0, 3, 1, 4)
        return self.outside(self._attend(query, key, value).transpose(1, 2).reshape(batch, length, 128))


def _causal(query: Any, key: Any, value: Any) -> Any:
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True)


def _windowed(query: Any, key: Any, value: Any) -> Any:
    places = torch.arange(query.shape[2])
    near = (places[:, None] - places[None]).abs() < 4
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=near)


def _grouped(query: Any, key: Any, value: Any) -> Any:
    return functional.scaled_dot_product_attention(query, key[:, :2], value[:, :2], enable_gqa=True)


def _flex(query: Any, key: Any, value: Any) -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return flex_attention(query, key, value, score_mod=lambda score, b, h, i, j: score - 0.1 * (i - j).abs())


class _Experts(nn.Module):
    """Four experts, of which each row takes two: all see every row."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.gate = nn.Linear(width, 4)
        self.experts = nn.ModuleList(_perceptron(width, 4 * width, width) for _ in range(4))

    def forward(self, x: torch.Tensor) -> Any:
        shares = self.gate(x).softmax(-1)
        chosen = shares.topk(2, -1).indices
        total = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            takes = (chosen == number).any(-1, keepdim=True)
            total = torch.where(takes, total + expert(x) * shares[:, number : number + 1], total)
        return total


class _Cast(nn.Module):
    """A model in bfloat16 by autocast."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return self.model(x)


def _perceptron(*widths: int) -> nn.Sequential:
    first, second, third = widths
    return nn.Sequential(
        nn.Linear(first, second), nn.BatchNorm1d(second), nn.GELU(), nn.Linear(second, third)
    )


def _sound() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(16, 64, 5, stride=2, padding=2),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.Conv1d(64, 64, 3, padding=1),
        nn.AdaptiveAvgPool1d(1),
    )


def _sized(model: Callable[[], nn.Module], request: Callable[[int], Request], sizes: Sequence[int]) -> Sized:
    def make() -> tuple[nn.Module, list[Request]]:
        torch.manual_seed(0)
        net, requests = model().eval(), [request(size) for size in sizes]
        settle(net, requests[-1])
        return net, requests

    return make


def _images(side: int) -> Request:
    return (torch.rand(1, 3, side, side),)


def _words(length: int) -> Request:
    return torch.randint(0, 4096, (1, length)), torch.ones(1, length, dtype=torch.int64)


def _rows(size: int) -> Request:
    return (torch.randn(size, 64),)


def _sequences(length: int) -> Request:
    return (torch.randn(2, length, 128),)


def _cache(length: int) -> Request:
    return torch.randint(0, 8192, (1, 1)), *(torch.randn(1, 12, length, 64) for _ in range(4))


SIZED: dict[str, Sized] = {
    "perceptron": _sized(lambda: _perceptron(64, 256, 64), _rows, BATCHES),
    "perceptron_bf16": _sized(lambda: _Cast(_perceptron(64, 256, 64)), _rows, BATCHES),
    "experts": _sized(_Experts, _rows, BATCHES),
    "sound": _sized(_sound, lambda n: (torch.randn(2, 16, n),), LENGTHS),
    "causal": _sized(lambda: _Attention(_causal), _sequences, LENGTHS),
    "causal_bf16": _sized(lambda: _Cast(_Attention(_causal)), _sequences, LENGTHS),
    "windowed": _sized(lambda: _Attention(_windowed), _sequences, LENGTHS),
    "grouped": _sized(lambda: _Attention(_grouped), _sequences, LENGTHS),
    "flex": _sized(lambda: _Attention(_flex), _sequences, LENGTHS),
    "bert": _sized(lambda: language.bert(128)[0], _words, LENGTHS),
    "llama": _sized(lambda: language.llama(64)[0], _words, LENGTHS),
    "mixtral": _sized(lambda: language.mixtral(4)[0], _words, LENGTHS),
    "t5_encoder": _sized(lambda: language.t5_encoder(128)[0], lambda n: _words(n)[:1], LENGTHS),
    "gpt2_decode": _sized(lambda: language.gpt2_cache(1, 128)[0], _cache, LENGTHS),
    "resnet18": _sized(lambda: torchvision.models.resnet18(), _images, SIDES),
    "lraspp": _sized(lambda: vision.segmentation("lraspp_mobilenet_v3_large", 224)[0], _images, SIDES),
    "regnety": _sized(lambda: vision.classifier("regnety_004", 224)[0], _images, SIDES),
    "unet": _sized(lambda: blocks.diffusion_unet(32)[0], lambda n: blocks.diffusion_unet(n)[1], SMALL_SIDES),
    "mixer": _sized(
        lambda: vision.classifier("mixer_s32_224", 224)[0], lambda n: (torch.rand(n, 3, 224, 224),), BATCHES
    ),
    "vit": _sized(
        lambda: vision.classifier("vit_tiny_patch16_224", 224)[0],
        lambda n: (torch.rand(n, 3, 224, 224),),
        BATCHES,
    ),
}

__all__ = ["SIZED"]
