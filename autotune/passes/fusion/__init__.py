"""Division of a graph into dispatch regions."""
