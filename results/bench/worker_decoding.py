"""A peer that decodes: ONNX Runtime with past and present bound to one buffer, or OpenVINO; a process of its own.

usage: worker_decoding.py onnxruntime|openvino MODEL.onnx THREADS. Each line of input is a number of cached keys and a
number of steps; the answer is a line of JSON: milliseconds of each step, and the first scores of the last one.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

LOGITS = "logits"


class OnnxRuntime:
    """Past and present are one buffer of an IOBinding."""

    def __init__(self, path: str, threads: int) -> None:
        onnxruntime: Any = __import__("onnxruntime")

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.binding = self.session.io_binding()
        self.value = onnxruntime.OrtValue.ortvalue_from_numpy
        self.arrays: dict[str, Any] = {}
        self.values: dict[str, Any] = {}
        for end in self.session.get_inputs():
            kind = np.int64 if "int64" in end.type else np.float32
            self.arrays[end.name] = np.zeros([n if isinstance(n, int) else 1 for n in end.shape], kind)
            self.values[end.name] = self.value(self.arrays[end.name])
            if end.name.startswith("past"):
                self.binding.bind_ortvalue_input(end.name, self.values[end.name])
                present = end.name.replace("past_key_values", "present")
                self.binding.bind_ortvalue_output(present, self.values[end.name])
        self.binding.bind_output(LOGITS)

    def step(self) -> Any:
        """Return the scores of one step."""
        for name in ("input_ids", "attention_mask"):
            self.binding.bind_ortvalue_input(name, self.value(self.arrays[name]))
        self.session.run_with_iobinding(self.binding)
        return self.binding.get_outputs()[-1].numpy()


class OpenVino:
    """Past and present are one tensor, with the precision that OpenVINO chooses."""

    def __init__(self, path: str, threads: int) -> None:
        openvino: Any = __import__("openvino")

        model = openvino.Core().read_model(path)
        model.reshape({"input_ids": [1, 1]})
        how = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
        self.request = openvino.Core().compile_model(model, "CPU", how).create_infer_request()
        compiled = self.request.get_compiled_model()
        self.arrays: dict[str, Any] = {}
        for port in compiled.inputs:
            self.arrays[port.get_any_name()] = np.zeros([*port.shape], port.element_type.to_dtype())
        for name, array in self.arrays.items():
            tensor = openvino.Tensor(array, shared_memory=True)
            self.request.set_tensor(name, tensor)
            if name.startswith("past"):
                self.request.set_tensor(name.replace("past_key_values", "present"), tensor)

    def step(self) -> Any:
        """Return the scores of one step."""
        self.request.infer()
        return self.request.get_tensor(LOGITS).data


def main() -> None:
    """Answer requests."""
    kind: Any = {"onnxruntime": OnnxRuntime, "openvino": OpenVino}[sys.argv[1]]
    peer = kind(sys.argv[2], int(sys.argv[3]))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        keys, steps = map(int, line.split())
        peer.arrays["input_ids"][:] = 7
        peer.arrays["attention_mask"][:] = np.arange(peer.arrays["attention_mask"].shape[1]) < keys
        times = []
        for _ in range(steps):
            begin = time.perf_counter()
            scores = peer.step()
            times.append(1e3 * (time.perf_counter() - begin))
        print(json.dumps({"ms": times, "scores": [float(x) for x in scores.reshape(-1)[:4]]}), flush=True)


if __name__ == "__main__":
    main()
