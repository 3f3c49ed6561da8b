"""Runs compiled models: images, artifacts, modules, and the native executor under them.

In the order a model passes through: ``image`` (code, constants and commands for one target), ``device_program``
(images on devices and the steps between them), ``compiled`` (a compiled model as values: programs by sizes and
target), ``artifact`` (the same in a file; ``packing``, ``manifest``, ``archive``, ``contents``, ``hashes`` and
``verify`` are its parts), ``executable`` (loads a file or a compiled model; ``targets`` chooses), ``module`` (ready to
run; ``call_record`` makes it a builtin function, ``arguments`` checks what that does not take, ``requests`` are calls
in the background, ``streams`` several of them at once, each on an ``instance``), ``program`` and ``layout`` (the
recorded program), ``device`` (memory), ``pool`` (worker threads), ``native`` (compiles the executor), ``executor``,
``calls``, ``mutex``, ``objects`` and ``atomics`` (its source), ``translate`` (the subset of Python that this is written
in), ``overhead`` (what all this costs).

For models on several devices: ``hal`` (devices and queues), ``verify_program``, ``program_request`` (a request of one)
and ``placed_module`` (ready to run). For dynamic shapes: ``sized_module``, with requests of certain shapes as
``sized_request``.
"""
