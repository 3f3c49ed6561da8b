"""Models of other formats as graphs: ONNX, and a zoo that needs no download."""
