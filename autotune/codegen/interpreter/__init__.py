"""The backend that compiles nothing: a loop program is run as it stands, as the reference of all others."""

from autotune.codegen.interpreter.machine import run_program

__all__ = ["run_program"]
