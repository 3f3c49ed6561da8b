"""Operators on eight-bit integers, made of quantise and dequantise pairs."""
