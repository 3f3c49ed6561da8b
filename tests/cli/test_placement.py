"""Several devices from the command line: a model that names them, --place, explain --affinity, artifacts."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner

from autotune.cli.main import cli
from autotune.errors import UsageError
from autotune.frontends.model_builder import ModelBuilder
from autotune.frontends.onnx.affinity import KEY
from autotune.runtime.hal.cpu.cores import core_ids

pytestmark = pytest.mark.skipif(len(core_ids()) < 2, reason="one core is no two devices")


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two products, of which the file puts each on a device."""
    b = ModelBuilder("stages")
    x = b.input("x", (4, 8))
    a = b.node("MatMul", [x, b.normal("w1", (8, 8), 1.0)], "a")
    r = b.node("Relu", [a], "r")
    model = b.finish([b.node("MatMul", [r, b.normal("w2", (8, 8), 1.0)], "y")])
    model.graph.node[0].metadata_props.add(key=KEY, value="cpu:0")
    model.graph.node[2].metadata_props.add(key=KEY, value="cpu:1")
    path = tmp_path_factory.mktemp("model") / "stages.onnx"
    onnx.save(model, path)
    return str(path)


def run(*arguments: str) -> str:
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_explain_says_where_each_operation_runs(stages):
    assert run("explain", stages, "--affinity") == (
        "affinity of stages: 2 ops on cpu:0, 1 op on cpu:1; 1 transfer, 128 B\n"
        "  input x     cpu:0  x is read there by a\n"
        "  a (MatMul)  cpu:0  named by the model\n"
        "  r (Relu)    cpu:0  reads a, which is there  (possible too: cpu:1: r is read there by y)\n"
        "  y (MatMul)  cpu:1  named by the model\n"
        "  output y    cpu:1  stays where y makes it\n"
        "  transfer r  cpu:0 -> cpu:1, 128 B, for y\n"
    )
    found = json.loads(run("explain", stages, "--affinity", "--json", "--place", "r=cpu:1"))
    assert [op["device"] for op in found["ops"]] == ["cpu:0", "cpu:1", "cpu:1"]
    assert [crossing["value"] for crossing in found["transfers"]] == ["a"]
    assert run("explain", "zoo:tiny_cnn", "--affinity") == (
        "zoo:tiny_cnn names no devices, and no --place does: all of it runs on one\n"
    )


def test_a_model_with_devices_is_explained_compiled_and_run(stages, tmp_path):
    assert "002 cpu:1: 1 dispatch (r@cpu:1) -> y after 001" in run("explain", stages)
    artifact, folder = tmp_path / "stages.atm", tmp_path / "out"
    said = run("compile", stages, "-o", str(artifact))
    assert said.startswith("2 parts on cpu:0, cpu:1; 1 transfer, 128 B a run\n")
    trace = tmp_path / "trace.json"
    assert "y: float32 4×8" in run(
        "run", str(artifact), "--random", "--output", str(folder), "--trace", str(trace), "--repeat", "2"
    )
    events = json.loads(trace.read_text())["traceEvents"]
    assert [e["args"]["name"] for e in events if e["name"] == "process_name"] == ["cpu:0", "cpu:1"]
    assert [event["name"] for event in events if event["ph"] == "X" and not event["tid"]] == [
        "run r",
        "run y",
    ]
    assert {event["pid"] for event in events if event["ph"] == "X" and event["tid"]} == {0, 1}
    found = json.loads(run("run", str(artifact), "--random", "--profile", "--repeat", "2", "--json"))[
        "profile"
    ]
    assert {(each["device"], *each["nodes"]) for each in found["dispatches"]} == {
        ("cpu:0", "a", "r"),
        ("cpu:1", "y"),
    }
    assert {each["device"]: each["flops"] for each in found["dispatches"]} == {"cpu:0": 544, "cpu:1": 512}


def test_what_is_said_of_devices_may_be_wrong(stages):
    def refused(*arguments: str) -> str:
        with pytest.raises(UsageError) as caught:
            run(*arguments)
        return str(caught.value)

    assert "node 'y' (MatMul) is put on two devices" in refused(
        "run", stages, "--random", "--place", "y=cpu:0"
    )
    assert "there is no device 'gpu'" in refused("run", stages, "--random", "--place", "r=gpu")
    assert "--place 'r' is not PATTERN=DEVICE" in refused("run", stages, "--random", "--place", "r")
    assert "--place r is given twice, with cpu and cpu:1" in refused(
        "explain", stages, "--place", "r=cpu", "--place", "r=cpu:1"
    )
    assert "leave out target and threads" in refused("run", stages, "--random", "--threads", "1")


def test_other_commands_say_that_they_leave_devices_out(stages, caplog):
    run("explain", stages, "--place", "r=cpu:1", "--affinity")
    assert not caplog.records
    from autotune.tuning.api import predict

    predict(stages, threads=1)
    assert [record.getMessage() for record in caplog.records] == [
        "stages names devices: they are left out here, it counts as a model of one device"
    ]


def artifact_of(path: Path) -> bytes:
    run("compile", "zoo:tiny_cnn", "-o", str(path), "--threads", "1")
    return path.read_bytes()


def test_a_model_without_devices_is_compiled_as_ever(tmp_path):
    from autotune.compiler import compile_in_detail
    from autotune.compiler.request import CompileRequest
    from autotune.runtime.artifacts import artifact

    artifact.save(compile_in_detail(CompileRequest("zoo:tiny_cnn", threads=1)).image, tmp_path / "direct.atm")
    assert artifact_of(tmp_path / "one.atm") == (tmp_path / "direct.atm").read_bytes()
