"""ONNX models: read, checked, and turned into graphs; an operator's rule stands in the file of its kind."""
