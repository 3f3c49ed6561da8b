"""Models of transformers: layers of their real width, few of them."""

from __future__ import annotations

from typing import Any

import torch
import transformers

from results.bench.held_out.vision import Adapted, Built


def _tokens(count: int, words: int) -> torch.Tensor:
    return torch.randint(0, words, (1, count))


def llama(length: int) -> Built:
    """Llama: grouped heads, rotary embedding, gated layers; a prompt to the scores of the words that follow."""
    config = transformers.LlamaConfig(
        vocab_size=4096,
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=2,
        num_attention_heads=16,
        num_key_value_heads=4,
    )
    model = transformers.LlamaForCausalLM(config)
    return Adapted(model, _logits), (_tokens(length, 4096), _padding(length))


def mixtral(length: int) -> Built:
    """Mixtral: two of eight experts a word, whose weights are gathered: loops over experts have no fixed shapes."""
    config = transformers.MixtralConfig(
        vocab_size=4096,
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=1,
        num_attention_heads=8,
        num_key_value_heads=4,
        num_local_experts=8,
    )
    model = transformers.MixtralForCausalLM(config)
    model.set_experts_implementation("batched_mm")
    return Adapted(model, _logits), (_tokens(length, 4096), _padding(length))


def mamba(length: int) -> Built:
    """Mamba: a selective state space, whose recurrence is unrolled by the exporters."""
    config = transformers.MambaConfig(vocab_size=4096, hidden_size=512, num_hidden_layers=1, state_size=16)
    model = transformers.MambaForCausalLM(config)
    return Adapted(model, _logits), (_tokens(length, 4096),)


def _logits(net: Any, tokens: torch.Tensor, *mask: torch.Tensor) -> Any:
    given = {"attention_mask": mask[0]} if mask else {}
    return net(input_ids=tokens, use_cache=False, return_dict=False, **given)[0]


def _padding(length: int) -> torch.Tensor:
    """A mask that calls the last quarter padding."""
    mask = torch.ones(1, length, dtype=torch.int64)
    mask[:, length * 3 // 4 :] = 0
    return mask


def gpt2_cache(new: int, cached: int) -> Built:
    """GPT-2 with keys and values of earlier words: ``new`` words in; their scores and the longer cache out.

    One word is a step of decoding, several are what a draft model proposed, to be verified at once.
    """
    config = transformers.GPT2Config(vocab_size=8192, n_embd=768, n_layer=2, n_head=12)
    model = transformers.GPT2LMHeadModel(config)
    cache = [torch.randn(1, 12, cached, 64) for _ in range(2 * config.n_layer)]
    return Adapted(model, _with_cache), (_tokens(new, 8192), *cache)


def _with_cache(net: Any, tokens: torch.Tensor, *past: torch.Tensor) -> Any:
    cache = transformers.DynamicCache()
    for layer in range(len(past) // 2):
        cache.update(past[2 * layer], past[2 * layer + 1], layer)
    logits = net(input_ids=tokens, past_key_values=cache, use_cache=True, return_dict=False)[0]
    return (logits, *[part for layer in cache.layers for part in (layer.keys, layer.values)])


def bert(length: int) -> Built:
    """BERT with a mask of what is padding."""
    config = transformers.BertConfig(vocab_size=8192, num_hidden_layers=2)

    def call(net: Any, tokens: torch.Tensor, attention: torch.Tensor) -> Any:
        return net(input_ids=tokens, attention_mask=attention, return_dict=False)

    return Adapted(transformers.BertModel(config), call), (_tokens(length, 8192), _padding(length))


def t5_encoder(length: int) -> Built:
    """T5's encoder: relative positions in buckets."""
    config = transformers.T5Config(vocab_size=8192, num_layers=2)
    model = transformers.T5EncoderModel(config)
    return Adapted(model, lambda net, x: net(input_ids=x, return_dict=False)[0]), (_tokens(length, 8192),)


def whisper_encoder(frames: int, width: int = 512, layers: int = 2) -> Built:
    """Whisper's encoder, of its base size with two layers; ``frames`` of 80 frequencies, 10 ms each."""
    model = transformers.WhisperModel(_whisper(width, layers, frames // 2)).encoder
    return Adapted(model, lambda net, x: net(x, return_dict=False)[0]), (torch.randn(1, 80, frames),)


def _whisper(width: int, layers: int, frames: int) -> transformers.WhisperConfig:
    sizes = {
        f"{side}_{name}": count
        for side in ("encoder", "decoder")
        for name, count in (("layers", layers), ("attention_heads", width // 64), ("ffn_dim", 4 * width))
    }
    return transformers.WhisperConfig(d_model=width, max_source_positions=frames, **sizes)


def whisper_cache(new: int, cached: int) -> Built:
    """Whisper's decoder of its tiny size: words so far and half a minute of sound as keys and values."""
    model = transformers.WhisperForConditionalGeneration(_whisper(384, 4, 1500))
    return Adapted(model, _with_both_caches), (_tokens(new, 51865), *_caches(4, 6, cached, 1500))


def t5_cache(new: int, cached: int) -> Built:
    """T5's decoder of its small size: words so far and 128 words of the source as keys and values."""
    config = transformers.T5Config(d_model=512, d_ff=2048, num_layers=6, num_heads=8, d_kv=64)
    model = transformers.T5ForConditionalGeneration(config)
    return Adapted(model, _with_both_caches), (_tokens(new, 32128), *_caches(6, 8, cached, 128))


def _caches(layers: int, heads: int, own: int, cross: int) -> list[torch.Tensor]:
    """Return keys and values of each layer's own words, then of what it is made of."""
    return [torch.randn(1, heads, length, 64) for _ in range(layers) for length in (own, own, cross, cross)]


def _with_both_caches(net: Any, tokens: torch.Tensor, *past: torch.Tensor) -> Any:
    own, cross = transformers.DynamicCache(), transformers.DynamicCache()
    for place in range(0, len(past), 4):
        own.update(past[place], past[place + 1], place // 4)
        cross.update(past[place + 2], past[place + 3], place // 4)
    cache = transformers.EncoderDecoderCache(own, cross)
    source = (past[2].transpose(1, 2).flatten(2),)  # read by nothing: its keys and values are there
    logits = net(
        decoder_input_ids=tokens,
        encoder_outputs=source,
        past_key_values=cache,
        use_cache=True,
        return_dict=False,
    )[0]
    return (logits, *[part for layer in own.layers for part in (layer.keys, layer.values)])


def detr(side: int) -> Built:
    """DETR: ResNet-50, a transformer, and a class and a box for each of a hundred queries."""
    model = transformers.DetrForObjectDetection(
        transformers.DetrConfig(backbone_config=transformers.ResNetConfig(out_features=["stage4"]))
    )

    def call(net: Any, pixels: torch.Tensor) -> Any:
        found = net(pixels, return_dict=True)
        return found.logits, found.pred_boxes

    return Adapted(model, call), (torch.rand(1, 3, side, side),)


__all__ = [
    "bert",
    "detr",
    "gpt2_cache",
    "llama",
    "mamba",
    "mixtral",
    "t5_cache",
    "t5_encoder",
    "whisper_cache",
    "whisper_encoder",
]
