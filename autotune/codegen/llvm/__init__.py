"""The backend of CPUs: loop kernels to LLVM IR text, and that to object code."""

from autotune.codegen.llvm.objects import assembly, compile_ir

__all__ = ["assembly", "compile_ir"]
