"""NaN and infinities in rows of a softmax or an attention: NumPy, interpreter and machine code agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.codegen.interpreter import run_program
from autotune.compiler.dividing import distinct_workloads, divide
from autotune.graph import ops
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import TensorType
from autotune.graph.region import Workload
from autotune.lower import lower_schedule
from search_spaces.spaces import space_for
from tests.schedule.machine import host, run_machine_code

Array = np.ndarray[Any, Any]


def special_rows(width: int) -> Array:
    """A row with a NaN at each place in turn, then NaN alone, both infinities, each with NaN, and finite rows."""
    rows = np.random.default_rng(0).standard_normal((width + 7, width)).astype(np.float32)
    rows[np.arange(width), np.arange(width)] = np.nan
    rows[width], rows[width + 1], rows[width + 2, -1] = np.nan, -np.inf, np.inf
    rows[width + 3, ::2], rows[width + 3, 1::2] = np.nan, -np.inf
    rows[width + 4, 0], rows[width + 4, -1] = np.inf, np.nan
    rows[width + 5, 1:] = -np.inf
    return rows


def workload(op: str, arrays: dict[str, Array], **attrs: int) -> Workload:
    b = GraphBuilder(op)
    inputs = [b.input(name, array.shape) for name, array in arrays.items()]
    (only,) = distinct_workloads(divide(b.graph(b.node(op, *inputs, **attrs))))
    return only


def agrees(only: Workload, arrays: list[Array], wanted: Array, **knobs: int | str) -> None:
    """The scheduled region computes ``wanted`` in the interpreter and as machine code, NaN where it has NaN."""
    space, program = space_for(only, host()), only.program()
    schedule = space.apply(program, {**space.default(), **knobs})
    names = [t.name for t in program.args]
    given = dict(zip(names, arrays, strict=False))
    out = np.zeros_like(wanted)
    run_program(lower_schedule(schedule, program.args), {**given, names[-1]: out})
    np.testing.assert_allclose(out, wanted, rtol=2e-5, atol=2e-6)
    found = run_machine_code(schedule, program.args, given)[names[-1]]
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("width", [32, 37])
def test_a_row_with_nan_is_nan(op: str, axis: int, width: int) -> None:
    x = special_rows(width) if axis else np.ascontiguousarray(special_rows(width).T)
    with np.errstate(invalid="ignore"):
        (wanted,) = ops.get(op).reference([x], {"axis": axis})
    assert 0 < np.isnan(wanted).sum() < wanted.size
    agrees(workload(op, {"x": x}, axis=axis), [x], wanted)


@pytest.mark.parametrize("width", [32, 37])
def test_so_it_is_where_lanes_are_folded_at_each_step(width: int) -> None:
    x = special_rows(width)
    with np.errstate(invalid="ignore"):
        (wanted,) = ops.get("Softmax").reference([x], {"axis": 1})
    agrees(workload("Softmax", {"x": x}, axis=1), [x], wanted, method="fold")


@pytest.mark.parametrize("block", [0, 8])
def test_scores_with_nan_make_a_row_of_attention_nan(block: int) -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 19, 4)).astype(np.float32) for _ in range(3))
    q[0, 3, 2], q[0, 7] = np.nan, np.nan
    mask = np.where(np.eye(19, dtype=bool) & (np.arange(19) > 8), np.float32(np.nan), np.float32(0))
    mask[18], mask[18, 4], mask[0, :8] = -np.inf, np.nan, -np.inf
    arrays = {"q": q, "k": k, "v": v, "mask": mask.astype(np.float32)}
    only = workload("Attention", arrays, block=block)
    attention, given = ops.get("Attention"), list(arrays.values())
    attrs = attention.canonical([TensorType.of(a) for a in given], {"block": block})
    (wanted,) = attention.reference(given, attrs)
    assert np.isnan(wanted[0]).all(axis=1).sum() == 12
    agrees(only, given, wanted)
