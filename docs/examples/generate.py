"""Generate words by a language model whose cache of keys and values is written in place.

A model in ONNX as exporters for onnxruntime-genai write it (GroupQueryAttention, past and present in one buffer) is
read with ``--model``; without it a small one with random weights is made: ``--style`` llama, qwen, phi or gpt.
"""

import argparse
import time

import numpy as np

import autotune
from autotune.frontends.zoo_decoders import STYLES, Decoder, decoder


class Generator:
    """A model with its cache: words go in, in pieces of at most ``prompt``, and the scores of the next one come out."""

    def __init__(self, source, prompt=16, threads=None):
        sizes = {"sequence_length": f"1..{prompt}:1,{prompt}"}
        self.prompt = prompt
        self.model = autotune.compile_for_sizes(source, sizes, threads=threads)
        specs = {spec.name: spec for spec in self.model.specs()}
        self.mask = np.zeros(specs["attention_mask"].shape, np.int64)
        self.cache = {
            name: np.zeros(s.shape, s.dtype) for name, s in specs.items() if name.startswith("past")
        }
        self.words = self.model.outputs[0].axes[-1]
        self.length = 0

    def read(self, words):
        """Return the scores of the word that follows these, which follow those that were read before."""
        for start in range(0, len(words), self.prompt):
            scores = self._step(words[start : start + self.prompt])
        return scores

    def _step(self, words):
        ids = np.array([words], np.int64)
        self.length += len(words)
        self.mask[:, : self.length] = 1
        scores = np.empty((1, len(words), int(self.words)), np.float32)
        # The model writes new keys and values into the arrays that it reads: nothing of the cache is copied.
        present = [
            self.cache[out.name.replace("present", "past_key_values")] for out in self.model.outputs[1:]
        ]
        self.model({"input_ids": ids, "attention_mask": self.mask, **self.cache}, out=[scores, *present])
        return scores[0, -1]


def greedy(scores):
    """Return the word of the highest score."""
    return int(scores.argmax())


def sampled(rng, temperature, most):
    """Return a function that draws one of the ``most`` best words, by scores over a temperature."""

    def choose(scores):
        best = np.argsort(scores)[-most:]
        weights = np.exp((scores[best] - scores[best].max()) / temperature)
        return int(rng.choice(best, p=weights / weights.sum()))

    return choose


def generate(model, words, count, choose):
    """Yield ``count`` words that follow ``words``."""
    for _ in range(count):
        word = choose(model.read(words))
        yield word
        words = [word]


def main():
    """Print the words, and how many there were in a second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="an ONNX file; by default a small model with random weights")
    parser.add_argument("--style", default="llama", choices=STYLES, help="of the small model")
    parser.add_argument(
        "--bits", type=int, default=4, choices=(4, 8, 32), help="of the small model's weights"
    )
    parser.add_argument(
        "--words", type=int, nargs="+", default=[1, 2, 3], help="the numbers of the first words"
    )
    parser.add_argument("--count", type=int, default=24, help="how many to generate")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 takes the best word each time")
    parser.add_argument("--top", type=int, default=40, help="so many words are drawn from")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()

    source = options.model or decoder(Decoder(options.style, bits=options.bits))
    model = Generator(source, threads=options.threads)
    rng = np.random.default_rng(options.seed)
    choose = sampled(rng, options.temperature, options.top) if options.temperature else greedy
    begin = time.perf_counter()
    found = list(generate(model, options.words, options.count, choose))
    rate = len(found) / (time.perf_counter() - begin)
    print(*found)
    print(f"{rate:.1f} words a second")


if __name__ == "__main__":
    main()
