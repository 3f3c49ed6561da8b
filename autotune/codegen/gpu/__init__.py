"""What backends of GPUs share: loop kernels as all threads of a grid run them."""
