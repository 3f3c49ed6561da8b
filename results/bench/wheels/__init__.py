"""Trained models that packages ship, asked with real pictures, text and sound, and ONNX Runtime asked the same."""
