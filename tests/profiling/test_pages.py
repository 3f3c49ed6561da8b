"""Pages of models and profiles: what they show is what the commands' JSON has, and they load nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.checker
import pytest
from onnx import TensorProto, helper

import autotune
from autotune.cli.main import run as command
from autotune.profiling import graph_picture
from autotune.profiling.profile import ModelProfile, profile_of
from autotune.profiling.profile_page import layers, profile_page
from autotune.tuning.report.units import nanoseconds
from tests.outline import Outline
from tests.profiling.made_up import on_cpu, on_two_devices
from tests.profiling.test_profile import ROOFS

HOSTILE = "<script>alert('x')</script>\"&"
SHAPE = (1, 4, 6, 6)


def model(folder: Path, *, outside: bool = False) -> Path:
    """A convolution, a relu, and a sum with the input, of hostile names; its weights may be in a file beside it."""
    weights = np.random.default_rng(0).standard_normal((4, 4, 1, 1), np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name=HOSTILE),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("Add", ["r", "x"], ["a"], name="sum"),
        helper.make_node("GlobalAveragePool", ["a"], ["y"], name="pool"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4, 1, 1))
    graph = helper.make_graph(nodes, HOSTILE, [x], [y], [onnx.numpy_helper.from_array(weights, "w")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "model.onnx"
    place = {"location": "weights.bin", "size_threshold": 0} if outside else {}
    onnx.save_model(made, path, save_as_external_data=outside, **place)
    return path


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model, its page, its annotated copy, and the JSON of the command that wrote them."""
    folder = tmp_path_factory.mktemp("explained")
    said = run("explain", model(folder), "--html", folder / "p.html", "--onnx", folder / "o.onnx", "--json")
    (folder / "said.json").write_text(said)
    return folder


def run(*words: object) -> str:
    """Return what a command prints; nothing of it reads a database."""
    import io
    from contextlib import redirect_stdout

    out = io.StringIO()
    with redirect_stdout(out):
        assert command([*map(str, words)]) == 0
    return out.getvalue()


def facts(folder: Path) -> list[dict[str, Any]]:
    """The facts of the dispatches as the JSON has them."""
    found: list[dict[str, Any]] = json.loads((folder / "said.json").read_text())["facts"]
    return found


def test_the_page_of_a_model_has_the_facts_of_the_json_and_loads_nothing(explained: Path) -> None:
    made = Outline((explained / "p.html").read_text())
    assert (made.open, made.loaded, made.scripts) == ([], [], [graph_picture.SCRIPT])
    found = facts(explained)
    assert len(found) >= 2
    boxes = made.with_attribute("data-at")
    assert [each["data-at"] for each in boxes] == [str(number) for number in range(len(found))]
    for each, box in zip(found, boxes, strict=True):
        figures = f"{nanoseconds(each['latency_ns'])}, {100 * each['share']:.1f} %"
        assert f"{each['name']}: {figures}" in made.texts
        assert box["aria-label"] == f"{each['name']}: {figures.replace(', ', ' · ')}"
        low, high = map(nanoseconds, each["interval_ns"])
        assert f"{nanoseconds(each['latency_ns'])} ({low} to {high}), {each['source']}" in made.texts
        assert each["trace"] in made.texts
        assert ", ".join(each["nodes"]) in made.texts
    assert HOSTILE in {node for each in found for node in each["nodes"]}


def test_edges_are_what_dispatches_read(explained: Path) -> None:
    made = Outline((explained / "p.html").read_text())
    drawn = {(each["data-from"], each["data-to"]) for each in made.with_attribute("data-from")}
    found = facts(explained)
    names = [each["name"] for each in found]
    inside = {(str(names.index(b)), str(n)) for n, each in enumerate(found) for b in each["after"]}
    assert inside <= drawn
    assert {"in0", "out0"} <= {end for edge in drawn for end in edge}
    reached = {to for _, to in drawn}
    assert reached >= {str(number) for number in range(len(found))}


def test_the_script_is_the_only_one_that_may_run(explained: Path) -> None:
    text = (explained / "p.html").read_text()
    assert re.search(r"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-[\w+/=]{44}'", text)
    assert not re.search(r"https?:|//[\w.]+/", text.replace("</", ""))


def test_an_annotated_model_is_valid_and_computes_the_same(explained: Path) -> None:
    made = onnx.load(explained / "o.onnx")
    onnx.checker.check_model(made, full_check=True)
    x = np.random.default_rng(1).standard_normal(SHAPE, np.float32)
    with (
        autotune.compile(explained / "model.onnx") as before,
        autotune.compile(explained / "o.onnx") as after,
    ):
        np.testing.assert_array_equal(before(x)[0], after(x)[0])
    plain = onnx.load(explained / "model.onnx")
    for node in made.graph.node:
        del node.metadata_props[:]
    del made.metadata_props[:]
    assert made == plain


def test_nodes_have_the_facts_of_their_dispatches(explained: Path) -> None:
    made, found = onnx.load(explained / "o.onnx"), facts(explained)
    for node in made.graph.node:
        said = {entry.key: entry.value for entry in node.metadata_props}
        own = [each for each in found if node.name in each["nodes"]]
        taken = nanoseconds(sum(each["latency_ns"] for each in own))
        assert said["autotune.facts.dispatch"] == ", ".join(each["name"] for each in own)
        assert said["autotune.facts.time"].startswith(f"{taken}, ")
        assert (
            said["autotune.facts.share"] == f"{100 * sum(each['share'] for each in own):.1f} % of the model"
        )
        assert said["autotune.facts.schedule"].startswith(own[0]["schedule"])


def test_facts_are_replaced_and_keys_of_others_stay(explained: Path, tmp_path: Path) -> None:
    made = onnx.load(explained / "o.onnx")
    made.graph.node[0].metadata_props.add(key="owner", value="somebody")
    onnx.save(made, tmp_path / "o.onnx")
    run("explain", tmp_path / "o.onnx", "--onnx", tmp_path / "again.onnx")
    again = onnx.load(tmp_path / "again.onnx").graph.node[0]
    assert sorted(entry.key for entry in again.metadata_props) == sorted(
        entry.key for entry in made.graph.node[0].metadata_props
    )


def test_weights_in_a_file_are_inside_of_a_copy_elsewhere(tmp_path: Path) -> None:
    path = model(tmp_path, outside=True)
    (tmp_path / "other").mkdir()
    for copy in (tmp_path / "copy.onnx", tmp_path / "other" / "copy.onnx"):
        run("explain", path, "--onnx", copy)
        onnx.checker.check_model(copy, full_check=True)
        (weights,) = onnx.load(copy, load_external_data=False).graph.initializer
        assert (weights.data_location == TensorProto.EXTERNAL) == (copy.parent == tmp_path)


@pytest.mark.parametrize("wanted", ["--html", "--onnx"])
def test_pictures_are_of_what_is_compiled_here(
    wanted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert command(["explain", str(model(tmp_path)), "--predict", wanted, str(out)]) == 2
    assert f"{wanted} shows a model that is compiled for it" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize("made", [on_cpu(), on_two_devices()])
def test_the_page_of_a_profile_has_its_figures_and_loads_nothing(made: Any) -> None:
    roofs = {step.device: ROOFS if step.device == "cpu" else None for step in made.steps}
    found: ModelProfile = profile_of(made, roofs)
    page = Outline(profile_page(found))
    assert (page.open, page.loaded, page.scripts) == ([], [], [])
    assert f"Median latency {nanoseconds(found.latency_ns)}" in page.texts
    for each in found.to_json()["dispatches"]:
        assert f"{each['name']} ({each['kind']})" in page.texts
        assert nanoseconds(each["time_ns"]) in page.texts
    assert sum(len(own) for _, own in layers(found)) == len(found.dispatches)
    dots = [each for each in page.attributes if each["tag"] == "circle"]
    assert len(dots) == sum(
        bool(each.gflops and each.nbytes and each.device == "cpu") for each in found.dispatches
    )


def test_a_page_of_a_profile_needs_a_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["run", "zoo:mlp", "--random", "--html", str(tmp_path / "p.html")]) == 2
    assert "--html is for --profile, which is not given" in capsys.readouterr().err


def test_notebooks_show_what_was_made_without_running_anything(explained: Path) -> None:
    with autotune.compile(explained / "model.onnx") as module:
        found = autotune.profile(module, [np.zeros(SHAPE, np.float32)], runs=1)
        shown = [module._repr_html_(), found._repr_html_()]
    x = autotune.te.placeholder((8,), name="x")
    y = autotune.te.compute((8,), lambda i: x[i], name="y")
    shown.append(autotune.te.create_schedule(y)._repr_html_())
    for text in shown:
        made = Outline(text)
        assert (made.open, made.loaded, made.scripts) == ([], [], [])
    assert HOSTILE in Outline(shown[1]).texts[0]
