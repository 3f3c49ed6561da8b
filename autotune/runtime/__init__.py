"""Runs compiled models: images, artifacts, modules, and the native executor under them.

In the order a model passes through: ``image`` (a compiled model as values), ``artifact`` (the same in
a file; ``manifest``, ``archive`` and ``verify`` are its parts), ``module`` (ready to run; ``arguments``
checks what it is given), ``command_buffer`` and ``layout`` (the recorded program), ``device`` (memory),
``pool`` (worker threads), ``native`` (loads the executor), ``executor`` and ``atomics`` (its source,
compiled by numba), ``overhead`` (what all this costs).
"""
