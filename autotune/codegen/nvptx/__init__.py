"""The backend of NVIDIA's GPUs: loop kernels to LLVM IR, and that to PTX."""
