"""Runs compiled models: images, artifacts, modules, and the native executor under them.

In the order a model passes through: ``image`` (code, constants and commands for one target), ``programs`` (images on
several devices and the steps between them), ``compiled`` (a compiled model as values: programs by sizes and target),
``artifacts`` (the same in a file; ``executable`` loads one), ``module`` (ready to run; ``targets`` chooses among
several). Behind a module is one of three that are ``loaded``: ``cpu.loaded`` (a segment on the cores of this process;
``arguments`` checks what its builtin function does not take), ``programs.loaded`` (segments on devices) and ``buckets``
(dynamic shapes, with requests of certain shapes as ``bucket_request``). ``requests`` are calls in the background.

Under them: ``cpu`` (the recorded program, memory, worker threads, and the executor, written in a subset of Python that
``cpu.translate`` turns into machine code) and ``hal`` (devices and queues).
"""
