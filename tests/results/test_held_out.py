"""Held-out architectures: what becomes of exported models, and the table. PyTorch takes part where it is installed."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from autotune.bench.experiment import Record, frame_of
from autotune.bench.side_by_side import Pace
from autotune.bench.tables import Table
from autotune.errors import MissingExtraError, UsageError
from autotune.frontends.onnx import importer
from results.bench.held_out import measure
from results.bench.held_out.architectures import ARCHITECTURES, EXPORTERS, WRITTEN, Architecture
from results.bench.held_out.compiling import Compiled
from results.bench.held_out.experiment import EXPERIMENT, record_of

PACE = Pace(rounds=1, processes=1, turn_s=0.001, rest_s=0.0)


def exported(folder: Path, op: str) -> Path:
    """A model of one operator, as if an exporter had written it; ``input_0`` was read by nothing."""
    folder.mkdir(parents=True)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(op, ["input_1"], ["y"], domain="" if op == "Relu" else "elsewhere")],
        "g",
        [value("input_1", TensorProto.FLOAT, [2, 3])],
        [value("y", TensorProto.FLOAT, [2, 3])],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("elsewhere", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports), folder / "model.onnx")
    np.save(folder / "1.npy", np.ones((2, 3), np.float32))
    return folder


def test_a_model_is_compiled_and_timed_and_another_refused(tmp_path: Path) -> None:
    exported(tmp_path / "one-dynamo", "Relu")
    exported(tmp_path / "one-torchscript", "Mystery")
    said: list[str] = []
    architecture = Architecture("one", "test", "nowhere:nothing")
    good, bad = measure.measure([architecture], EXPORTERS, tmp_path, None, 1, PACE, said.append)
    assert said == ["one by dynamo", "one by torchscript"]
    assert good.failure == ""
    assert good.compiled is not None
    assert good.compiled.dispatches == 1
    assert good.compiled.seconds > 0
    assert good.compiled.peak_bytes > 10 << 20
    assert (good.ours_ns or 0) > 0
    assert (good.error, good.ratio, good.right) == (None, None, False)
    assert bad.failure.startswith("compile: UnsupportedOpError: ")
    assert "Mystery" in bad.failure
    assert str(tmp_path) not in bad.failure


SMALL = (("forest", (3, 2, 4)), ("lstm", (5, 2)))


@pytest.mark.parametrize(("name", "arguments"), SMALL)
def test_what_is_written_needs_no_exporter(tmp_path: Path, name: str, arguments: tuple[int, ...]) -> None:
    from results.bench.held_out.export import write

    architecture = Architecture(name, "test", f"{WRITTEN}:{name}", arguments)
    assert tuple(architecture.exporters(EXPORTERS)) == (WRITTEN,)
    write(architecture, tmp_path)
    graph = importer.load(str(tmp_path / "model.onnx"))
    for value in graph.inputs:
        given, known = np.load(tmp_path / f"{value}.npy"), graph.type_of(value)
        assert (given.shape, str(given.dtype)) == (known.shape, known.dtype)


def test_what_an_exporter_dies_of_is_the_outcome(tmp_path: Path) -> None:
    architecture = Architecture("nobody", "test", "nowhere:nothing")
    (outcome,) = measure.measure([architecture], ["dynamo"], tmp_path, None, 1, PACE, lambda _: None)
    assert outcome.failure.startswith("export: ")
    assert outcome.compiled is None


def tables(outcomes: Sequence[measure.Outcome]) -> Sequence[Table]:
    return EXPERIMENT.tables(frame_of([record_of(outcome, 2) for outcome in outcomes]))


def test_the_table_counts_what_is_right() -> None:
    done = Compiled(1.25, 300 << 20, 1 << 20, 4 << 20, 7)
    outcomes = [
        measure.Outcome("a", "vision", "dynamo", done, 1e-6, 2e6, 4e6),
        measure.Outcome("b", "vision", "dynamo", done, 1e-6, 4e6, 2e6),
        measure.Outcome("c", "speech", "dynamo", done, 0.5, 1e6, 1e6),
        measure.Outcome(
            "d", "speech", "dynamo", failure="compile: Error: no\n  such thing\n  supported: all"
        ),
    ]
    table, failures = tables(outcomes)
    assert table.rows[0] == (
        "a, dynamo",
        "vision",
        "yes",
        "1.0e-06",
        "1.2 s",
        "300 MiB",
        "1.00 MiB",
        "4.0 MiB",
        "7",
        "2.00 ms",
        "4.00 ms",
        "0.50",
    )
    assert [row[2] for row in table.rows] == ["yes", "yes", "WRONG", "no: see below"]
    assert table.notes[0].startswith("right: 2 of 4; at most 0.0001 from the peer")
    assert "those that are right: 1.00; slower than 1.1: b, dynamo" in table.notes[1]
    assert failures.rows == (("d, dynamo", "compile: Error: no such thing"),)


def test_where_both_are_apart_the_distance_to_float64_decides() -> None:
    done = Compiled(1.0, 1 << 20, 0, 0, 1)
    near = measure.Outcome("near", "vision", "dynamo", done, 2e-4, 1e6, 2e6, "", 0.0, 8e-5, 1.2e-4)
    far = measure.Outcome("far", "vision", "dynamo", done, 2e-4, 1e6, 2e6, "", None, 3e-4, 1e-6)
    assert (near.right, far.right) == (True, False)
    (table,) = tables([near, far])
    assert [row[2] for row in table.rows] == ["yes", "WRONG"]
    assert table.notes[3:] == (
        "near, dynamo: compiled with a tolerance of 0",
        "near, dynamo: 2.0e-04 from the peer; from the model in float64, by PyTorch, autotune is 8.0e-05 and the peer "
        "1.2e-04",
        "far, dynamo: 2.0e-04 from the peer; from the model in float64, by PyTorch, autotune is 3.0e-04 and the peer "
        "1.0e-06",
    )


@pytest.mark.skipif(
    any(find_spec(module) is None for module in measure._MODULES), reason="needs the extra held-out"
)
def test_an_architecture_in_float64() -> None:
    from results.bench.held_out.exact import outputs

    (found,) = outputs(next(each for each in ARCHITECTURES if each.name == "lstm"))
    assert found.dtype == np.float64
    assert found.shape == (1, 48, 32)


def test_names_are_checked() -> None:
    measure.check_names(["unet", "lstm"])
    with pytest.raises(UsageError, match=r"^unknown architecture 'unett'; there are: .*unet"):
        measure.check_names(["unett"])


def test_without_pytorch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_MODULES", ("no_such_package",))
    with pytest.raises(MissingExtraError) as caught:
        measure.chosen([])
    assert str(caught.value) == (
        "architectures are exported by no_such_package: pip install 'autotune-compiler[held-out]'"
    )


def test_names_of_architectures_are_unique() -> None:
    assert len({each.name for each in ARCHITECTURES}) == len(ARCHITECTURES) >= 15
    assert len({each.family for each in ARCHITECTURES}) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("name", ["graph_network", "lstm", "vae_decoder"])
def test_builders_build(name: str) -> None:
    for module in measure._MODULES:
        pytest.importorskip(module)
    from results.bench.held_out.export import build

    model, inputs = build(next(each for each in ARCHITECTURES if each.name == name))
    assert model(*inputs) is not None


def test_the_table_of_torch_compile() -> None:
    from results.bench import torch_compile

    times = {"eager": (4e6, None), "inductor": (2e6, 60.2), "autotune": (1e6, 9.8)}
    records: list[Record] = [
        {"model": "a", "threads": 2, "way": way, "min_ns": ns, "ready_s": s, "error": 2e-7, "failure": None}
        for way, (ns, s) in times.items()
    ]
    why = "RuntimeError: 1 of 1 graphs\n  left"
    records.append({"model": "b", "threads": 2, "way": "eager", "min_ns": 4e6, "failure": None})
    records.append({"model": "b", "threads": 2, "way": "autotune", "failure": why})
    (table,) = torch_compile.EXPERIMENT.tables(frame_of(records))
    assert table.rows[0] == ("a", "4.00 ms", "2.00 ms", "1.00 ms", "0.50", "0.25", "2.0e-07", "60 s", "10 s")
    assert table.rows[1] == ("b", "4.00 ms", "–", "–", "–", "–", "–", "–", "–")
    assert table.rows[2][4:6] == ("0.50", "0.25")
    assert table.notes[-1] == "b, autotune: RuntimeError: 1 of 1 graphs left"
