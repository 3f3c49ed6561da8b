"""Quantised models beside ONNX Runtime and its quantiser: how far from float32 they are, and models for the turns."""
