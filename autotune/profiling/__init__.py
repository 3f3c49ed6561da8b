"""Profiles and traces of runs: where a compiled model's time goes, and how far that is from what the machine can do."""
