"""Every precondition of every primitive, violated once: a program, legal steps, and the step that is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autotune import te
from autotune.lower.examples import blur, chain, grid, matmul, matmul_relu, rows, transposed
from autotune.schedule import IndexMap

Made = tuple[Any, ...]


@dataclass(frozen=True)
class Fault:
    """``step`` is refused after ``before``; both take what ``make`` returns: a schedule and its tensors."""

    primitive: str
    what: str
    make: Callable[[], Made]
    step: Callable[[Made], Any]
    before: Callable[[Made], Any] = lambda p: None

    @property
    def name(self) -> str:
        """Unique, and readable in a list of tests."""
        return f"{self.primitive}-{self.what}"


def i(p: Made, tensor: int = -1, axis: int = 0) -> Any:
    """An axis of a tensor of a made program."""
    return p[tensor].op.axis[axis]


def k(p: Made, tensor: int = -1) -> Any:
    """The reduction axis of a tensor."""
    return p[tensor].op.reduce_axis[0]


def st(p: Made, tensor: int = -1) -> Any:
    """The stage of a tensor."""
    return p[0][p[tensor]]


def loop(p: Made, number: int, tensor: int = -1) -> Any:
    """A loop of a stage by its place."""
    return st(p, tensor).leaf_iter_vars[number]


def two_outputs() -> Made:
    """B is read by two outputs of the program."""
    _, a, b, c, d = two_readers()
    return te.create_schedule([te.compute((8,), lambda i: b[i] * 5, name="E"), d]), a, b, c, d


def two_readers() -> Made:
    """C = f(B) and D = g(B, C)."""
    _, a, b, c = chain(8)
    d = te.compute((8,), lambda i: b[i] + c[i], name="D")
    return te.create_schedule(d), a, b, c, d


def pair() -> Made:
    """Two outputs of one operation, and a reader of the first."""
    a = te.placeholder((8,), name="A")
    b, _ = te.compute((8,), lambda i: (a[i], a[i] + 1), name="B")
    c = te.compute((8,), lambda i: b[i] * 2, name="C")
    return te.create_schedule(c), a, b, c


def two_sources() -> Made:
    """D = B + C, both elementwise."""
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1, name="B")
    c = te.compute((8,), lambda i: a[i] * 2, name="C")
    d = te.compute((8,), lambda i: b[i] + c[i], name="D")
    return te.create_schedule(d), a, b, c, d


def dense() -> Made:
    """``A B + bias``: schedule, A, B, bias, product, sum."""
    _, a, b, c = matmul(3, 4, 5)
    bias = te.placeholder((4,), name="bias")
    d = te.compute((3, 4), lambda i, j: c[i, j] + bias[j], name="D")
    return te.create_schedule(d), a, b, bias, c, d


def row_maxima() -> Made:
    """The maximum of each row."""
    a, c = te.placeholder((3, 5), name="A"), te.reduce_axis((0, 5), name="k")
    m = te.compute((3,), lambda i: te.max(a[i, c], axis=c), name="M")
    return te.create_schedule(m), a, m


def custom() -> Made:
    """A reduction by a reducer of the user's own."""
    a, c = te.placeholder((3, 5), name="A"), te.reduce_axis((0, 5), name="k")
    either = te.comm_reducer(lambda x, y: x + y - x * y, lambda t: te.const(0, t), name="either")
    m = te.compute((3,), lambda i: either(a[i, c], axis=c), name="M")
    return te.create_schedule(m), a, m


def backwards() -> Made:
    """``B[i] = A[7 - i]``."""
    a = te.placeholder((7,), name="A")
    b = te.compute((7,), lambda i: a[6 - i], name="B")
    return te.create_schedule(b), a, b


def intrinsic(extent: int = 4, other: bool = False) -> te.TensorIntrin:
    """``out[l] = sum(a[r] * b[r, l])`` over 5, or the sum of sums with ``other``."""
    a, b = te.placeholder((5,), name="a"), te.placeholder((5, extent), name="b")
    r = te.reduce_axis((0, 5), name="r")
    value = (
        (lambda n: te.sum(a[r] + b[r, n], axis=r)) if other else (lambda n: te.sum(a[r] * b[r, n], axis=r))
    )
    op = te.compute((extent,), value, name=f"row_{extent}_{'sums' if other else 'products'}")
    return te.decl_tensor_intrin(op.op, kinds={"n": "vectorized"})


def mm() -> Made:
    """A product of 3 by 5 and 5 by 4."""
    return matmul(3, 4, 5)


def row_sums() -> Made:
    """Sums of three rows of five."""
    return rows(3, 5)


def c8() -> Made:
    """Two elementwise stages of eight elements."""
    return chain(8)


def relu() -> Made:
    """``max(A B, 0)``."""
    return matmul_relu(3, 4, 5)


def attach_b(p: Made) -> None:
    """Compute B at the loop of C."""
    st(p, 2).compute_at(st(p), i(p))


def fold_bias(p: Made) -> None:
    """The sum becomes an epilogue of the product."""
    st(p, 5).reverse_compute_inline()


def fold_bias_split(p: Made) -> None:
    """Fold the bias in, and split a loop of the result."""
    fold_bias(p)
    p[0][p[4]].split(p[0][p[4]].op.axis[0], 2)


X = te.thread_axis("threadIdx.x")

FAULTS: tuple[Fault, ...] = (
    # loops
    Fault("split", "input", c8, lambda p: st(p, 1).split(i(p), 2)),
    Fault("split", "foreign_loop", c8, lambda p: st(p).split(i(p, 2), 2)),
    Fault("split", "loop_of_another_program", c8, lambda p: st(p).split(i(chain(4)), 2)),
    Fault("split", "no_loop", c8, lambda p: st(p).split("i", 2)),
    Fault("split", "gone_loop", c8, lambda p: st(p).split(i(p), 2), lambda p: st(p).split(i(p), 2)),
    Fault("split", "no_size", c8, lambda p: st(p).split(i(p))),
    Fault("split", "two_sizes", c8, lambda p: st(p).split(i(p), 2, 2)),
    Fault("split", "zero", c8, lambda p: st(p).split(i(p), 0)),
    Fault("split", "fraction", c8, lambda p: st(p).split(i(p), 2.0)),
    Fault("split", "truth", c8, lambda p: st(p).split(i(p), True)),
    Fault("split", "huge", c8, lambda p: st(p).split(i(p), 2**40)),
    Fault("split", "tail", c8, lambda p: st(p).split(i(p), 3, tail="fold")),
    Fault("split", "overlapping_reduction", row_sums, lambda p: st(p).split(k(p), 2, tail="overlap")),
    Fault("split", "no_argument", c8, lambda p: st(p).split(i(p), size=4)),
    Fault("split", "attached", c8, lambda p: st(p).split(i(p), 2), attach_b),
    Fault("split", "annotated", c8, lambda p: st(p).split(i(p), 2), lambda p: st(p).unroll(i(p))),
    Fault("split", "peeled", c8, lambda p: st(p).split(i(p), 2), lambda p: st(p).peel(i(p), 1)),
    Fault("split", "prefetched", c8, lambda p: st(p).split(i(p), 2), lambda p: st(p).prefetch(p[2], i(p))),
    Fault(
        "split", "decomposed", mm, lambda p: st(p).split(i(p), 2), lambda p: st(p).decompose_reduction(i(p))
    ),
    Fault("fuse", "nothing", c8, lambda p: st(p).fuse()),
    Fault("fuse", "apart", mm, lambda p: st(p).fuse(i(p), k(p))),
    Fault("fuse", "kinds", mm, lambda p: st(p).fuse(i(p, -1, 1), k(p))),
    Fault("fuse", "annotated", mm, lambda p: st(p).fuse(i(p), i(p, -1, 1)), lambda p: st(p).unroll(i(p))),
    Fault("reorder", "twice", mm, lambda p: st(p).reorder(i(p), i(p))),
    Fault("reorder", "no_loop", mm, lambda p: st(p).reorder(i(p), None)),
    Fault("reorder", "parallel", mm, lambda p: st(p).reorder(k(p), i(p)), lambda p: st(p).parallel(i(p))),
    Fault(
        "reorder",
        "decomposed",
        mm,
        lambda p: st(p).reorder(k(p), i(p)),
        lambda p: st(p).decompose_reduction(i(p)),
    ),
    Fault("tile", "zero", mm, lambda p: st(p).tile(i(p), i(p, -1, 1), 0, 2)),
    Fault("tile", "same_loop", mm, lambda p: st(p).tile(i(p), i(p), 2, 2)),
    Fault("peel", "negative", c8, lambda p: st(p).peel(i(p), -1)),
    Fault("peel", "nothing", c8, lambda p: st(p).peel(i(p))),
    Fault("peel", "too_many", c8, lambda p: st(p).peel(i(p), 5, 5)),
    Fault("peel", "parallel", c8, lambda p: st(p).peel(i(p), 1), lambda p: st(p).parallel(i(p))),
    # kinds
    Fault("vectorize", "when", c8, lambda p: p[0][p[3]].vectorize(i(p), when=3)),
    Fault("vectorize", "unrolled", c8, lambda p: st(p).vectorize(i(p)), lambda p: st(p).unroll(i(p))),
    Fault("vectorize", "peeled", c8, lambda p: st(p).vectorize(i(p)), lambda p: st(p).peel(i(p), 1)),
    Fault("vectorize", "attached", c8, lambda p: st(p).vectorize(i(p)), attach_b),
    Fault("vectorize", "custom_reducer", custom, lambda p: st(p).vectorize(k(p))),
    Fault("unroll", "vectorized", c8, lambda p: st(p).unroll(i(p)), lambda p: st(p).vectorize(i(p))),
    Fault(
        "unroll",
        "tensorized",
        mm,
        lambda p: st(p).unroll(loop(p, 1)),
        lambda p: st(p).tensorize(i(p, -1, 1), intrinsic()),
    ),
    Fault(
        "unroll",
        "declared_serial",
        mm,
        lambda p: st(p).unroll(loop(p, 2)),
        lambda p: st(p).tensorize(i(p, -1, 1), intrinsic()),
    ),
    Fault("parallel", "reduction", row_sums, lambda p: st(p).parallel(k(p))),
    Fault("parallel", "inner", mm, lambda p: st(p).parallel(i(p, -1, 1))),
    Fault("parallel", "attached", c8, lambda p: st(p, 2).parallel(i(p, 2)), attach_b),
    Fault(
        "parallel",
        "decomposed",
        mm,
        lambda p: st(p).parallel(i(p)),
        lambda p: st(p).decompose_reduction(i(p)),
    ),
    Fault("pragma", "foreign_loop", c8, lambda p: st(p).pragma(i(p, 2), "unroll_explicit", 1)),
    Fault("pragma", "value", c8, lambda p: st(p).pragma(i(p), "unroll_explicit", object)),
    Fault("pragma", "unknown", c8, lambda p: st(p).pragma(i(p), "unrol_explicit", 1)),
    Fault("pragma", "name", c8, lambda p: st(p).pragma(i(p), 3)),
    # hardware
    Fault("bind", "no_thread", c8, lambda p: st(p).bind(i(p), i(p))),
    Fault("bind", "tag", c8, lambda p: st(p).bind(i(p), te.thread_axis("lane"))),
    Fault("bind", "extent", c8, lambda p: st(p).bind(i(p), te.thread_axis((0, 4), "threadIdx.x"))),
    Fault("bind", "twice", mm, lambda p: st(p).bind(i(p, -1, 1), X), lambda p: st(p).bind(i(p), X)),
    Fault(
        "bind",
        "inside_itself",
        c8,
        lambda p: st(p, 2).bind(i(p, 2), X),
        lambda p: [st(p).bind(i(p), X), attach_b(p)],
    ),
    Fault("tensorize", "no_intrinsic", mm, lambda p: st(p).tensorize(i(p, -1, 1), "row")),
    Fault("tensorize", "loops", mm, lambda p: st(p).tensorize(i(p), intrinsic())),
    Fault("tensorize", "extent", mm, lambda p: st(p).tensorize(i(p, -1, 1), intrinsic(8))),
    Fault("tensorize", "expression", mm, lambda p: st(p).tensorize(i(p, -1, 1), intrinsic(4, other=True))),
    Fault(
        "tensorize",
        "annotated",
        mm,
        lambda p: st(p).tensorize(i(p, -1, 1), intrinsic()),
        lambda p: st(p).unroll(k(p)),
    ),
    Fault(
        "tensorize",
        "inlined",
        mm,
        lambda p: st(p).tensorize(i(p, -1, 1), intrinsic()),
        lambda p: p[0][p[0].cache_read(p[1], "local", [p[3]])].compute_inline(),
    ),
    Fault(
        "reorder",
        "tensorized",
        mm,
        lambda p: st(p).reorder(loop(p, 2), loop(p, 0)),
        lambda p: st(p).tensorize(i(p, -1, 1), intrinsic()),
    ),
    # place
    Fault("compute_at", "output", c8, lambda p: st(p).compute_at(st(p, 2), i(p, 2))),
    Fault("compute_at", "input", c8, lambda p: st(p, 1).compute_at(st(p, 2), i(p, 2))),
    Fault("compute_at", "no_stage", c8, lambda p: st(p, 2).compute_at(None, i(p))),
    Fault("compute_at", "stage_name", c8, lambda p: st(p, 2).compute_at("Z", i(p))),
    Fault("compute_at", "foreign_stage", c8, lambda p: st(p, 2).compute_at(chain(4)[3], i(p))),
    Fault("compute_at", "foreign_loop", c8, lambda p: st(p, 2).compute_at(st(p), i(p, 2))),
    Fault("compute_at", "vectorized", c8, attach_b, lambda p: st(p).vectorize(i(p))),
    Fault("compute_at", "no_reader", two_sources, lambda p: st(p, 2).compute_at(st(p, 3), i(p, 3))),
    Fault("compute_at", "reader_outside", two_outputs, lambda p: st(p, 2).compute_at(st(p), i(p))),
    Fault(
        "compute_at",
        "read_by_the_epilogue",
        dense,
        lambda p: p[0]["bias.local"].compute_at(st(p, 4), k(p, 4)),
        lambda p: [fold_bias(p), p[0].cache_read(p[3], "local", [p[4]])],
    ),
    Fault(
        "compute_at",
        "inlined",
        c8,
        lambda p: p[0]["A.local"].compute_at(st(p, 2), i(p, 2)),
        lambda p: [p[0].cache_read(p[1], "local", [p[2]]), st(p, 2).compute_inline()],
    ),
    Fault("compute_inline", "output", c8, lambda p: st(p).compute_inline()),
    Fault("compute_inline", "input", c8, lambda p: st(p, 1).compute_inline()),
    Fault("compute_inline", "reduction", relu, lambda p: st(p, 3).compute_inline()),
    Fault(
        "compute_inline",
        "tensorized",
        mm,
        lambda p: p[0]["A.local"].compute_inline(),
        lambda p: [p[0].cache_read(p[1], "local", [p[3]]), st(p).tensorize(i(p, -1, 1), intrinsic())],
    ),
    Fault("compute_root", "unknown", c8, lambda p: p[0]["Z"].compute_root()),
    Fault(
        "compute_root",
        "attached_inside",
        c8,
        lambda p: st(p, 2).compute_root(),
        lambda p: [attach_b(p), p[0][p[0].cache_read(p[1], "local", [p[2]])].compute_at(st(p), i(p))],
    ),
    # reverse
    Fault("reverse_compute_at", "reduction", relu, lambda p: st(p, 3).reverse_compute_at(st(p), i(p))),
    Fault("reverse_compute_at", "input", c8, lambda p: st(p, 2).reverse_compute_at(st(p, 1), i(p))),
    Fault("reverse_compute_at", "in_reduction", relu, lambda p: st(p).reverse_compute_at(st(p, 3), k(p, 3))),
    Fault(
        "reverse_compute_at",
        "vectorized",
        c8,
        lambda p: st(p).reverse_compute_at(st(p, 2), i(p, 2)),
        lambda p: st(p, 2).vectorize(i(p, 2)),
    ),
    Fault(
        "reverse_compute_at",
        "steps",
        c8,
        lambda p: st(p).reverse_compute_at(st(p, 2), i(p, 2)),
        lambda p: st(p).split(i(p), 2),
    ),
    Fault(
        "reverse_compute_at",
        "nested",
        c8,
        lambda p: st(p).reverse_compute_at(st(p, 2), i(p, 2)),
        attach_b,
    ),
    Fault(
        "reverse_compute_at",
        "other_readers",
        two_readers,
        lambda p: st(p).reverse_compute_at(st(p, 2), i(p, 2)),
    ),
    Fault(
        "reverse_compute_at",
        "no_reader",
        two_sources,
        lambda p: st(p, 3).reverse_compute_at(st(p, 2), i(p, 2)),
    ),
    Fault("reverse_compute_inline", "reduction", relu, lambda p: st(p, 3).reverse_compute_inline()),
    Fault("reverse_compute_inline", "inputs_only", c8, lambda p: st(p, 2).reverse_compute_inline()),
    Fault("reverse_compute_inline", "two_sources", two_sources, lambda p: st(p).reverse_compute_inline()),
    Fault("reverse_compute_inline", "two_readers", two_readers, lambda p: st(p, 3).reverse_compute_inline()),
    Fault("reverse_compute_inline", "shifted", lambda: blur(8), lambda p: st(p).reverse_compute_inline()),
    Fault(
        "reverse_compute_inline",
        "transposed",
        lambda: transposed(4, 4),
        lambda p: st(p).reverse_compute_inline(),
    ),
    Fault("reverse_compute_inline", "tuple", pair, lambda p: st(p).reverse_compute_inline()),
    Fault(
        "reverse_compute_inline",
        "inlined",
        c8,
        lambda p: st(p).reverse_compute_inline(),
        lambda p: st(p, 2).compute_inline(),
    ),
    Fault(
        "reverse_compute_inline",
        "steps",
        c8,
        lambda p: st(p).reverse_compute_inline(),
        lambda p: st(p).split(i(p), 2),
    ),
    Fault("reverse_compute_inline", "attached", c8, lambda p: st(p).reverse_compute_inline(), attach_b),
    Fault(
        "reverse_compute_inline",
        "decomposed",
        relu,
        lambda p: st(p).reverse_compute_inline(),
        lambda p: st(p, 3).decompose_reduction(i(p, 3)),
    ),
    # storage
    Fault("set_scope", "unknown", c8, lambda p: st(p, 2).set_scope("register")),
    Fault("set_scope", "no_text", c8, lambda p: st(p, 2).set_scope(None)),
    Fault("storage_align", "input", lambda: grid(3, 4), lambda p: st(p, 1).storage_align(i(p), 8)),
    Fault("storage_align", "output", lambda: grid(3, 4), lambda p: st(p).storage_align(i(p), 8)),
    Fault("storage_align", "foreign", lambda: transposed(3, 4), lambda p: st(p, 2).storage_align(i(p), 8)),
    Fault("storage_align", "last", lambda: transposed(3, 4), lambda p: st(p, 2).storage_align(i(p, 2, 1), 8)),
    Fault("storage_align", "zero", lambda: transposed(3, 4), lambda p: st(p, 2).storage_align(i(p, 2), 0)),
    Fault(
        "storage_align", "offset", lambda: transposed(3, 4), lambda p: st(p, 2).storage_align(i(p, 2), 8, 8)
    ),
    Fault("double_buffer", "root", c8, lambda p: st(p, 2).double_buffer()),
    Fault("double_buffer", "input", c8, lambda p: st(p, 1).double_buffer()),
    Fault(
        "double_buffer",
        "parallel",
        c8,
        lambda p: st(p, 2).double_buffer(),
        lambda p: [attach_b(p), st(p).parallel(i(p))],
    ),
    Fault(
        "double_buffer",
        "reads_late",
        two_readers,
        lambda p: st(p, 3).double_buffer(),
        lambda p: [st(p, n).compute_at(st(p), i(p)) for n in (3, 2)],
    ),
    Fault(
        "compute_root",
        "double_buffered",
        c8,
        lambda p: st(p, 2).compute_root(),
        lambda p: [attach_b(p), st(p, 2).double_buffer()],
    ),
    Fault(
        "compute_root",
        "pipelined",
        c8,
        lambda p: st(p, 2).compute_root(),
        lambda p: [attach_b(p), st(p).software_pipeline(i(p))],
    ),
    Fault("prefetch", "not_read", c8, lambda p: st(p).prefetch(p[1], i(p))),
    Fault("prefetch", "offset", c8, lambda p: st(p).prefetch(p[2], i(p), 0)),
    Fault("prefetch", "level", c8, lambda p: st(p).prefetch(p[2], i(p), 1, 3)),
    Fault(
        "prefetch", "vectorized", c8, lambda p: st(p).prefetch(p[2], i(p)), lambda p: st(p).vectorize(i(p))
    ),
    Fault("prefetch", "attached", c8, lambda p: st(p).prefetch(p[2], i(p)), attach_b),
    Fault("software_pipeline", "stages", c8, lambda p: st(p).software_pipeline(i(p), 1), attach_b),
    Fault(
        "software_pipeline",
        "bound",
        c8,
        lambda p: st(p).software_pipeline(i(p)),
        lambda p: [attach_b(p), st(p).bind(i(p), te.thread_axis("threadIdx.x"))],
    ),
    Fault("software_pipeline", "nothing_inside", c8, lambda p: st(p).software_pipeline(i(p))),
    # reductions
    Fault(
        "bind",
        "inside_a_reduction_across_threads",
        mm,
        lambda p: st(p).bind(k(p), te.thread_axis("threadIdx.x")),
        lambda p: [st(p).reorder(k(p), i(p)), st(p).bind(i(p), te.thread_axis("threadIdx.y"))],
    ),
    Fault(
        "decompose_reduction",
        "across_threads",
        mm,
        lambda p: st(p).decompose_reduction(i(p)),
        lambda p: st(p).bind(k(p), te.thread_axis("threadIdx.x")),
    ),
    Fault("decompose_reduction", "elementwise", c8, lambda p: st(p).decompose_reduction(i(p))),
    Fault(
        "decompose_reduction", "epilogue", dense, lambda p: st(p, 4).decompose_reduction(i(p, 4)), fold_bias
    ),
    Fault(
        "decompose_reduction",
        "in_reduction",
        mm,
        lambda p: st(p).decompose_reduction(i(p)),
        lambda p: st(p).reorder(k(p), i(p)),
    ),
    Fault(
        "decompose_reduction",
        "vectorized",
        mm,
        lambda p: st(p).decompose_reduction(i(p)),
        lambda p: st(p).vectorize(i(p)),
    ),
    # dataflow
    Fault("cache_read", "scope", c8, lambda p: p[0].cache_read(p[1], "fast", [p[2]])),
    Fault("cache_read", "not_read", c8, lambda p: p[0].cache_read(p[1], "local", [p[3]])),
    Fault("cache_read", "no_reader", c8, lambda p: p[0].cache_read(p[1], "local", [3])),
    Fault("cache_read", "no_tensor", c8, lambda p: p[0].cache_read("A", "local", [p[2]])),
    Fault("cache_read", "foreign", c8, lambda p: p[0].cache_read(chain(4)[1], "local", [p[2]])),
    Fault("cache_write", "nothing", c8, lambda p: p[0].cache_write([], "local")),
    Fault("cache_write", "two_operations", c8, lambda p: p[0].cache_write([p[2], p[3]], "local")),
    Fault("cache_write", "no_tensor", c8, lambda p: p[0].cache_write(None, "local")),
    Fault("cache_write", "scope", c8, lambda p: p[0].cache_write(p[2], "fast")),
    Fault("cache_write", "input", c8, lambda p: p[0].cache_write(p[1], "local")),
    Fault(
        "cache_write", "steps", c8, lambda p: p[0].cache_write(p[3], "local"), lambda p: st(p).unroll(i(p))
    ),
    Fault("cache_write", "attached", c8, lambda p: p[0].cache_write(p[3], "local"), attach_b),
    Fault("cache_write", "epilogue", dense, lambda p: p[0].cache_write(p[4], "local"), fold_bias_split),
    Fault("rfactor", "data_loop", row_sums, lambda p: p[0].rfactor(p[2], i(p))),
    Fault("rfactor", "input", row_sums, lambda p: p[0].rfactor(p[1], k(p))),
    Fault("rfactor", "steps", row_sums, lambda p: p[0].rfactor(p[2], k(p)), lambda p: st(p).unroll(i(p))),
    Fault("rfactor", "place", row_sums, lambda p: p[0].rfactor(p[2], k(p), 2)),
    Fault(
        "rfactor",
        "attached",
        mm,
        lambda p: p[0].rfactor(p[3], k(p)),
        lambda p: p[0][p[0].cache_read(p[1], "local", [p[3]])].compute_at(st(p), k(p)),
    ),
    # layout
    Fault(
        "transform_layout",
        "split",
        c8,
        lambda p: p[0].transform_layout(p[2], lambda i: [i]),
        lambda p: st(p, 2).split(i(p, 2), 2),
    ),
    Fault(
        "transform_layout",
        "reduction",
        relu,
        lambda p: p[0].transform_layout(p[3], lambda i, j: [j, i // 5, i % 5]),
    ),
    Fault("transform_layout", "tuple", pair, lambda p: p[0].transform_layout(p[2], lambda i: [i])),
    Fault("transform_layout", "no_function", c8, lambda p: p[0].transform_layout(p[2], 4)),
    Fault("transform_layout", "raises", c8, lambda p: p[0].transform_layout(p[2], lambda i: [i["x"]])),
    Fault("transform_layout", "rank", c8, lambda p: p[0].transform_layout(p[2], lambda i, j: [j, i])),
    Fault(
        "transform_layout",
        "fewer",
        lambda: transposed(3, 4),
        lambda p: p[0].transform_layout(p[2], lambda i: [i]),
    ),
    Fault(
        "transform_layout",
        "sum",
        lambda: transposed(3, 4),
        lambda p: p[0].transform_layout(p[2], lambda i, j: [i + j]),
    ),
    Fault(
        "transform_layout", "uneven", c8, lambda p: p[0].transform_layout(p[2], lambda i: [i % 6 // 4, i % 4])
    ),
    Fault("transform_layout", "syntax", c8, lambda p: p[0].transform_layout(p[2], IndexMap(("i0 +",)))),
    Fault("transform_layout", "power", c8, lambda p: p[0].transform_layout(p[2], IndexMap(("i0 ** 2",)))),
    Fault("transform_layout", "lost", c8, lambda p: p[0].transform_layout(p[2], lambda i: [i // 4])),
    Fault("transform_layout", "cut", c8, lambda p: p[0].transform_layout(p[2], lambda i: [i % 4])),
    Fault(
        "transform_layout",
        "steps",
        c8,
        lambda p: p[0].transform_layout(p[2], lambda i: [i]),
        lambda p: st(p, 2).unroll(i(p, 2)),
    ),
    Fault("pad_to_multiple", "zero", row_sums, lambda p: p[0].pad_to_multiple(p[2], k(p), 0)),
    Fault("pad_to_multiple", "epilogue", dense, lambda p: p[0].pad_to_multiple(p[4], i(p, 4), 4), fold_bias),
    Fault("pad_to_multiple", "foreign", relu, lambda p: p[0].pad_to_multiple(p[4], k(p, 3), 4)),
    Fault("pad_to_multiple", "input", row_sums, lambda p: p[0].pad_to_multiple(p[1], k(p), 4)),
    Fault("pad_to_multiple", "maximum", row_maxima, lambda p: p[0].pad_to_multiple(p[2], k(p), 4)),
    Fault("pad_to_multiple", "backwards", backwards, lambda p: p[0].pad_to_multiple(p[2], i(p), 4)),
    Fault(
        "pad_to_multiple",
        "steps",
        row_sums,
        lambda p: p[0].pad_to_multiple(p[2], k(p), 4),
        lambda p: st(p).unroll(i(p)),
    ),
)
