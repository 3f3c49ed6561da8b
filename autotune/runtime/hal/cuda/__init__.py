"""GPUs of NVIDIA, through cuda-bindings."""
