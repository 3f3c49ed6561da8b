"""Processes beside this one that answer requests as JSON lines: they build code, and they measure it."""
