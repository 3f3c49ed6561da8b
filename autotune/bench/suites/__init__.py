"""Suites of problems, as data: names and parameters, and what builds each."""
