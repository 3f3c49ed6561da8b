"""Whole models: machine code against NumPy, schedule sources, coverage, memory, constants."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.compiler import compile_in_detail, distinct_workloads, divide
from autotune.compiler.request import CompileRequest
from autotune.database.records import Origin, Reading
from autotune.database.store import Database
from autotune.errors import MissError, ScheduleError, UsageError
from autotune.frontends import zoo_built
from autotune.frontends.model_builder import ModelBuilder
from autotune.frontends.onnx.importer import load
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.passes.fusion.fuse import FusionOptions
from autotune.passes.partition import PartitionOptions
from autotune.runtime.module import Module
from autotune.schedule.trace import Trace
from autotune.target import Target
from tests.database.examples import record, schedules

pytestmark = pytest.mark.registers

MODELS = {
    "tiny_cnn": zoo_built.tiny_cnn,
    "mlp": lambda: zoo_built.mlp(batch=3, sizes=(20, 48, 10)),
    "encoder": lambda: zoo_built.encoder(layers=1, width=32, heads=2, sequence=12, hidden=48),
}


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def random_inputs(graph):
    return {v: normal(*graph.types[v].shape, seed=i) for i, v in enumerate(graph.inputs)}


def check(graph, **options):
    """Compile and run a graph; compare with NumPy."""
    compilation = compile_in_detail(CompileRequest(graph, **options))
    inputs = random_inputs(graph)
    expected = dict(evaluate.run(graph, inputs))
    with Module(compilation.image) as module:
        for _ in range(2):
            results = module.run(inputs)
            for name, want in expected.items():
                np.testing.assert_allclose(results[name], want, rtol=1e-3, atol=1e-4)
    return compilation


def plain_schedules(graph, **options):
    """Empty traces for every workload: the quickest code to make."""
    return {w.key: Trace() for w in distinct_workloads(divide(graph, **options))}


@pytest.mark.parametrize("name", MODELS)
def test_default_schedules_compute_the_model(name):
    graph = load(MODELS[name]())
    compilation = check(graph)
    assert {d.schedule_source for d in compilation.image.dispatches} == {"default"}


def test_other_layout():
    graph = load(MODELS["tiny_cnn"]())
    check(graph, layout="NCHW", schedules=plain_schedules(graph, layout="NCHW"))


def test_convolutions_by_winograd():
    b = GraphBuilder("winograd")
    x = b.input("x", (1, 48, 22, 23))
    w = b.constant("w", normal(64, 48, 3, 3) / 20)
    x = b.node("Conv", x, w, b.constant("b", normal(64)), pads=(1, 1, 1, 1))
    graph = b.graph(b.node("Relu", x, name="y"))
    compilation = check(graph, algorithm="winograd F(4x4)")
    names = [d.name for d in compilation.image.dispatches]
    assert any(name.endswith("winogradoutput_add_relu") for name in names)
    direct = check(graph, tolerance=0.0)
    assert not any("winograd" in d.name for d in direct.image.dispatches)
    with pytest.raises(UsageError, match="unknown algorithm 'fft'"):
        compile_in_detail(CompileRequest(graph, algorithm="fft"))


@pytest.mark.parametrize("stride", [1, 2])
def test_1x1_convolutions_by_matrix_products(stride):
    b = GraphBuilder("pointwise")
    x, w = b.input("x", (2, 24, 7, 9)), b.constant("w", normal(40, 24, 1, 1))
    y = b.node("Conv", x, w, b.constant("b", normal(40)), strides=(stride,) * 2)
    graph = b.graph(b.node("Relu", b.node("Add", y, b.input("r", b.type_of(y).shape)), name="y"))
    compilation = check(graph, algorithm="matrix product")
    assert any("matmul_add" in d.name for d in compilation.image.dispatches)


def test_one_and_two_threads_compute_the_same():
    graph = load(MODELS["tiny_cnn"]())
    inputs = random_inputs(graph)
    results = []
    for threads in (1, 2):
        image = compile_in_detail(CompileRequest(graph, threads=threads)).image
        assert image.target.threads == threads
        with Module(image, threads=threads) as module:
            results.append(module.run(inputs))
    np.testing.assert_allclose(results[0]["probabilities"], results[1]["probabilities"], rtol=1e-4, atol=1e-6)


def test_compiling_is_deterministic():
    graph = load(MODELS["mlp"]())
    first, second = (
        compile_in_detail(CompileRequest(graph)).image,
        compile_in_detail(CompileRequest(graph)).image,
    )
    assert (first.objects, first.commands, first.dispatches) == (
        second.objects,
        second.commands,
        second.dispatches,
    )


def test_equal_dispatches_share_code():
    graph = load(zoo_built.mlp(batch=2, sizes=(16, 16, 16, 16, 16)))
    compilation = compile_in_detail(CompileRequest(graph))
    assert len(compilation.image.dispatches) == 4
    assert len(compilation.image.objects) == 2
    assert {c.object_index for c in compilation.image.commands} == {0, 1}


# --- where schedules come from --------------------------------------------------------------------


def test_given_schedules_come_first():
    graph = load(MODELS["mlp"]())
    compilation = check(graph, schedules=plain_schedules(graph))
    assert {d.schedule_source for d in compilation.image.dispatches} == {"given"}
    assert str(compilation.coverage) == "0 of 2 dispatches tuned, 0 % of FLOPs; 2 given; schedules: 2 given"
    assert [d.trace_json for d in compilation.image.dispatches] == [Trace().to_json()] * 2


def test_a_given_schedule_that_does_not_apply():
    graph = load(MODELS["mlp"]())
    workload = distinct_workloads(divide(graph))[0]
    trace = Trace.from_json('{"version":1,"steps":[["compute_inline","no_such_stage",[]]]}')
    with pytest.raises(ScheduleError, match="no_such_stage"):
        compile_in_detail(CompileRequest(graph, schedules={workload.key: trace}))


def test_the_database_is_looked_up(tmp_path):
    graph, target = load(MODELS["mlp"]()), Target.detect()
    first, second = distinct_workloads(divide(graph))
    path = tmp_path / "tuning.db"
    with Database(path) as database:
        record(database, first, target, Trace().to_json())
        (faster,) = database.records()
        record(database, first, target, Trace().to_json(), 2000.0, "d", Origin.DEFAULT)
        default = database.records()[-1]
        rows = schedules((default, 2000.0), (faster, 1000.0), won=faster.trace_key)
        database.compared(first.key, target.key, "schedule", rows, "net")
    for source in (path, str(path)):
        compilation = check(graph, database=source, target=target)
        assert [d.schedule_source for d in compilation.image.dispatches] == ["tuned", "default"]
    report = compilation.coverage
    assert report.dispatches[0].latency_ns == 1000.0
    assert report.flops_fraction == first.flops / (first.flops + second.flops)
    assert "is not in the database" in report.missed[0].reason
    kept = json.loads(compilation.image.metadata["coverage"])[0]
    assert (kept["state"], kept["trials"], kept["gain"]["speedup"]) == (
        "tuned",
        1,
        pytest.approx(2.0, rel=0.02),
    )
    assert report.details().splitlines()[3:] == [
        "  1 dispatch not searched for this target: `autotune tune MODEL` does that"
    ]


def test_only_what_was_confirmed_counts_as_tuned(tmp_path):
    graph, target = load(MODELS["mlp"]()), Target.detect()
    first, second = distinct_workloads(divide(graph))
    with Database(tmp_path / "tuning.db") as database:
        for workload in (first, second):
            record(database, workload, target, Trace().to_json(), 2000.0, "d", Origin.DEFAULT)
        report = compile_in_detail(CompileRequest(graph, target=target, database=database)).coverage
        assert (
            str(report) == "0 of 2 dispatches tuned, 0 % of FLOPs; 2 default not searched; schedules: 2 exact"
        )
        with pytest.raises(MissError, match=r"for 2 of 2 dispatches .*\n.*: default, not searched\n"):
            compile_in_detail(CompileRequest(graph, target=target, require_hit=True, database=database))
        record(database, first, target, Trace().to_json(), 1000.0)
        record(database, second, target, Trace().to_json(), 990.0)
        (fast,) = (run for run in database.records(workload=first.key) if run.origin is not Origin.DEFAULT)
        # Inside a model, in two processes; the second workload's candidate was read alone only.
        for _ in range(2):
            database.read_inside(fast.key, [Reading(fast.trace_key, 0.5, 3, 2000.0)], "net")
        report = compile_in_detail(
            CompileRequest(graph, target=target, require_hit=True, database=database)
        ).coverage
        assert [str(d.evidence) for d in report.dispatches] == ["unconfirmed, 1 trial", "default, 1 trial"]
        default, other = database.records(workload=second.key)
        rows = schedules((default, 2000.0), (other, 1990.0), won=default.trace_key)
        database.compared(second.key, target.key, "schedule", rows, "net")
        report = compile_in_detail(CompileRequest(graph, target=target, database=database)).coverage
    assert (
        str(report)
        == "0 of 2 dispatches tuned, 0 % of FLOPs; 1 unconfirmed, 1 default confirmed; schedules: 2 exact"
    )


def test_a_stored_schedule_that_does_not_apply_is_a_miss(tmp_path):
    graph, target = load(MODELS["mlp"]()), Target.detect()
    workload = distinct_workloads(divide(graph))[0]
    with Database(tmp_path / "tuning.db") as database:
        record(
            database,
            workload,
            target,
            '{"version":1,"steps":[["compute_inline","nope",[]]]}',
            code="of another time",
        )
        compilation = check(graph, database=database, target=target)
    choice = compilation.coverage.dispatches[0]
    assert str(choice.evidence) == "default, not searched"
    assert choice.reason.startswith("the stored schedule does not apply: step 0")


def test_requiring_hits():
    with pytest.raises(MissError) as error:
        compile_in_detail(CompileRequest(load(MODELS["mlp"]()), require_hit=True))
    assert str(error.value) == (
        "nothing was searched for 2 of 2 dispatches of 'mlp':\n"
        "  000_matmul_add_relu (contraction): no database was given\n"
        "  001_matmul_add (contraction): no database was given\n"
        "  tune the model first, or for longer, or compile without requiring hits"
    )


def test_symbolic_sizes_are_given_by_name():
    b = ModelBuilder("open", seed=1)
    b.node("MatMul", [b.input("x", ("batch", 8)), b.normal("w", (8, 4), 1.0)], "y")
    model = b.finish(["y"])
    image = compile_in_detail(CompileRequest(model, shapes={"x": (3, 8)})).image
    assert image.outputs[0].shape == (3, 4)
    with pytest.raises(UsageError, match="shapes were given for a graph"):
        compile_in_detail(CompileRequest(load(model, shapes={"x": (3, 8)}), shapes={"x": (3, 8)}))


def test_dumps(tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOTUNE_DUMP", str(tmp_path))
    graph = load(MODELS["mlp"]())
    compile_in_detail(CompileRequest(graph, schedules=plain_schedules(graph)))
    folder = tmp_path / "mlp"
    assert "matmul_add_relu" in (folder / "dispatches.txt").read_text()
    assert (folder / "memory_plan.txt").read_text().startswith("arena ")
    assert (folder / "coverage.txt").read_text().startswith("0 of 2 dispatches tuned, 0 % of FLOPs; 2 given")
    suffixes = sorted("".join(p.suffixes) for p in (folder / "workloads").iterdir())
    assert suffixes == [".ll"] * 2 + [".region.txt"] * 2 + [".schedule.py"] * 2


# --- memory and constants -------------------------------------------------------------------------


def test_weights_are_in_the_image_once():
    graph = load(MODELS["mlp"]())
    image = compile_in_detail(CompileRequest(graph)).image
    weights = sum(array.nbytes for array in graph.constants.values())
    stored = sum(array.nbytes for array in image.constants)
    assert weights <= stored < 2 * weights  # packed with padding, but not kept twice


PACK_WEIGHTS = "w_packed"


def packing_trace(workload):
    """Copy the weights in another order first: a stage of constants, hoisted to compile time."""
    from autotune import te

    program = workload.program()
    schedule = te.create_schedule(list(program.outputs))
    weights = next(t for t in program.inputs if t.name in program.constants and len(t.shape) == 2)
    packed = schedule.cache_read(weights, "global", [program.anchor])
    schedule.transform_layout(packed, lambda i, j: [j, i])
    return schedule.trace


def packed_model(layers):
    b = GraphBuilder("packed")
    x = b.input("x", (4, 16))
    shared = b.constant("w", normal(16, 16))
    for i in range(layers):
        x = b.node("MatMul", x, shared if i < 2 else b.constant(f"w{i}", normal(16, 16, seed=i)))
    return b.graph(x)


def test_kernels_of_constants_run_at_compile_time():
    graph = packed_model(3)
    workload = distinct_workloads(divide(graph))[0]
    compilation = check(graph, schedules={workload.key: packing_trace(workload)})
    image = compilation.image
    assert len(image.commands) == 3  # one kernel each: no packing at run time
    # Two distinct packed weights; the raw ones are gone.
    want = {w.T.tobytes() for w in graph.constants.values()}
    assert {array.tobytes() for array in image.constants} == want
    assert len(image.constants) == 2


def test_another_architecture_packs_at_run_time():
    graph = packed_model(1)
    workload = distinct_workloads(divide(graph))[0]
    target = Target.parse("aarch64")
    trace = packing_trace(workload)
    image = compile_in_detail(CompileRequest(graph, target=target, schedules={workload.key: trace})).image
    assert len(image.commands) == 2
    assert image.arena_bytes >= 16 * 16 * 4


def test_a_smaller_instruction_set_runs_here():
    host = Target.detect()
    if host.arch != "x86_64":
        pytest.skip("needs an x86-64 machine")
    graph = load(MODELS["mlp"]())
    compilation = check(graph, target="x86-64-v2")
    assert compilation.image.target.vector_bits == 128


def test_values_that_live_together_do_not_overlap():
    graph = load(MODELS["tiny_cnn"]())
    plan = check(graph, schedules=plain_schedules(graph)).memory_plan
    for i, a in enumerate(plan.lifetimes):
        for b in plan.lifetimes[i + 1 :]:
            if a.first <= b.last and b.first <= a.last:
                x, y = plan.offsets[a.name], plan.offsets[b.name]
                assert x + a.nbytes <= y or y + b.nbytes <= x


def test_outputs_that_are_inputs_or_constants_in_disguise():
    b = GraphBuilder("disguised")
    x = b.input("x", (2, 3))
    outputs = [
        b.node("Identity", x, name="same"),
        b.node("Reshape", x, shape=(6,), name="flat"),
        b.node("Exp", b.constant("k", normal(3)), name="constant"),
        b.node("Concat", x, x, axis=1, name="twice"),
    ]
    check(b.graph(*outputs))


def test_concatenations_in_place():
    b = GraphBuilder("joined")
    x = b.input("x", (1, 5, 6, 32))
    for i in range(3):
        w = b.constant(f"w{i}", normal(3, 3, b.type_of(x).shape[-1], 16, seed=i) / 9)
        y = b.node("Conv", x, w, layout="NHWC", pads=(1, 1, 1, 1))
        x = b.node("Concat", x, b.node("Relu", y), axis=3)
    graph = b.graph(b.node("MaxPool", x, kernel_shape=(2, 2), layout="NHWC", name="y"))
    compilation = check(graph)
    assert [d.name.split("_", 1)[1] for d in compilation.image.dispatches].count("identity") == 1


@st.composite
def graphs(draw):
    """Random graphs of [3, 16 * k] values."""
    b = GraphBuilder("random")
    values = [b.input("x", (3, 16)), b.input("z", (3, 32))]
    for i in range(draw(st.integers(2, 8))):
        x = draw(st.sampled_from(values))
        shape = b.type_of(x).shape
        kind = draw(st.sampled_from(["unary", "add", "matmul", "concat", "split", "softmax", "turn"]))
        if kind == "unary":
            new = b.node(draw(st.sampled_from(["Tanh", "Neg", "Sigmoid"])), x)
        elif kind == "add":
            new = b.node("Add", x, draw(st.sampled_from([v for v in values if b.type_of(v).shape == shape])))
        elif kind == "matmul":
            outer = 16 * draw(st.integers(1, 2))
            new = b.node("MatMul", x, b.constant(f"w{i}", normal(shape[1], outer, seed=i) / 4))
        elif kind == "concat":
            rows = [v for v in values if b.type_of(v).shape[0] == shape[0]]
            new = b.node("Concat", x, draw(st.sampled_from(rows)), axis=1)
        elif kind == "split" and shape[1] % 32 == 0:
            half = shape[1] // 2
            new = b.nodes("Split", [x], [f"s{i}", f"t{i}"], axis=1, split=(half, half))[1]
        elif kind == "turn":
            new = b.node("Transpose", b.node("Exp", b.node("Neg", b.node("Abs", x))), perm=(1, 0))
        else:
            new = b.node("Softmax", x, axis=1)
        values.append(new)
    outputs = draw(st.lists(st.sampled_from(values[2:]), min_size=1, max_size=2, unique=True))
    return b.graph(*outputs).pruned()


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs())
def test_any_graph(graph):
    inputs_only = graph.replace(inputs=tuple(v for v in graph.inputs if v in graph.types))
    check(inputs_only, schedules=plain_schedules(inputs_only))


@pytest.mark.slow
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs(), st.booleans())
def test_any_graph_with_default_schedules(graph, fuse):
    check(graph, options=PartitionOptions(FusionOptions(fuse)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squeezenet", "shufflenet", "mobilenetv2", "resnet50"])
def test_large_models(name):
    check(load(f"zoo:{name}"))


def test_targets_with_other_threads_have_other_keys():
    target = Target.detect()
    assert replace(target, threads=target.threads + 1).key != target.key
