"""The native executor of the CPU: programs of kernel calls, run by a pool of workers."""
