"""Searches: Optuna studies of one workload or of a whole plan, their samplers, and the cost model's guidance."""
