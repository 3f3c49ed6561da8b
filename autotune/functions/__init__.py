"""Functions on NumPy arrays out of schedules."""
