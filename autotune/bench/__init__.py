"""Benchmarks: suites of problems, peers in processes of their own, turns, and tables of what was read."""
