"""Serve requests of any length by one artifact: each takes the smallest bucket that it fits in."""

import numpy as np
import onnx.parser

import autotune

TEXT = """<ir_version: 8, opset_import: ["" : 18]>
scores (float[seq, 16] x) => (float[seq, 16] y) { y = Softmax(x) }"""
proto = onnx.parser.parse_model(TEXT)

model = autotune.compile_for_sizes(proto, {"seq": "1..64:16,64"}, threads=1)
for length in (3, 16, 50):
    x = np.random.default_rng(length).standard_normal((length, 16)).astype(np.float32)
    (y,) = model(x=x)
    raised = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, raised / raised.sum(1, keepdims=True), rtol=1e-4, atol=1e-6)
print(f"compiled for {model.sizes}")
