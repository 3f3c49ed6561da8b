"""Graph passes, and the division of a graph into dispatches; the driver is ``pipeline.py``."""
