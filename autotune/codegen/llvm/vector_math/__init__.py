"""Elementary functions on explicit vectors, as LLVM IR."""

from autotune.codegen.llvm.vector_math.functions import (
    BINARY_FUNCTIONS,
    FUNCTIONS,
    MathFunction,
    has_avx512,
    math_function,
)

__all__ = ["BINARY_FUNCTIONS", "FUNCTIONS", "MathFunction", "has_avx512", "math_function"]
