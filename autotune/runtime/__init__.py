"""Runs compiled models: images, artifacts, modules, and the native executor under them.

In the order a model passes through: ``image`` (code, constants and commands for one target), ``programs`` (images on
several devices and the steps between them), ``compiled`` (a compiled model as values: programs by sizes and target),
``artifacts`` (the same in a file), ``executable`` (loads a file or a compiled model; ``targets`` chooses), ``module``
(ready to run; ``arguments`` checks what its builtin function does not take), ``requests`` (calls in the background),
``placed_module`` (on several devices), ``sized_module`` (dynamic shapes, with requests of certain shapes as
``sized_request``).

Under them: ``cpu`` (the recorded program, memory, worker threads, and the executor, written in a subset of Python that
``cpu.translate`` turns into machine code) and ``hal`` (devices and queues).
"""
