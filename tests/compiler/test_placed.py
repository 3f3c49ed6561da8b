"""Models on several devices: programs, their consistency, and what they compute, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import autotune
from autotune.compiler import Compilation, compile_in_detail
from autotune.compiler.dividing import imported
from autotune.compiler.request import CompileRequest
from autotune.errors import ArtifactError
from autotune.graph import Graph
from autotune.graph.ir import Array
from autotune.runtime.hal.cpu.cores import core_ids
from autotune.runtime.hal.device import DeviceInfo
from autotune.runtime.module import Module
from autotune.runtime.programs.device_program import DeviceProgram
from autotune.runtime.programs.verify_program import verify_program
from autotune.target import Target
from tests.graph.graphs import small_convnet


def info(device: str, cores: int | None = 1) -> DeviceInfo:
    """A device of this machine's processor."""
    return DeviceInfo(device, "cpu", "cpu", "", 1, 1 << 30, "host", find_target=lambda: Target.detect(cores))


INFOS = {"cpu": info("cpu", None), "cpu:0": info("cpu:0"), "cpu:1": info("cpu:1")}


def compiled(model: Graph, rules: dict[str, str], **options: bool) -> Compilation:
    request = CompileRequest(model, placement=rules or None, **options)
    done = compile_in_detail(request, devices=INFOS)
    verify_program(done.program)
    return done


def in_turn(program: DeviceProgram, arrays: Sequence[Array]) -> list[Array]:
    """Compute the program, a step after the other in this thread: the reference of every way to run it."""
    values = {argument.value: arrays[argument.input] for argument in program.arguments}
    for step in program.steps:
        if step.kind == "transfer":
            values[step.writes[0]] = values[step.reads[0]].copy()
        else:
            with Module(program.images[step.image], threads=1) as module:
                values |= zip(step.writes, module(*(values[v] for v in step.reads)), strict=True)
    return [values[result] for result in program.results]


RULES = [
    {"*": "cpu:1"},
    {"Conv": "cpu:0", "*": "cpu:1"},
    {"conv": "cpu:1", "Relu": "cpu:0", "add": "cpu:1", "gemm": "cpu:0"},
    {"y": "cpu", "x/0:0": "cpu:1"},
]


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_a_program_computes_what_the_model_does(rules):
    model = small_convnet()
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    program = compiled(model, rules).program
    with Module(compile_in_detail(CompileRequest(model, threads=1)).image) as module:
        np.testing.assert_allclose(in_turn(program, [x])[0], module(x)[0], 1e-5, 1e-6)
    assert [spec.name for spec in program.inputs] == ["x/0:0"]
    assert [spec.name for spec in program.outputs] == ["y"]


def test_a_program_prints_its_steps_and_what_they_wait_for():
    done = compiled(small_convnet(), {"Conv": "cpu:1", "*": "cpu:0"})
    assert str(done.program) == (
        "program small convnet on cpu:1, cpu:0 {\n"
        "  x/0:0 -> x/0:0 on cpu:1\n"
        "  000 cpu:1: 1 dispatch (x/0:0) -> conv.nhwc\n"
        "  001 transfer 256 bytes cpu:1 -> cpu:0: conv.nhwc -> conv@cpu:0.nhwc after 000\n"
        "  002 cpu:0: 1 dispatch (conv@cpu:0.nhwc) -> relu.nhwc after 001\n"
        "  003 transfer 256 bytes cpu:0 -> cpu:1: relu.nhwc -> relu@cpu:1.nhwc after 002\n"
        "  004 cpu:1: 1 dispatch (relu@cpu:1.nhwc) -> conv_1.nhwc after 003\n"
        "  005 transfer 256 bytes cpu:1 -> cpu:0: conv_1.nhwc -> conv_1@cpu:0.nhwc after 004\n"
        "  006 cpu:0: 4 dispatches (relu.nhwc, conv_1@cpu:0.nhwc) -> y after 002, 005\n"
        "  output y on cpu:0\n"
        "}"
    )
    assert done.program.devices == ("cpu:1", "cpu:0")
    assert done.program.transferred_bytes == 768
    assert len(done.coverage.dispatches) == 7


def test_inputs_that_several_devices_read_come_from_the_caller():
    program = compiled(small_convnet(), {"relu": "cpu:0", "*": "cpu:1"}).program
    assert program.devices == ("cpu:1", "cpu:0")
    model = small_convnet()
    text = model.replace(nodes=tuple(n.replace(device="cpu:0") for n in model.nodes), outputs=("y", "x/0:0"))
    both = compiled(text, {}).program
    assert [spec.name for spec in both.outputs] == ["y", "x/0:0"]
    assert both.results[1] == both.arguments[0].value


def test_one_device_makes_one_segment():
    program = compiled(small_convnet(), {"Conv": "cpu:1"}).program
    assert [(step.kind, step.device) for step in program.steps] == [("run", "cpu:1")]


def test_without_any_device_it_is_one_segment_here():
    done = compiled(small_convnet(), {})
    assert (done.program.devices, len(done.segments), done.affinities) == (("",), 1, None)
    assert done.program.image is done.image


def test_schedules_and_memory_of_segments_are_proved():
    pytest.importorskip("islpy")
    done = compiled(small_convnet(), {"Conv": "cpu:1", "*": "cpu:0"}, verify=True)
    assert len(done.proofs) == len(done.segments) == 4
    assert {proof.verdict.status for report in done.proofs for proof in report.proofs} == {"proven"}
    assert all(segment.memory_proof is not None for segment in done.segments)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"waits": ()}, "step 1 waits for steps (), what it reads is made by (0,)"),
        ({"reads": (99,)}, "step 1 reads (99,) and writes (2,), of 8 values"),
        ({"reads": (4,)}, "step 1 reads value 4 before anything writes it"),
        ({"writes": (0,)}, "step 1 writes value 0, which has been written"),
        ({"device": "cpu:1"}, "step 1 on cpu:1 writes a value of cpu:0"),
        ({"kind": "run"}, "step 1 on cpu:0 reads value 1 of cpu:1"),
        ({"kind": "run", "image": 7}, "step 1 runs image 7 of 4"),
        ({"writes": (2, 3)}, "step 1 transfers 1 values into 2"),
    ],
    ids=lambda v: str(v)[:30],
)
def test_a_program_that_breaks_its_promises_is_refused(change, problem):
    program = compiled(small_convnet(), {"Conv": "cpu:1", "*": "cpu:0"}).program
    steps = (program.steps[0], replace(program.steps[1], **change), *program.steps[2:])
    with pytest.raises(ArtifactError) as caught:
        verify_program(replace(program, steps=steps))
    assert str(caught.value) == f"the compiled program 'small convnet' is inconsistent: {problem}"


@pytest.mark.slow
@pytest.mark.skipif(len(core_ids()) < 2, reason="one core is no two devices")
@pytest.mark.parametrize("name", ["squeezenet", "mlp", "encoder", "mobilenetv2"])
@pytest.mark.parametrize("kind", ["alternating", "operators", "stages"])
def test_zoo_models_on_two_devices(name, kind):
    graph = imported(f"zoo:{name}", None)
    order = [node.name for node in graph.nodes]
    rules = {
        "alternating": {node: f"cpu:{i // 2 % 2}" for i, node in enumerate(order)},
        "operators": {graph.nodes[0].op: "cpu:1", "*": "cpu:0"},
        "stages": {node: f"cpu:{int(2 * i >= len(order))}" for i, node in enumerate(order)},
    }[kind]
    with autotune.compile(graph, threads=1) as plain, autotune.compile(graph, placement=rules) as module:
        rng = np.random.default_rng(0)
        arrays = [[rng.standard_normal(s.shape).astype(s.dtype) for s in plain.inputs] for _ in range(4)]
        futures = [module.submit(*each) for each in arrays]
        for each, future in zip(arrays, futures, strict=True):
            for found, expected in zip(future.result(), plain(*each), strict=True):
                np.testing.assert_allclose(found, expected, 1e-3, 1e-5 * np.abs(expected).max())
        assert set(module.devices) == {"cpu:0", "cpu:1"}
