"""The common part of GPU backends: loop kernels as all threads of a grid run them."""
