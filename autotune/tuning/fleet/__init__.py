"""A fleet: one job measures on many machines through Ray, and one process alone knows what was found."""
