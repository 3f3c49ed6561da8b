"""Experiments on this project itself, which are not installed: `python -m results.bench NAME`."""
