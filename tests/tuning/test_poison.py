"""Candidates that write where they must not are found out, and the next one is measured as if nothing had been."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autotune import library, te
from autotune.codegen.backend import backend_for
from autotune.database import Outcome
from autotune.functions.function import image_of
from autotune.lower.ir import LoopProgram, Store, walk
from autotune.lower.program import lower_schedule
from autotune.target import Target
from autotune.tuning.measure import worker
from autotune.tuning.measure.fenced_module import FencedModule
from autotune.tuning.measure.fences import Fences
from cost_models import analytic
from search_spaces.space import Space
from search_spaces.spaces import space_for
from tests.runtime.kernels import writes_scratch
from tests.search_spaces import workloads as make

M, K, N = 37, 23, 50
TARGET = Target.detect(threads=1)
FLOATS = ctypes.POINTER(ctypes.c_float)
SIGNATURE = ctypes.CFUNCTYPE(None, FLOATS, FLOATS, FLOATS, ctypes.POINTER(ctypes.c_int64))
Deed = Callable[[Any, Any, Any, int], None]


def floats(address: int) -> Any:
    return ctypes.cast(address, FLOATS)


def before_the_output(output: int, a: Any, b: Any, call: int) -> None:
    floats(output)[-1] = 1.0


def behind_the_output(output: int, a: Any, b: Any, call: int) -> None:
    floats(output)[M * N] = 1.0


def to_an_input(output: int, a: Any, b: Any, call: int) -> None:
    a[M * K - 1] += 1.0


def to_a_constant(output: int, a: Any, b: Any, call: int) -> None:
    b[0] += 1.0


def to_an_input_later(output: int, a: Any, b: Any, call: int) -> None:
    if call > 3:
        a[0] = 0.0


DEEDS: dict[Deed, tuple[Outcome, str]] = {
    before_the_output: (Outcome.OUT_OF_BOUNDS, "wrote beside its outputs, from 4 bytes before their begin"),
    behind_the_output: (Outcome.OUT_OF_BOUNDS, "wrote beside its outputs, up to 4 bytes behind their end"),
    to_an_input: (Outcome.OUT_OF_BOUNDS, "changed its inputs"),
    to_a_constant: (Outcome.OUT_OF_BOUNDS, "changed its constants"),
    to_an_input_later: (Outcome.OUT_OF_BOUNDS, "changed its inputs"),
}


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A product that then does ``deed``, registered as library kernel "poison".

    It gets a place where its result is copied from; ``output`` is the address of where that goes.
    """
    doing = SimpleNamespace(deed=None, calls=0, output=0, wrong=False)
    make_array = Fences.array

    def array(fences: Fences, *args: Any) -> Any:
        made = make_array(fences, *args)
        doing.output = made.ctypes.data
        return made

    monkeypatch.setattr(Fences, "array", array)

    def product(out: Any, a: Any, b: Any, layout: Any) -> None:
        m, n, k = layout[:3]
        left, right = np.ctypeslib.as_array(a, (m, k)), np.ctypeslib.as_array(b, (k, n))
        np.matmul(left, right, out=np.ctypeslib.as_array(out, (m, n)))
        out[3] += doing.wrong and doing.calls
        if doing.deed is not None:
            doing.deed(doing.output, a, b, doing.calls)
        doing.calls += 1

    function = SIGNATURE(product)
    address = ctypes.cast(function, ctypes.c_void_p).value
    library.register("poison", SimpleNamespace(address=address, function=function))
    yield doing
    library.unregister("poison")


@pytest.fixture
def space(kernel: SimpleNamespace) -> Space:
    return space_for(make.matmul(M, K, N, relu=False), TARGET)


def measured(space: Space, **changes: Any) -> dict[str, Any]:
    asked = {"workload": space.workload.text, "target": TARGET.to_json(), "seed": 0}
    config = {**analytic.default_config(space), **changes}
    answer = worker.build({**asked, "config": config})
    assert "failed" not in answer, answer
    return worker.measure({**asked, "payloads": [answer["payload"]], "default_ns": None})


WHOLE = {
    "kernel": "poison",
    "pack": False,
    "tail": "overlap",
    "unroll": 1,
    "k_block": 0,
    "row_block": 0,
    "vector_block": 0,
}


@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.__name__)
def test_what_a_candidate_must_not_write_is_found(space: Space, kernel: SimpleNamespace, deed: Deed) -> None:
    whole = {name: value for name, value in WHOLE.items() if name in space.names}
    assert "kernel" in whole
    assert measured(space, **whole)["outcome"] == "ok", "an honest kernel"
    kernel.deed, kernel.calls = deed, 0
    outcome, words = DEEDS[deed]
    end = measured(space, **whole)
    assert (end["outcome"], end["message"][: len(words)]) == (outcome.value, words)
    assert "latency" not in end
    assert measured(space)["outcome"] == "ok", "the default afterwards"


def test_a_candidate_that_computes_something_else_while_it_is_timed_is_found(
    space: Space, kernel: SimpleNamespace
) -> None:
    kernel.wrong = True
    end = measured(space, **{name: value for name, value in WHOLE.items() if name in space.names})
    assert end["outcome"] == "wrong_result"
    assert kernel.calls > 1, "the first run was right"


def test_a_candidate_that_computes_nothing_after_some_runs_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # It leaves what the first runs wrote, which is right: only a run on memory without that shows it.
    space = space_for(make.matmul(M, K, N, relu=False), TARGET)
    ran, run, sample = [], FencedModule.run, FencedModule.sample

    def runs_until_timed(self: FencedModule) -> None:
        if not ran:
            run(self)

    def timed(self: FencedModule, runs: int) -> Any:
        ran.append(runs)
        return sample(self, runs)

    monkeypatch.setattr(FencedModule, "run", runs_until_timed)
    monkeypatch.setattr(FencedModule, "sample", timed)
    end = measured(space)
    assert ran, "the first runs were right"
    assert (end["outcome"], "latency" in end) == ("wrong_result", False)


SHARED = [(1, 8), (1, 40), (2, 8), (2, 40), (2, 128), (3, 40), (3, 4096)]


@pytest.mark.parametrize("elements_past", [0, 1])
@pytest.mark.parametrize(("threads", "nbytes"), SHARED)
def test_an_element_past_a_workers_share_of_scratch_memory_is_found(
    threads: int, nbytes: int, elements_past: int
) -> None:
    # Each tile writes the last element of its worker's share, or the one behind.
    made = writes_scratch(nbytes // 8 - 1 + elements_past, nbytes, tiles=8)
    running = FencedModule(replace(made, target=replace(made.target, threads=threads)), [])
    running.run()
    harm = "wrote beside its scratch memory, up to 8 bytes behind their end" if elements_past else ""
    assert running.harm() == harm
    running.close()


def _with_local(threads: int, nbytes: int, shift: int) -> tuple[LoopProgram, Target]:
    """y = 2 (x + 1) by rows, each through a local block of so many bytes, whose stores are ``shift`` elements off."""
    x = te.placeholder((8, nbytes // 4), name="x", dtype="int32")
    t = te.compute(x.shape, lambda i, j: x[i, j] + 1, name="t")
    y = te.compute(x.shape, lambda i, j: t[i, j] * 2, name="y")
    s = te.create_schedule(y.op)
    s[t].compute_at(s[y], s[y].op.axis[0])
    s[y].parallel(s[y].op.axis[0])
    program = lower_schedule(s, [x, y])
    for kernel in program.kernels:
        for store in walk(kernel.body):
            if isinstance(store, Store) and store.buffer.name == "t":
                store.indices = (*store.indices[:-1], store.indices[-1] + shift)
    return program, replace(TARGET, threads=threads)


@pytest.mark.parametrize("shift", [0, -1, 1])
@pytest.mark.parametrize(("threads", "nbytes"), [*SHARED, (2, 1 << 15)])
def test_an_element_past_a_block_of_local_memory_is_found(threads: int, nbytes: int, shift: int) -> None:
    program, target = _with_local(threads, nbytes, shift)
    backend = backend_for(target.arch)
    code = backend.compile(program, target)
    fenced = backend.fenced(program, target, code)
    assert fenced is not None
    running = FencedModule(image_of(fenced, target, "program"), [np.zeros((8, nbytes // 4), np.int32)])
    running.run()
    assert running.harm() == ("wrote beside a block of its local memory" if shift else "")
    running.close()


def test_a_candidate_that_writes_an_element_past_its_local_memory_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lower, shift = lower_schedule, [0]

    def moved(*args: Any, **options: Any) -> LoopProgram:
        program = lower(*args, **options)
        for kernel in program.kernels if shift[0] else ():
            for node in walk(kernel.body):
                if isinstance(node, Store) and node.buffer.scope == "local":
                    node.indices = (*node.indices[:-1], node.indices[-1] + shift[0])
        return program

    monkeypatch.setattr("autotune.lower.program.lower_schedule", moved)
    space = space_for(make.matmul(64, 96, 80, relu=True), TARGET)
    asked = {"workload": space.workload.text, "target": TARGET.to_json(), "seed": 0}
    ends = []
    for config in space.random(np.random.default_rng(0), 4):
        shift[0] = 0
        right = worker.build({**asked, "config": config})["payload"]
        for shift[0] in (-1, 1):
            made = worker.build({**asked, "config": config})
            if made["payload"] != right:  # else what was changed is what an instruction of its own stands for
                payloads = {"payloads": [made["payload"]], "fenced": made["fenced"]}
                end = worker.measure({**asked, **payloads, "default_ns": None})
                ends.append((end["outcome"], end["message"]))
    assert len(ends) > 3
    assert {*ends} == {("out_of_bounds", "wrote beside a block of its local memory")}


def test_memory_between_fences_is_as_it_was_asked_for() -> None:
    fences = Fences()
    array = fences.array((3, 5), "float32", "outputs")
    source = np.arange(12.0).reshape(3, 4)[:, ::2]
    copy = fences.copy(source, "inputs")
    empty = fences.array((0, 4), "int64", "outputs")
    assert (array.shape, array.dtype, array.ctypes.data % 64, empty.size) == ((3, 5), np.float32, 0, 0)
    np.testing.assert_array_equal(copy, source)
    assert copy.ctypes.data != source.ctypes.data
    array[...] = 1
    assert fences.harm() == ""
    copy[2, 1] = 11
    assert fences.harm() == "changed its inputs"


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_copies_keep_their_shape(shape: tuple[int, ...]) -> None:
    array = np.full(shape, 7, np.int64)
    copy = Fences().copy(array, "an input")
    assert copy.shape == shape
    assert np.array_equal(copy, array)
