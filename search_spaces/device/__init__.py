"""Spaces of devices that run groups of threads: loops bound to thread axes, operands staged in shared memory."""
