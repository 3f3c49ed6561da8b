"""Quantisation: a float32 ONNX model and a few inputs in, a model of eight-bit weights and activations (QDQ) out."""

from __future__ import annotations
