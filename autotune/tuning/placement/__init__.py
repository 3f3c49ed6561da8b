"""Placement: the search for the device of each part of a model."""
