"""A small subset of Python as LLVM IR: what the executor is written in.

Values are 64-bit integers, which wrap, and truth values. A function of the subset is marked :func:`native`
and has annotated parameters and an annotated result (``int``, ``bool`` or ``None``). Its body has:

* assignments to local names: ``a = b``, ``a, b = c, d``, ``a: int = b``, ``a += b``;
* ``if``, ``while``, ``for name in range(...)``, ``break``, ``continue``, ``pass``, ``return``;
* ``+ - * // % & |``, negation, comparisons, ``and or not``, ``a if c else b``, ``min`` and ``max``;
* integers among the module's names, and calls of native functions and of operations.

An :func:`operation` is a function whose body is LLVM IR: what Python has no words for. All else is one
error with file, line and construct. Python runs native functions too, and computes the same while no
value leaves 64 bits; as in C, nothing may be divided by zero.

In order: ``functions`` (what is marked, and where its source stands), ``code`` (instructions, blocks and
variables of one function), ``expressions``, ``statements``, ``module`` (all functions that some need).
"""
