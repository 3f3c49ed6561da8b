"""Rewrites to canonical forms: constants folded, patterns recognised, what means the same written the same way."""
