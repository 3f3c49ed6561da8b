"""Loop programs as Python that numba compiles: text to read, to change and to paste into a project."""
