"""CPU devices: sets of cores, each with workers of its own; their code runs in the native executor."""
