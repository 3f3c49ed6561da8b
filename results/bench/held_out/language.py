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


def whisper_encoder(frames: int) -> Built:
    """Whisper's encoder, of its base size with two layers; ``frames`` of 80 frequencies, 10 ms each."""
    config = transformers.WhisperConfig(
        d_model=512,
        encoder_layers=2,
        encoder_attention_heads=8,
        encoder_ffn_dim=2048,
        decoder_layers=1,
        decoder_attention_heads=8,
        max_source_positions=frames // 2,
    )
    model = transformers.WhisperModel(config).encoder
    return Adapted(model, lambda net, x: net(x, return_dict=False)[0]), (torch.randn(1, 80, frames),)


__all__ = ["bert", "gpt2_cache", "llama", "mamba", "mixtral", "t5_encoder", "whisper_encoder"]
