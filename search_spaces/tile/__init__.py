"""The space of register-tiled kernels: products, convolutions, pools."""
