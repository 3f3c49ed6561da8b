"""Runs compiled models: images, artifacts, modules, and the native executor under them.

In the order a model passes through: ``image`` (a compiled model as values), ``artifact`` (the same in
a file; ``manifest``, ``archive``, ``contents``, ``hashes`` and ``verify`` are its parts; ``variants`` holds several
targets, and ``artifact_file`` reads every kind), ``module`` (ready to run; ``call_record``
makes it a builtin function, ``arguments`` checks what that does not take, ``requests`` are calls in the
background, ``streams`` several of them at once, each on an ``instance``), ``program`` and ``layout`` (the
recorded program), ``device`` (memory), ``pool`` (worker threads), ``native`` (compiles the executor), ``executor``,
``calls``, ``mutex``, ``objects`` and ``atomics`` (its source), ``translate`` (the subset of Python that this is written
in), ``overhead`` (what all this costs).

For models on several devices: ``hal`` (devices and queues), ``device_program`` (images and the steps between them),
``verify_program``, ``program_artifact``, ``program_request`` (a request of one) and ``placed_module`` (ready to run).
"""
