"""Modules of one dispatch: what the measuring worker runs."""

import numpy as np
import pytest

from autotune.compiler import region_inputs, region_outputs
from autotune.compiler.assemble import assemble
from autotune.compiler.build.build import Building
from autotune.compiler.planned import GIVEN, Planned
from autotune.compiler.region import region_partition
from autotune.errors import InputError
from autotune.graph.ir import Graph, Node, TensorType
from autotune.graph.region import Region, Workload
from autotune.runtime.module import Module
from autotune.schedule.trace import Trace
from autotune.target import Target
from cost_models import analytic
from search_spaces import spaces

pytestmark = pytest.mark.registers


def matmul_workload(in_strides=None, out_strides=None):
    types = {
        "x": TensorType((2, 6, 16), "float32", in_strides),
        "w": TensorType((16, 32), "float32"),
        "m": TensorType((2, 6, 32), "float32"),
        "y": TensorType((2, 6, 32), "float32", out_strides),
    }
    nodes = (Node("MatMul", ("x", "w"), ("m",)), Node("Relu", ("m",), ("y",)))
    graph = Graph("region", ("x", "w"), ("y",), nodes, types)
    return Workload.from_region(Region(graph, frozenset({"w"})))


STRIDES = {
    "dense": (None, None),
    "strided_input": ((640, 64, 1), None),
    "strided_output": (None, (960, 96, 1)),
    "transposed_input": ((16, 32, 1), None),
    "both": ((640, 64, 1), (960, 96, 1)),
}


@pytest.mark.parametrize("tuned", [False, True])
@pytest.mark.parametrize("case", STRIDES)
def test_a_region_computes_its_reference(case, tuned):
    workload, target = matmul_workload(*STRIDES[case]), Target.detect()
    trace = Trace()
    if tuned:
        space = spaces.space_for(workload, target)
        trace = space.schedule(analytic.default_config(space)).trace
    arrays = workload.random_inputs(0)
    built = Building([Planned(workload, trace, GIVEN)], target).finish()
    image, _ = assemble(region_partition(workload, arrays), built, target, {})
    assert [spec.name for spec in image.inputs] == ["i0"]  # the weights are in the image
    with Module(image) as module:
        results = region_outputs(workload, module(*region_inputs(workload, arrays)))
    (want,) = workload.reference(arrays)
    assert results[0].shape == want.shape
    np.testing.assert_allclose(results[0], want, rtol=1e-4, atol=1e-4)


def test_all_arrays_are_needed():
    workload = matmul_workload()
    with pytest.raises(InputError, match="the workload has 2 inputs, got 1"):
        region_partition(workload, workload.random_inputs(0)[:1])
