"""Devices of operations: affinities, propagated to a fixed point."""
