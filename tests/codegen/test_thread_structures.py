"""Structures of GPU programs as TVM's tutorials have them: virtual threads, tiles ahead, reductions by all threads."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autotune import te
from autotune.codegen import interpreter
from autotune.codegen.backend import backend_for
from autotune.codegen.nvptx.assembler import assembled, find_assembler
from autotune.lower import lower_schedule
from autotune.schedule import Schedule
from autotune.target import Target
from tests.codegen import gpu_emulated
from tests.codegen.opencl_device import installed, run_on_device
from tests.schedule.machine import run_machine_code

CUDA = Target.parse("cuda:sm_80")
OPENCL = Target.parse("opencl-generic")
Made = tuple[Schedule, list[te.Tensor]]


def inputs_of(args: list[te.Tensor]) -> dict[str, Any]:
    """Small integers, whose sums are exact."""
    rng = np.random.default_rng(0)
    given = [t for t in args if isinstance(t.op, te.PlaceholderOp)]
    return {t.name: rng.integers(-9, 10, t.shape).astype(t.dtype) for t in given}


def equal_everywhere(made: Made, wanted: Callable[..., Any], *, device: bool = True) -> None:
    """The interpreter, PTX (emulated), OpenCL and a CPU compute what NumPy does."""
    s, args = made
    arrays = inputs_of(args)
    outputs = [t for t in args if t.name not in arrays]
    expected = dict(zip([t.name for t in outputs], wanted(*arrays.values()), strict=True))
    program = lower_schedule(s, args)
    memory = {**arrays, **{t.name: np.zeros(t.shape, t.dtype) for t in outputs}}
    interpreter.run_program(program, memory)
    code = backend_for(CUDA.arch).compile(program, CUDA)
    found = {
        "interpreter": memory,
        "PTX": gpu_emulated.run_program(program, code, arrays),
        "CPU": run_machine_code(s, args, arrays),
    }
    if device and installed():
        found["OpenCL"] = run_on_device(s, args, arrays)
    for who, got in found.items():
        for name, value in expected.items():
            np.testing.assert_allclose(got[name], value, rtol=1e-6, err_msg=who)
    if find_assembler() is not None:
        assert all(cost.stack_bytes == 0 for cost in assembled(code.object_code, CUDA.cpu))


def ptx(made: Made) -> str:
    return backend_for(CUDA.arch).compile(lower_schedule(*made), CUDA).object_code.decode()


def opencl(made: Made) -> str:
    return backend_for(OPENCL.arch).compile(lower_schedule(*made), OPENCL).object_code.decode()


def innermost_loops(text: str) -> list[str]:
    """The bodies of PTX's loops that have no loop inside: from a label to the jump back to it."""
    found = []
    for label in re.findall(r"^(\$L__BB\d+_\d+):", text, re.MULTILINE):
        body = re.search(
            rf"^{re.escape(label)}:(.*?)bra\s+{re.escape(label)};", text, re.MULTILINE | re.DOTALL
        )
        if body is not None and "$L__BB" not in body[1].replace("bra", ""):
            found.append(body[1])
    return found


# -- virtual threads ---------------------------------------------------------------------------------------------


def gemm(
    rows: int,
    columns: int,
    depth: int,
    *,
    threads: int = 8,
    step: int = 8,
    stages: int = 1,
    tail: str = "peel",
) -> Made:
    """TVM's test_gemm: blocks, two virtual threads each way, threads; tiles of both factors in shared memory."""
    a, b = te.placeholder((rows, depth), name="A"), te.placeholder((columns, depth), name="B")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="C")
    s = te.create_schedule(c.op)
    block = 8 * threads
    aa, bb = s.cache_read(a, "shared", [c]), s.cache_read(b, "shared", [c])
    al, bl = s.cache_read(aa, "local", [c]), s.cache_read(bb, "local", [c])
    cc = s.cache_write(c, "local")
    thread_x, thread_y = (te.thread_axis((0, threads), f"threadIdx.{x}") for x in "xy")
    by, yi = s[c].split(c.op.axis[0], factor=block, tail=tail)
    bx, xi = s[c].split(c.op.axis[1], factor=block, tail=tail)
    s[c].reorder(by, bx, yi, xi)
    s[c].bind(by, te.thread_axis("blockIdx.y"))
    s[c].bind(bx, te.thread_axis("blockIdx.x"))
    tyz, yi = s[c].split(yi, nparts=2, tail=tail)
    ty, yi = s[c].split(yi, nparts=threads, tail=tail)
    txz, xi = s[c].split(xi, nparts=2, tail=tail)
    tx, xi = s[c].split(xi, nparts=threads, tail=tail)
    s[c].reorder(tyz, txz, ty, tx, yi, xi)
    s[c].bind(tyz, te.thread_axis((0, 2), "vthread", name="vy"))
    s[c].bind(txz, te.thread_axis((0, 2), "vthread", name="vx"))
    s[c].bind(ty, thread_y)
    s[c].bind(tx, thread_x)
    s[cc].compute_at(s[c], tx)
    yo, xo = s[cc].op.axis
    ko, ki = s[cc].split(k, factor=step)
    s[cc].reorder(ko, ki, yo, xo)
    for shared, local in ((aa, al), (bb, bl)):
        s[shared].compute_at(s[cc], ko)
        s[local].compute_at(s[cc], ki)
        ty, row = s[shared].split(s[shared].op.axis[0], nparts=threads, tail="guard")
        tx, line = s[shared].split(s[shared].op.axis[1], nparts=threads, tail="guard")
        s[shared].reorder(ty, tx, row, line)
        s[shared].bind(ty, thread_y)
        s[shared].bind(tx, thread_x)
    if stages > 1:
        s[cc].software_pipeline(ko, stages)
    return s, [a, b, c]


def product_of(a: Any, b: Any) -> list[Any]:
    return [a @ b.T]


@pytest.mark.parametrize(
    ("sizes", "threads", "step", "tail"),
    [((64, 64, 16), 8, 8, "peel"), ((21, 19, 7), 2, 3, "guard"), ((18, 33, 8), 2, 4, "guard")],
)
@pytest.mark.parametrize("stages", [1, 3])
def test_virtual_threads_around_shared_tiles(
    sizes: tuple[int, int, int], threads: int, step: int, tail: str, stages: int
) -> None:
    equal_everywhere(gemm(*sizes, threads=threads, step=step, tail=tail, stages=stages), product_of)


def test_virtual_threads_share_what_is_the_same_for_them() -> None:
    """64 sums are registers; a step of the depth reads eight numbers of each factor, for all virtual threads."""
    text = ptx(gemm(64, 64, 64))
    assert "local_depot" not in text
    (loop,) = [body for body in innermost_loops(text) if "fma" in body]
    assert loop.count("fma.rn.f32") == 64
    assert len(re.findall(r"ld\.shared", loop)) == 16
    assert "global" not in loop
    assert text.count("bar.sync") == 3


@pytest.mark.parametrize("size", [6, 5])
def test_a_convolution_of_virtual_threads(size: int) -> None:
    """TVM's opt_conv_cuda: images of ``size`` squared, in blocks of a pixel, 8 filters and 4 images."""
    from tests.schedule.test_tvm_programs import convolution_on_threads

    s, args, wanted = convolution_on_threads(size)
    equal_everywhere((s, args), wanted)
