"""ONNX Runtime's static quantiser, and runs of a model on many inputs: a script of one request, as JSON on its input.

It runs where ONNX Runtime is installed, which need not be where this package is, and imports nothing of it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np


class Feeds:
    """Inputs as a CalibrationDataReader of the peer's quantiser."""

    def __init__(self, feeds: Iterator[dict[str, Any]]) -> None:
        self._feeds = feeds

    def get_next(self) -> dict[str, Any] | None:
        """The next inputs by name; None at the end."""
        return next(self._feeds, None)


def quantise(model: str, samples: str, output: str) -> dict[str, Any]:
    """QDQ, int8 weights with a scale a channel, uint8 activations by the range of what is seen: its own default."""
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    name = _session(model, 1).get_inputs()[0].name
    feeds = Feeds({name: each} for each in np.load(samples, allow_pickle=False))
    prepared = str(Path(output).with_suffix(".prepared.onnx"))
    quant_pre_process(model, prepared, skip_symbolic_shape=True)
    quantize_static(
        prepared,
        output,
        feeds,
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    return {}


def outputs(model: str, samples: str, output: str, threads: int) -> dict[str, Any]:
    """Write the first output for each sample, stacked."""
    session = _session(model, threads)
    name = session.get_inputs()[0].name
    found = [session.run(None, {name: each})[0] for each in np.load(samples, allow_pickle=False)]
    np.save(output, np.stack(found), allow_pickle=False)
    return {}


def _session(model: str, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def main() -> None:
    """Answer the request; whatever libraries print goes to standard error."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    request = json.loads(sys.stdin.read())
    ways: dict[str, Callable[..., dict[str, Any]]] = {"quantise": quantise, "outputs": outputs}
    do = ways[request.pop("do")]
    answer.write(json.dumps(do(**request)))
    answer.close()


if __name__ == "__main__":
    main()

__all__ = ["outputs", "quantise"]
