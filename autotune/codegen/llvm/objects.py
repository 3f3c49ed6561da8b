"""LLVM IR text to a relocatable object file, through llvmlite."""

from __future__ import annotations

import functools
from typing import Any

from autotune.codegen.elf import read_symbols
from autotune.codegen.llvm import half_precision
from autotune.errors import BuildError, TargetError
from autotune.target import Target

_TRIPLES = {
    "x86_64": "x86_64-unknown-linux-gnu",
    "aarch64": "aarch64-unknown-linux-gnu",
    "nvptx64": "nvptx64-nvidia-cuda",
}


@functools.lru_cache(maxsize=16)
def target_machine(target: Target) -> Any:
    """Return LLVM's machine description for a target; raises TargetError when there is none."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    # Addresses leave the emitter as hoisted pointers plus constants. Loop strength reduction finds nothing to
    # improve there, takes half of the compile time and costs some register tiles their registers.
    llvm.set_option("autotune", "-disable-lsr")
    # The text is in the order that is wanted: a step's loads, then its multiply-adds. The scheduler of machine
    # instructions moves the loads of later steps to the front where a tile fills the registers, and spills them.
    llvm.set_option("autotune", "-enable-misched=false")
    triple = _TRIPLES.get(target.arch)
    if triple is None:
        raise TargetError(f"LLVM generates no code for {target.arch} here; known: {', '.join(_TRIPLES)}")
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=target.cpu, features=target.llvm_features, opt=3, reloc="pic", codemodel="default"
    )


_PASSES = (
    "always_inliner",
    "sroa",
    "simplify_cfg",
    "instruction_combine",
    "dead_code_elimination",
    "simplify_cfg",
)
"""The middle end. Vectors, register tiles, unrolling and common loads are explicit in the text, so what is left to
do is registers out of allocas; LLVM's O2 takes seven times as long for the same code. NewGVN is not among the passes:
it was seen to replace the condition of an inner loop by that of the outer loop's last iteration."""


def optimized(ir: str, target: Target) -> Any:
    """Return the parsed and optimized module; raises BuildError when the text is not a valid module."""
    import llvmlite.binding as llvm

    machine = target_machine(target)
    try:
        module = llvm.parse_assembly(ir)
        module.verify()
    except RuntimeError as error:
        raise BuildError(f"LLVM refuses the generated code: {error}") from error
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    passes = llvm.create_new_module_pass_manager()
    for name in _PASSES:
        getattr(passes, f"add_{name}_pass")()
    passes.run(module, builder)
    return module


def compile_ir(ir: str, target: Target) -> bytes:
    """Return the object code of a module given as LLVM IR text; raises BuildError."""
    code = _object(ir, target)
    missing = read_symbols(code).undefined & set(half_precision.FUNCTIONS) if "half" in ir else set()
    return _object(f"{ir}\n{half_precision.definitions(missing)}\n", target) if missing else code


def _object(ir: str, target: Target) -> bytes:
    return bytes(target_machine(target).emit_object(optimized(ir, target)))


def assembly(ir: str, target: Target) -> str:
    """Return the machine code of a module as assembly text, for reading."""
    return str(target_machine(target).emit_assembly(optimized(ir, target)))
