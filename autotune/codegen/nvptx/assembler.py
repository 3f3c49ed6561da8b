"""NVIDIA's assembler ``ptxas``: whether it takes a text in PTX, and what its kernels cost a thread.

The driver of a device compiles PTX by itself, so that nothing here is needed to run it; the assembler says beforehand
that it will, and whether values were spilled.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

from autotune.distribution import install
from autotune.errors import BuildError, MissingExtraError

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_SECONDS = 300


@dataclass(frozen=True)
class KernelCost:
    """The resources of a kernel's thread: 32-bit registers, bytes on its stack, spilled ones apart; and a block's
    shared memory in bytes."""

    symbol: str
    registers: int
    stack_bytes: int
    spilled_bytes: int
    shared_bytes: int


def find_assembler() -> Path | None:
    """Find ``ptxas``: in the package nvidia-cuda-nvcc, else on the path; None where it is not installed."""
    package = Path(sysconfig.get_path("platlib")) / "nvidia"
    for folder in ("cu13", "cuda_nvcc"):
        found = package / folder / "bin" / "ptxas"
        if found.exists():
            return found
    on_path = shutil.which("ptxas")
    return None if on_path is None else Path(on_path)


def assembled(ptx: bytes, cpu: str) -> list[KernelCost]:
    """Return the kernels of a text, as assembled for a GPU like "sm_90".

    Raises MissingExtraError without the assembler, and BuildError where it refuses the text.
    """
    program = find_assembler()
    if program is None:
        raise MissingExtraError(
            f"ptxas, which checks PTX, is not installed; {install('cuda')}, or put it on the PATH"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "code.ptx"
        path.write_bytes(ptx)
        command = [str(program), f"-arch={cpu}", "-v", str(path), "-o", str(Path(folder) / "code.cubin")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        raise BuildError(f"ptxas refuses the generated code for {cpu}: {done.stderr.strip()[:2000]}")
    return costs(done.stderr)


def costs(report: str) -> list[KernelCost]:
    """Return the costs that ``ptxas -v`` printed for each kernel.

    >>> costs('''ptxas info    : Compiling entry function 'k_0' for 'sm_80'
    ... ptxas info    : Function properties for k_0
    ...     0 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
    ... ptxas info    : Used 56 registers, used 1 barriers, 4096 bytes smem, 376 bytes cmem[0]''')
    [KernelCost(symbol='k_0', registers=56, stack_bytes=0, spilled_bytes=12, shared_bytes=4096)]
    """
    found = []
    names = list(_ENTRY.finditer(report))
    ends = [name.start() for name in names[1:]] + [len(report)]
    for name, end in zip(names, ends, strict=True):
        part = report[name.start() : end]
        stack, used, shared = _STACK.search(part), _USED.search(part), _SHARED.search(part)
        if stack is None or used is None:
            raise BuildError(f"ptxas says nothing of the registers of {name[1]}: {part[:500]}")
        size, *spilled = map(int, stack.groups())
        kernel = KernelCost(
            name[1], int(used[1]), size, sum(spilled), int(shared[1]) if shared is not None else 0
        )
        found.append(kernel)
    return found


__all__ = ["KernelCost", "assembled", "costs", "find_assembler"]
