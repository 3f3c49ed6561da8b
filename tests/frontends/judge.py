"""ONNX Runtime as judge of single nodes, in the Python that has it.

Run as a script it answers requests: a request is the arrays of an ``.npz`` file behind its length in eight bytes, of
which ``model`` is the model and the others are inputs; an answer is the results in order, or ``error``.
"""

from __future__ import annotations

import io
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from typing import IO, Any

import numpy as np

_LENGTH = 8


class Judge:
    """A process of a Python interpreter with ONNX Runtime; ``cases`` counts what it was asked, by operator."""

    def __init__(self, python: str) -> None:
        self.cases: Counter[str] = Counter()
        self._process = subprocess.Popen(
            [python, "-I", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def run(self, model: Any, feed: Mapping[str, Any]) -> list[Any]:
        """Return the results of a model of one node. Raises AssertionError with ONNX Runtime's error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.cases[model.graph.node[0].op_type] += 1
        named = {f"input {name}": array for name, array in feed.items()}
        write(self._process.stdin, {"model": np.frombuffer(model.SerializeToString(), np.uint8), **named})
        answer = read(self._process.stdout)
        assert answer is not None, "the judge has ended"
        assert "error" not in answer, str(answer["error"])
        return [answer[f"result {n}"] for n in range(len(answer))]

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def write(to: IO[bytes], arrays: Mapping[str, Any]) -> None:
    file = io.BytesIO()
    np.savez(file, **arrays)
    text = file.getvalue()
    to.write(len(text).to_bytes(_LENGTH, "little") + text)
    to.flush()


def read(of: IO[bytes]) -> dict[str, Any] | None:
    """Return the next arrays; None at the end."""
    length = of.read(_LENGTH)
    if len(length) < _LENGTH:
        return None
    with np.load(io.BytesIO(of.read(int.from_bytes(length, "little")))) as file:
        return dict(file)


def answered(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results of a request's model by ONNX Runtime, or its error."""
    import onnxruntime

    inputs = {name.removeprefix("input "): array for name, array in request.items() if name != "model"}
    try:
        session = onnxruntime.InferenceSession(request["model"].tobytes(), providers=["CPUExecutionProvider"])
        return {f"result {n}": array for n, array in enumerate(session.run(None, inputs))}
    except Exception as error:  # noqa: BLE001  # whatever it raises is its answer
        return {"error": np.array(str(error))}


def main() -> None:
    """Answer requests until standard input ends."""
    while (request := read(sys.stdin.buffer)) is not None:
        write(sys.stdout.buffer, answered(request))


if __name__ == "__main__":
    main()
