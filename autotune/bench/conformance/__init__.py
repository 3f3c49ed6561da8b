"""ONNX's own tests of its operators, run through machine code, with a strict list of those that are known to fail."""
