"""Tuning jobs: the loop, its tasks and its budget, for one model, several shapes, devices, or a program."""
