"""A fleet on this machine: a Ray cluster of nodes that are killed and frozen, and of some that lie."""
