"""The space of kernels that go along rows: reductions, softmax, normalisation."""
