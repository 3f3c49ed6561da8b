"""Kinds of sites of a whole model: a file each, which defines its ``KIND``."""
