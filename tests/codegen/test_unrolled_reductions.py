"""The unrolled steps of a reduction stay in order, so that a tile fits into the registers."""

from __future__ import annotations

import re

from autotune import te
from autotune.codegen.backend import compile_schedule
from autotune.codegen.llvm import assembly
from autotune.codegen.llvm.backend import emit_program
from autotune.lower.program import lower_schedule
from autotune.target import Target
from search_spaces import spaces
from tests.search_spaces import workloads as make

ROWS, STEPS = 12, 3


def tile_of(rows: int, columns: int, steps: int) -> str:
    """LLVM IR of a matrix product whose register tile is all of it; columns go in lanes of 16."""
    a, b = te.placeholder((rows, 64 * steps), name="A"), te.placeholder((64 * steps, columns), name="B")
    k = te.reduce_axis((0, 64 * steps), name="k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    acc = s.cache_write(c, "local")
    i, j = s[c].op.axis
    one, rows_of_c = s[c].split(i, nparts=1)
    vectors, lanes = s[c].split(j, factor=16)
    for loop in (rows_of_c, vectors):
        s[c].unroll(loop)
    s[c].vectorize(lanes)
    s[acc].compute_at(s[c], one)
    ai, aj = s[acc].op.axis
    ko, ki = s[acc].split(s[acc].op.reduce_axis[0], factor=steps)
    jo, ji = s[acc].split(aj, factor=16)
    s[acc].reorder(ko, ki, ai, jo, ji)
    for loop in (ki, ai, jo):
        s[acc].unroll(loop)
    s[acc].vectorize(ji)
    return emit_program(lower_schedule(s, [a, b, c]), Target.parse("x86-64-v4"), "tile")[0]


def innermost(text: str) -> str:
    """The block of assembly with the most multiplications: around it are the partial sums, in memory meanwhile."""
    blocks = re.split(r"^\.LBB\w+:|^\tj\w+", text, flags=re.MULTILINE)
    return max(blocks, key=lambda block: block.count("vfmadd"))


def spills(text: str) -> bool:
    return bool(re.search(r"\(%rsp\).*%zmm|%zmm.*\(%rsp\)", text))


def test_a_border_stands_between_the_steps_only() -> None:
    assert tile_of(4, 32, STEPS).count("fence syncscope") == STEPS - 1


def test_the_steps_of_a_large_tile_do_not_spill() -> None:
    text = innermost(assembly(tile_of(ROWS, 32, STEPS), Target.parse("x86-64-v4")))
    assert text.count("vfmadd") == ROWS * 2 * STEPS
    assert not spills(text)


def test_a_tile_of_two_image_rows_does_not_spill() -> None:
    assert not spills(innermost(assembly(*_two_image_rows())))


def test_the_innermost_loop_adds_only_its_own_index_to_an_address() -> None:
    blocks = re.split(r"^\w+(?:\.\w+)*:$", _two_image_rows()[0], flags=re.MULTILINE)
    innermost = max(blocks, key=lambda block: block.count("@llvm.fma"))
    moved = re.findall(r"getelementptr \w+, ptr %\w+, i64 %", innermost)
    assert len(moved) == 2  # the image, and the weights


def _two_image_rows() -> tuple[str, Target]:
    """LLVM IR of a convolution by tiles of two rows of pixels, in blocks of the reduction."""
    space = spaces.space_for(make.conv_nd((4, 14, 14), 256, 256, 3, pad=1), Target.parse("x86-64-v4"))
    config = space.default() | {"rows": 7, "outer_rows": 2, "vectors": 2, "unroll": 4, "row_block": 0}
    config |= {"k_block": 64, "stage": "root"}
    program = space.workload.program()
    code = compile_schedule(
        space.apply(program, config), program.args, space.target, constants=program.constants
    )
    return code.ir, space.target
