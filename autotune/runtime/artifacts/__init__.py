"""Artifacts: a compiled model in one file or a folder, written, read and checked."""
