"""Outputs in the memory of inputs: a cache that grows without being copied."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import autotune
from autotune.compiler import compile_in_detail
from autotune.compiler.memory.proof import prove_memory
from autotune.compiler.request import CompileRequest
from autotune.errors import ArtifactError, InputError, InternalError
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Array, Graph
from autotune.runtime.conflicts import conflicts
from autotune.runtime.image import BoundInPlace
from autotune.runtime.verify import verify

SHAPE = (2, 3, 8, 16)


def cache(*, late: bool = False, mode: str = "linear", counted: bool = False) -> Graph:
    """Rows written into a past, the sum of what is there then, and with ``late`` a product of the past itself."""
    b = GraphBuilder("cache")
    past, new = b.input("past", SHAPE), b.input("new", (2, 3, 2, 16))
    operands = [past, new, b.input("at", (2,), "int64")]
    operands += [b.input("count", (), "int64")] if counted else []
    present = b.node("TensorScatter", *operands, axis=2, mode=mode)
    results = [present, b.node("ReduceSum", present, axes=(2, 3), keepdims=0)]
    if late:
        results.append(b.node("Mul", past, b.node("ReduceSum", present, axes=(0, 1, 2, 3), keepdims=0)))
    return b.graph(*results)


def arrays(seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    past, new = (rng.standard_normal(shape).astype(np.float32) for shape in (SHAPE, (2, 3, 2, 16)))
    return {"past": past, "new": new, "at": rng.integers(-2, 9, 2), "count": np.array(rng.integers(0, 3))}


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("counted", [False, True])
def test_in_place_is_what_a_copy_is(mode: str, counted: bool) -> None:
    graph = cache(mode=mode, counted=counted)
    model = autotune.compile(graph, threads=2)
    for seed in range(8):
        given = {name: array for name, array in arrays(seed).items() if name in graph.inputs}
        wanted = [*evaluate.run(graph, given).values()]
        before = given["past"].copy()
        for found, right in zip(model(given), wanted, strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(given["past"], before)
        out = [given["past"], np.empty((2, 3), np.float32)]
        assert model(given, out=out)[0] is given["past"]
        for found, right in zip(out, wanted, strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5)


def test_only_all_of_the_input_is_a_place() -> None:
    model = autotune.compile(cache(), threads=1)
    given, memory = arrays(0), np.zeros(2 * np.prod(SHAPE), np.float32)
    del given["count"]
    given["past"] = memory[: np.prod(SHAPE)].reshape(SHAPE)
    moved = memory[16 : 16 + np.prod(SHAPE)].reshape(SHAPE)
    with pytest.raises(InputError, match="overlaps an input"):
        model(given, out=[moved, np.empty((2, 3), np.float32)])
    given["new"] = given["past"][:, :, :2].copy()
    with pytest.raises(InputError, match="overlaps an input"):
        model(given, out=[given["past"], given["new"].reshape(-1)[:6].reshape(2, 3)])


def test_what_is_read_later_is_not_overwritten() -> None:
    done = compile_in_detail(CompileRequest(cache(late=True), threads=2))
    assert done.image.in_place == (BoundInPlace(2, 0),)  # the product, which is the last to read the past
    given = arrays(1)
    del given["count"]
    out = [given["past"], np.empty((2, 3), np.float32), np.empty(SHAPE, np.float32)]
    with pytest.raises(InputError, match="overlaps an input"):
        autotune.compile(cache(late=True), threads=2)(given, out=out)


def test_the_proof_goes_through_both_places() -> None:
    done = compile_in_detail(CompileRequest(cache(), threads=2))
    bound = {done.partition.outputs[0]: "past"}
    assert str(prove_memory(done.partition, done.memory_plan, bound)).endswith("1 over an input, proven")
    late = compile_in_detail(CompileRequest(cache(late=True), threads=2))
    with pytest.raises(InternalError, match="'past', of which a part was not written before, or overwritten"):
        prove_memory(late.partition, late.memory_plan, {late.partition.outputs[0]: "past"})
    wrong = replace(late.image, in_place=(BoundInPlace(0, 0),))
    with pytest.raises(ArtifactError, match="input 0 is read where output 0 may have overwritten it"):
        verify(wrong)
    assert not list(conflicts(done.image.commands, done.image.checks, (), done.image.in_place))


def test_artifacts_keep_it(tmp_path: Path) -> None:
    autotune.compile(cache(), threads=1).save(tmp_path / "cache.atm")
    model, given = autotune.load(tmp_path / "cache.atm"), arrays(2)
    del given["count"]
    (wanted, *_) = model(given)
    (found, *_) = model(given, out=[given["past"], np.empty((2, 3), np.float32)])
    assert found is given["past"]
    np.testing.assert_array_equal(found, wanted)
