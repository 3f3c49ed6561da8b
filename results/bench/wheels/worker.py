"""Answers requests for models with ONNX Runtime.

Run as a script by any Python that has NumPy and ONNX Runtime. Requests and answers are lines of JSON: ``model`` is a
file, ``inputs`` one of arrays by name (.npz), and the results are written in order to ``outputs`` (.npz); the answer
has their names.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any


def main() -> None:
    """Answer requests until standard input ends; standard output is for the answers only."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(what: Mapping[str, Any]) -> None:
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    answer({"ready": True})
    for line in sys.stdin:
        answer({"names": answered(json.loads(line))})


def answered(request: Mapping[str, str]) -> list[str]:
    """Write the results of a request, and return their names."""
    import numpy as np

    session = session_of(request["model"])
    with np.load(request["inputs"]) as inputs:
        results = session.run(None, dict(inputs))
    np.savez(request["outputs"], *results)
    return [each.name for each in session.get_outputs()]


@cache
def session_of(model: str) -> Any:
    """Return the session of a file."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


if __name__ == "__main__":
    main()
