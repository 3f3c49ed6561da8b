"""Memory and processor time of compiling a language model whose weights are in a file beside it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click
import onnx

from autotune.bench.experiment import Column, Experiment, Record, Say, TableView
from autotune.bench.options import number
from autotune.bench.tables import number as decimals
from autotune.bench.tables import plain
from autotune.frontends.zoo_decoders import LLAMA_1B, decoder

_WORKER = Path(__file__).with_name("worker_compile.py")


def measure(say: Say, bits: str, layers: int, words: int, rows: int) -> Iterator[Sequence[Record]]:
    """Yield a row for each width of weights; raises CalledProcessError for a compilation that fails."""
    for width in map(int, bits.split(",")):
        sizes = replace(LLAMA_1B, layers=layers, words=words, bits=width)
        with tempfile.TemporaryDirectory() as folder:
            model, artifact = Path(folder) / "model.onnx", Path(folder) / "model.atm"
            say(f"writing a model of {width} bits")
            onnx.save(decoder(sizes, weights=Path(folder) / "weights.bin"), str(model))
            nbytes = sum(path.stat().st_size for path in Path(folder).iterdir())
            say("compiling")
            command = [sys.executable, str(_WORKER), str(model), str(rows), str(artifact)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found = json.loads(done.stdout.splitlines()[-1])
            yield [_record(width, nbytes, artifact.stat().st_size, found)]


def _record(bits: int, nbytes: int, artifact: int, found: dict[str, float]) -> Record:
    sizes = {name: found[name] / 1e6 for name in ("anonymous", "file", "resident")}
    times = {f"{name}_of": found[name] / nbytes for name in ("anonymous", "resident")}
    whole = {"bits": bits, "model": nbytes / 1e6, "artifact": artifact / 1e6}
    return {**whole, **sizes, **times, "processor": found["processor"]}


EXPERIMENT = Experiment(
    title="Compiling large models",
    about="A Llama with random weights in a file beside the model, compiled and saved by a process of its own.",
    summary="Measure memory and processor time of compiling a language model.",
    example="--bits 4 --layers 2 --words 4000",
    options=(
        click.Option(["--bits"], default="32,4", show_default=True, help="Bits of a weight: 32, 8 or 4."),
        number("--layers", 9, "Layers of the model."),
        number("--words", 32000, "Words of the model."),
        number("--rows", 16, "Words of a request."),
    ),
    measure=measure,
    views=(
        TableView(
            "Compiling",
            ("bits",),
            (
                Column("bits", "bits", plain),
                Column("model, MB", "model", decimals(0)),
                Column("artifact, MB", "artifact", decimals(0)),
                Column("anonymous, MB", "anonymous", decimals(0)),
                Column("× model", "anonymous_of", decimals(2)),
                Column("resident, MB", "resident", decimals(0)),
                Column("× model", "resident_of", decimals(2)),
                Column("processor, s", "processor", decimals(1)),
            ),
        ),
    ),
)

__all__ = ["EXPERIMENT"]
