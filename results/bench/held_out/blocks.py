"""Models written here from the blocks that others are made of: diffusion, graphs, recurrence."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from results.bench.held_out.vision import Built


class _Residual(nn.Module):
    """Two convolutions with group norm and SiLU; a step of the diffusion moves the channels' means."""

    def __init__(self, inputs: int, outputs: int, step: int = 0) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.GroupNorm(32, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1)
        )
        self.second = nn.Sequential(
            nn.GroupNorm(32, outputs), nn.SiLU(), nn.Conv2d(outputs, outputs, 3, padding=1)
        )
        self.step = nn.Linear(step, outputs) if step else None
        self.short = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: torch.Tensor, step: torch.Tensor | None = None) -> Any:
        y = self.first(x)
        if self.step is not None and step is not None:
            y = y + self.step(functional.silu(step))[:, :, None, None]
        return self.short(x) + self.second(y)


class _Attention(nn.Module):
    """Pixels attend to one another, and to the words of a text where there is one."""

    def __init__(self, channels: int, heads: int, words: int = 0) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(32, channels)
        self.query = nn.Linear(channels, channels)
        self.key = nn.Linear(words or channels, channels)
        self.value = nn.Linear(words or channels, channels)
        self.out = nn.Linear(channels, channels)

    def forward(self, x: torch.Tensor, text: torch.Tensor | None = None) -> Any:
        batch, channels, height, width = x.shape
        pixels = self.norm(x).flatten(2).transpose(1, 2)
        read = pixels if text is None else text

        def split(y: torch.Tensor) -> Any:
            return y.reshape(batch, -1, self.heads, channels // self.heads).transpose(1, 2)

        found = functional.scaled_dot_product_attention(
            split(self.query(pixels)), split(self.key(read)), split(self.value(read))
        )
        joined = self.out(found.transpose(1, 2).reshape(batch, -1, channels))
        return x + joined.transpose(1, 2).reshape(batch, channels, height, width)


class _UNet(nn.Module):
    """The U-Net of latent diffusion (Rombach et al. 2022) with two resolutions."""

    def __init__(self, channels: int = 128, words: int = 256) -> None:
        super().__init__()
        step = 4 * channels
        self.frequencies = nn.Buffer(torch.exp(torch.arange(channels // 2) * (-9.21 / (channels // 2))))
        self.embed = nn.Sequential(nn.Linear(channels, step), nn.SiLU(), nn.Linear(step, step))
        self.head = nn.Conv2d(4, channels, 3, padding=1)
        self.down = _Residual(channels, channels, step)
        self.shrink = nn.Conv2d(channels, channels, 3, stride=2, padding=1)
        self.inner = _Residual(channels, 2 * channels, step)
        self.own = _Attention(2 * channels, 4)
        self.cross = _Attention(2 * channels, 4, words)
        self.middle = _Residual(2 * channels, 2 * channels, step)
        self.grow = nn.Conv2d(2 * channels, 2 * channels, 3, padding=1)
        self.up = _Residual(3 * channels, channels, step)
        self.tail = nn.Sequential(nn.GroupNorm(32, channels), nn.SiLU(), nn.Conv2d(channels, 4, 3, padding=1))

    def forward(self, x: torch.Tensor, time: torch.Tensor, text: torch.Tensor) -> Any:
        angles = time[:, None].float() * self.frequencies[None]
        step = self.embed(torch.cat([angles.cos(), angles.sin()], dim=-1))
        kept = self.down(self.head(x), step)
        y = self.inner(self.shrink(kept), step)
        y = self.middle(self.cross(self.own(y), text), step)
        y = self.grow(functional.interpolate(y, scale_factor=2.0, mode="nearest"))
        return self.tail(self.up(torch.cat([y, kept], dim=1), step))


def diffusion_unet(side: int) -> Built:
    """One step of denoising: a latent image, the time and a text's words in, the noise out."""
    return _UNet(), (torch.randn(1, 4, side, side), torch.tensor([17]), torch.randn(1, 77, 256))


class _Decoder(nn.Module):
    """The decoder of a variational autoencoder, as latent diffusion has it."""

    def __init__(self, channels: int = 128) -> None:
        super().__init__()
        self.head = nn.Conv2d(4, 2 * channels, 3, padding=1)
        self.first = _Residual(2 * channels, 2 * channels)
        self.attention = _Attention(2 * channels, 1)
        self.second = _Residual(2 * channels, 2 * channels)
        self.grow = nn.Conv2d(2 * channels, 2 * channels, 3, padding=1)
        self.third = _Residual(2 * channels, channels)
        self.grow_again = nn.Conv2d(channels, channels, 3, padding=1)
        self.fourth = _Residual(channels, 64)
        self.tail = nn.Sequential(nn.GroupNorm(32, 64), nn.SiLU(), nn.Conv2d(64, 3, 3, padding=1))

    def forward(self, z: torch.Tensor) -> Any:
        y = self.second(self.attention(self.first(self.head(z))))
        y = self.third(self.grow(functional.interpolate(y, scale_factor=2.0, mode="nearest")))
        y = self.fourth(self.grow_again(functional.interpolate(y, scale_factor=2.0, mode="bilinear")))
        return self.tail(y)


def vae_decoder(side: int) -> Built:
    """A latent image to one of four times its sides."""
    return _Decoder(), (torch.randn(1, 4, side, side),)


class _GraphNetwork(nn.Module):
    """GraphSAGE (Hamilton et al. 2017): means over neighbours, by scatter and gather along edges given at run time."""

    def __init__(self, features: int = 128, layers: int = 2) -> None:
        super().__init__()
        self.own = nn.ModuleList(nn.Linear(features, features) for _ in range(layers))
        self.others = nn.ModuleList(nn.Linear(features, features) for _ in range(layers))

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> Any:
        source, target = edges[0], edges[1]
        ones = torch.ones_like(target, dtype=x.dtype)
        degree = torch.zeros(x.shape[0]).scatter_add(0, target, ones).clamp(min=1.0)
        for own, others in zip(self.own, self.others, strict=True):
            where = target[:, None].expand(-1, x.shape[1])
            gathered = torch.zeros_like(x).scatter_add(0, where, x[source])
            x = functional.relu(own(x) + others(gathered / degree[:, None]))
        return x


def graph_network(nodes: int, edges: int) -> Built:
    """Features of nodes and pairs of nodes in, features of nodes out."""
    return _GraphNetwork(), (torch.randn(nodes, 128), torch.randint(0, nodes, (2, edges)))


class _Tagger(nn.Module):
    """A bidirectional LSTM over words, and a tag for each."""

    def __init__(self, width: int = 256, tags: int = 32) -> None:
        super().__init__()
        self.words = nn.Embedding(4096, width)
        self.recurrent = nn.LSTM(width, width, num_layers=2, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(2 * width, tags)

    def forward(self, tokens: torch.Tensor) -> Any:
        return self.tags(self.recurrent(self.words(tokens))[0])


def lstm(length: int) -> Built:
    """Words to tags."""
    return _Tagger(), (torch.randint(0, 4096, (1, length)),)


class _Experts(nn.Module):
    """A layer of Mixtral (Jiang et al. 2024) whose experts see every row: shares of TopK, spread by a one-hot."""

    def __init__(self, width: int = 512, inner: int = 1024, experts: int = 8) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.norm = nn.RMSNorm(width)
        scale = width**-0.5
        self.up = nn.Parameter(torch.randn(experts, width, inner) * scale)
        self.open = nn.Parameter(torch.randn(experts, width, inner) * scale)
        self.down = nn.Parameter(torch.randn(experts, inner, width) * inner**-0.5)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.norm(x)
        shares, chosen = torch.topk(self.gate(y).softmax(-1), 2)
        shares = shares / shares.sum(-1, keepdim=True)
        spread = (functional.one_hot(chosen, self.up.shape[0]) * shares[..., None]).sum(-2)
        gated = functional.silu(y @ self.open) * (y @ self.up)
        return x + ((gated @ self.down) * spread.T[..., None]).sum(0)


def experts(rows: int) -> Built:
    """Rows of features in and out."""
    return nn.Sequential(_Experts(), _Experts()), (torch.randn(rows, 512),)


__all__ = ["diffusion_unet", "experts", "graph_network", "lstm", "vae_decoder"]
