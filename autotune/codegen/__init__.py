"""Loop programs to machine code by LLVM, and the interpreter that is their reference."""
