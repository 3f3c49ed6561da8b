"""Architectures that the compiler was not written for, by both of PyTorch's exporters, compiled and compared."""
