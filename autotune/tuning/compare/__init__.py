"""Comparisons in the whole model: which of several options or schedules is the fastest."""
