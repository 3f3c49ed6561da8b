"""Loop programs to code, a backend a folder: LLVM for CPUs, and the interpreter that is the reference."""
