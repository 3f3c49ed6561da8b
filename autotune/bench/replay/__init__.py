"""Recorded candidates of workloads, and their spaces searched again without measuring."""
