"""Mutants of :mod:`tests.source_mutants` that no test can catch, each with the reason."""

from __future__ import annotations

EQUIVALENT: dict[tuple[str, str, str], str] = {}
"""By file, the line as it is, and the line as it would be."""
