"""float16 and bfloat16 models: stored in 16 bits, sums in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune import te
from autotune.codegen.backend import compile_schedule
from autotune.codegen.llvm import assembly
from autotune.errors import InputError
from autotune.frontends.onnx import importer as frontend
from autotune.graph import evaluate
from autotune.graph.region import Workload
from autotune.runtime.artifacts import artifact
from autotune.runtime.module import Module
from autotune.target import Target
from search_spaces.spaces import space_for
from tests.schedule.machine import run_machine_code, runnable_target

pytestmark = pytest.mark.registers

TARGET = runnable_target("x86-64-v3")

REGIONS = {
    "elementwise": """region r {
      input a: float16[1000]
      input b: float16[1000]
      c = Mul(a, b) : float16[1000]
      d = Sub(c, a) : float16[1000]
      e = Sigmoid(d) : float16[1000]
      output e
    }""",
    "matmul": """region r {
      input a: float16[37, 500]
      const b: float16[500, 40]
      c = MatMul(a, b) : float16[37, 40]
      d = Relu(c) : float16[37, 40]
      output d
    }""",
    "gemm": """region r {
      input a: float16[7, 50]
      const b: float16[40, 50]
      const c: float16[40]
      d = Gemm(a, b, c) {alpha=0.5, transB=1} : float16[7, 40]
      output d
    }""",
    "convolution": """region r {
      input x: float16[1, 9, 9, 16]
      const w: float16[3, 3, 16, 24]
      const b: float16[24]
      y = Conv(x, w, b) {layout="NHWC", pads=[1, 1, 1, 1]} : float16[1, 9, 9, 24]
      output y
    }""",
    "softmax": """region r {
      input x: float16[9, 300]
      y = Softmax(x) : float16[9, 300]
      output y
    }""",
    "layer normalization": """region r {
      input x: float16[9, 300]
      const s: float16[300]
      const b: float16[300]
      y = LayerNormalization(x, s, b) : float16[9, 300]
      output y
    }""",
    "mean": """region r {
      input x: float16[9, 3000]
      y = ReduceMean(x) {axes=[1]} : float16[9, 1]
      output y
    }""",
    "maximum pool": """region r {
      input x: float16[1, 8, 9, 9]
      y = MaxPool(x) {kernel_shape=[3, 3], pads=[1, 1, 1, 1]} : float16[1, 8, 9, 9]
      output y
    }""",
    "batch normalization": """region r {
      input x: float16[1, 9, 9, 16]
      const w: float16[3, 3, 16, 24]
      const p: float16[24]
      c = Conv(x, w) {layout="NHWC", pads=[1, 1, 1, 1]} : float16[1, 9, 9, 24]
      d = BatchNormalization(c, p, p, p, p) {layout="NHWC"} : float16[1, 9, 9, 24]
      y = Relu(d) : float16[1, 9, 9, 24]
      output y
    }""",
    "average pool": """region r {
      input x: float16[1, 8, 9, 9]
      y = AveragePool(x) {kernel_shape=[3, 3], pads=[1, 1, 1, 1]} : float16[1, 8, 9, 9]
      output y
    }""",
}


STEP = {"float16": 2**-10, "bfloat16": 2**-7}
"""Between 1 and the next number."""


@pytest.mark.parametrize("dtype", STEP)
@pytest.mark.parametrize("name", REGIONS)
def test_regions_compute_the_reference_to_one_rounding(name: str, dtype: str) -> None:
    workload = Workload.parse(REGIONS[name].replace("float16", dtype))
    program, space = workload.program(), space_for(workload, TARGET)
    arrays = workload.random_inputs(0)
    given = {t.name: array for t, array in zip(program.inputs, arrays, strict=True)}
    schedule = space.apply(program, space.default())
    found = run_machine_code(schedule, list(program.args), given, target=TARGET, constants=program.constants)
    (wanted,) = workload.reference(arrays)
    np.testing.assert_allclose(
        found[program.outputs[0].name].astype("float32"),
        wanted.astype("float32"),
        rtol=STEP[dtype],
        atol=2e-4,
    )


def test_sums_are_float32_vectors_in_the_loop() -> None:
    target = Target.parse("x86-64-v3")
    workload = Workload.parse(REGIONS["matmul"])
    program, space = workload.program(), space_for(workload, target)
    schedule = space.apply(program, space.default())
    code = compile_schedule(schedule, list(program.args), target, constants=program.constants)
    text = assembly(code.ir, target)
    assert "vcvtph2ps" in text
    assert "vfmadd231ps" in text
    assert "__extendhfsf2" not in text


@pytest.mark.parametrize("dtype", STEP)
def test_an_onnx_model_of_halves_compiles(dtype: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        return (rng.standard_normal(shape) * 0.2).astype(dtype)

    constants = {"w": weights(8, 3, 3, 3), "b": weights(8), "m": weights(8, 5)}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["l"]),
        helper.make_node("Cast", ["l"], ["y"], to=TensorProto.FLOAT),
    ]
    graph = helper.make_graph(
        nodes,
        "halves",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])
    given = {"x": rng.standard_normal((1, 3, 8, 8)).astype(dtype)}
    wanted = evaluate.run(frontend.load(proto), given)["y"]
    module = autotune.compile(proto, threads=1)
    artifact.save(module.image, tmp_path / "model.atune")
    loaded = Module(artifact.load_image(tmp_path / "model.atune"), 1)
    for found in (module.run(given)["y"], loaded.run(given)["y"]):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, wanted, rtol=10 * STEP[dtype], atol=2 * STEP[dtype])


def test_arrays_of_bfloat16_go_in_and_out() -> None:
    given = {"a": np.arange(6).astype("bfloat16")}
    proto = helper.make_model(
        helper.make_graph(
            [helper.make_node("Mul", ["a", "a"], ["y"])],
            "squares",
            [helper.make_tensor_value_info("a", TensorProto.BFLOAT16, [6])],
            [helper.make_tensor_value_info("y", TensorProto.BFLOAT16, [6])],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    module = autotune.compile(proto, threads=1)
    found = module.run(given)["y"]
    assert found.dtype == np.dtype("bfloat16")
    np.testing.assert_array_equal(found, given["a"] * given["a"])
    with pytest.raises(InputError, match=r"bfloat16\[6\].*float16\[6\]"):
        module.run({"a": np.zeros(6, "float16")})


def test_float16_is_computed_where_no_instruction_converts_it() -> None:
    a = te.placeholder((8,), "float16", name="A")
    b = te.compute((8,), lambda i: a[i] * a[i], name="B")
    values = np.linspace(-3, 3, 8, dtype="float16")
    target = runnable_target("x86-64-v2")
    found = run_machine_code(te.create_schedule(b), [a, b], {"A": values}, target=target)
    np.testing.assert_array_equal(found["B"], values * values)
