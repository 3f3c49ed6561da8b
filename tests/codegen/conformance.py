"""The contract of backends: a test class a backend inherits this."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from autotune import te
from autotune.codegen.backend import Backend, backend_for
from autotune.codegen.code import BufferSpec, DispatchCode, Kernel
from autotune.lower import lower_schedule
from autotune.schedule import Schedule
from autotune.target import Target
from autotune.te.dtypes import DTYPES, is_float
from tests.schedule.three_ways import random_case
from tests.seeds import seeds

Entry = Callable[[Kernel, Sequence[Any], int, int], None]
"""Runs tiles of a kernel on the arrays of its buffers, which have the shapes and strides of the program."""
Arguments = list[te.Tensor]


class Conformance:
    """Subclasses have fixtures ``target``, whose backend is tested, and ``load``, which gives the code's entry."""

    @pytest.fixture
    def target(self) -> Target:
        raise NotImplementedError

    @pytest.fixture
    def load(self) -> Callable[[DispatchCode], Entry]:
        raise NotImplementedError

    @pytest.fixture
    def backend(self, target: Target) -> Backend:
        """The one of the target."""
        return backend_for(target.arch)

    def test_the_manifest_names_all_buffers_and_kernels(self, backend: Backend, target: Target) -> None:
        s, args = two_kernels()
        program = lower_schedule(s, args)
        code = backend.compile(program, target, "here")
        assert [(b.name, b.role, b.shape, b.dtype, b.nbytes) for b in code.buffers] == [
            ("A", "input", (5, 70), "float32", 1400),
            ("C", "output", (5,), "float32", 20),
            ("B", "workspace", (5, 70), "float32", 1400),
        ]
        assert [{code.buffers[b].name for b in kernel.buffers} for kernel in code.kernels] == [
            {"A", "B"},
            {"B", "C"},
        ]
        assert [(kernel.tiles, kernel.hoisted) for kernel in code.kernels] == [(5, False), (1, False)]
        assert all(kernel.symbol.startswith("here") for kernel in code.kernels)
        assert len({kernel.symbol for kernel in code.kernels}) == 2
        assert code.object_code
        assert code.ir

    def test_code_depends_on_the_program_alone(self, backend: Backend, target: Target) -> None:
        first, again = (backend.compile(lower_schedule(*two_kernels()), target) for _ in range(2))
        assert first.object_code == again.object_code
        assert first.kernels == again.kernels
        other = backend.compile(lower_schedule(*two_kernels(columns=71)), target)
        assert not {k.symbol for k in first.kernels} & {k.symbol for k in other.kernels}

    def test_kernels_of_constants_are_marked(self, backend: Backend, target: Target) -> None:
        s, args = two_kernels()
        code = backend.compile(lower_schedule(s, args, constants=frozenset({"A"})), target)
        assert [kernel.hoisted for kernel in code.kernels] == [True, False]
        assert [spec.role for spec in code.buffers] == ["input", "output", "hoisted"]

    def test_kernels_run_the_tiles_that_they_are_told(
        self, backend: Backend, target: Target, load: Callable[[DispatchCode], Entry]
    ) -> None:
        s, args = two_kernels()
        code = backend.compile(lower_schedule(s, args), target)
        entry, kernel = load(code), code.kernels[0]
        a, b = random_array((5, 70), "float32", 0), np.full((5, 70), 7, "float32")
        arrays = [{"A": a, "B": b}[code.buffers[n].name] for n in kernel.buffers]
        for begin, end in ((0, 0), (3, 4), (1, 3), (5, 5)):
            entry(kernel, arrays, begin, end)
        np.testing.assert_array_equal(b[1:4], 2 * a[1:4])
        assert (b[[0, 4]] == 7).all()

    def test_memory_of_an_attached_stage_is_the_tiles_own(
        self, backend: Backend, target: Target, load: Callable[[DispatchCode], Entry]
    ) -> None:
        """More of it than fits anywhere but into scratch memory."""
        a = te.placeholder((3, 90, 70), name="A")
        b = te.compute(a.shape, lambda t, i, j: a[t, i, j] + 1.0, name="B")
        c = te.compute((3, 70, 90), lambda t, i, j: b[t, j, i] * 3.0, name="C")
        s = te.create_schedule(c)
        s[b].compute_at(s[c], s[c].op.axis[0])
        s[c].parallel(s[c].op.axis[0])
        agree(backend, target, load, s, [a, c])

    def test_every_type_is_read_computed_and_written(
        self, backend: Backend, target: Target, load: Callable[[DispatchCode], Entry]
    ) -> None:
        """Whole vectors and a rest; remainders and quotients by zero among integers."""
        made = [computed_in(dtype) for dtype in DTYPES if dtype != "bool"]
        s = te.create_schedule([c for _, _, c in made])
        for _, _, c in made:
            _, inner = s[c].split(s[c].op.axis[0], 16)
            s[c].vectorize(inner)
        agree(backend, target, load, s, [tensor for each in made for tensor in each])

    def test_what_a_condition_guards_is_not_read(
        self, backend: Backend, target: Target, load: Callable[[DispatchCode], Entry]
    ) -> None:
        a = te.placeholder((11,), name="A")
        c = te.compute(
            (40,),
            lambda i: te.if_then_else(te.all(i >= 13, i < 24), a[i - 13], te.const(-1.0, "float32")),
            name="C",
        )
        s = te.create_schedule(c)
        _, inner = s[c].split(s[c].op.axis[0], 8)
        s[c].vectorize(inner)
        agree(backend, target, load, s, [a, c])

    def test_arguments_have_the_strides_that_are_given(
        self, backend: Backend, target: Target, load: Callable[[DispatchCode], Entry]
    ) -> None:
        a = te.placeholder((6, 5), name="A")
        c = te.compute((6, 5), lambda i, j: a[i, j] * 2.0, name="C")
        agree(backend, target, load, te.create_schedule(c), [a, c], strides={"A": (1, 7), "C": (8, 1)})

    @pytest.mark.parametrize("seed", seeds(4, 16, first=700))
    def test_random_programs_agree_with_numpy(
        self, backend: Backend, target: Target, load: Callable[[DispatchCode], Entry], seed: int
    ) -> None:
        case = random_case(seed)
        s, args = case.schedule()
        options = {"constants": case.constants, "strides": dict(case.strides)}
        agree(backend, target, load, s, args, tolerance=case.program.tolerance, **options)


def computed_in(dtype: str) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """Two inputs of a type, and what is computed of them."""
    a, b = (te.placeholder((37,), dtype, name=f"{name}_{dtype}") for name in "AB")

    def element(i: te.IterVar) -> te.Expr:
        if is_float(dtype):
            return te.maximum(a[i] * b[i], a[i] - b[i])
        return a[i] // b[i] + a[i] % b[i]

    return a, b, te.compute((37,), element, name=f"C_{dtype}")


def two_kernels(columns: int = 70) -> tuple[Schedule, Arguments]:
    """``B = 2 A`` in a tile a row, then the sums of B's rows in one."""
    a = te.placeholder((5, columns), name="A")
    b = te.compute(a.shape, lambda i, j: a[i, j] * 2.0, name="B")
    k = te.reduce_axis((0, columns), name="k")
    c = te.compute((5,), lambda i: te.sum(b[i, k], axis=k), name="C")
    s = te.create_schedule(c)
    s[b].parallel(s[b].op.axis[0])
    return s, [a, c]


def random_array(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    """Small numbers, which every type has."""
    return np.random.default_rng(seed).integers(0 if dtype.startswith("u") else -9, 10, shape).astype(dtype)


def agree(
    backend: Backend,
    target: Target,
    load: Callable[[DispatchCode], Entry],
    schedule: Schedule,
    args: Arguments,
    *,
    tolerance: float = 0.0,
    constants: frozenset[str] = frozenset(),
    strides: Mapping[str, tuple[int, ...]] | None = None,
) -> None:
    """The code computes what NumPy does, tiles one by one and backwards, and leaves its inputs alone."""
    strides = strides or {}
    code = backend.compile(lower_schedule(schedule, args, constants=constants, strides=strides), target)
    entry = load(code)
    inputs = {t: random_array(t.shape, t.dtype, n) for n, t in enumerate(args) if not t.op.input_tensors}
    memory = [laid_out(spec, strides.get(spec.name)) for spec in code.buffers]
    named = {schedule.name_of(t): array for t, array in inputs.items()}
    for spec, array in zip(code.buffers, memory, strict=True):
        if spec.role == "input":
            array[...] = named[spec.name]
    for kernel in code.kernels:
        for tile in reversed(range(kernel.tiles)):
            entry(kernel, [memory[b] for b in kernel.buffers], tile, tile + 1)
    outputs = [t for t in args if t not in inputs]
    wanted = dict(zip([schedule.name_of(t) for t in outputs], te.evaluate(outputs, inputs), strict=True))
    for spec, array in zip(code.buffers, memory, strict=True):
        if spec.role == "input":
            np.testing.assert_array_equal(array, named[spec.name])
        elif spec.role == "output":
            np.testing.assert_allclose(
                array.astype(np.float64),
                wanted[spec.name].astype(np.float64),
                rtol=1e-4,
                atol=tolerance,
                err_msg=spec.name,
            )


def laid_out(spec: BufferSpec, strides: tuple[int, ...] | None) -> Any:
    """Memory of a buffer on a cache line's border, as an array."""
    raw = np.zeros(spec.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    flat = raw[start : start + spec.nbytes].view(spec.dtype)
    if strides is None:
        return flat[: int(np.prod(spec.shape))].reshape(spec.shape)
    return np.lib.stride_tricks.as_strided(flat, spec.shape, [s * flat.itemsize for s in strides])
