"""Recorded tuning jobs, done again on simulated machines: how well policies spend a budget, in seconds."""
