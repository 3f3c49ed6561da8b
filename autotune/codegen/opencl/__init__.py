"""The backend of OpenCL devices: loop kernels to OpenCL C, which the device's driver compiles."""
