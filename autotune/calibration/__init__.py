"""Measuring this machine for the cost model: rates of its core, its caches, memory and workers, in a few seconds."""
