"""Models as text files: they read back as they were written, and what is wrong with one is said."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path

import numpy as np
import pytest

import autotune
from autotune.compiler import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.errors import ModelImportError, UsageError
from autotune.frontends.models import load, open_shapes, read_model
from autotune.graph import Graph, TensorType
from autotune.graph.text_file import file_text, write_file
from autotune.passes.pipeline import run_passes, standard_passes
from autotune.runtime.module import Module
from tests.compiler import fuzz
from tests.graph.graphs import small_convnet

OPEN = """\
# sizes have names
graph open {
  input x: float32[batch, 3]
  input y: float32[batch, seq]
  const w: float32[3] = [0.5, -1.0, 2.5]
  z = Mul(x, w) : float32[batch, 3]
  t = Concat(z, z) {axis=1} : float32[batch, 6]
  r = Reshape(t) {shape=[2*batch, 3]}
  c = Concat(x, y) {axis=1} : float32[batch, seq+3]
  output r, c
}
"""


def same(found: Graph, wanted: Graph) -> None:
    assert (found.name, found.inputs, found.outputs, found.nodes, found.counted, found.affinity) == (
        wanted.name,
        wanted.inputs,
        wanted.outputs,
        wanted.nodes,
        wanted.counted,
        wanted.affinity,
    )
    assert dict(found.types) == dict(wanted.types)
    assert list(found.constants) == list(wanted.constants)
    for name, array in wanted.constants.items():
        assert found.constants[name].dtype == array.dtype
        assert found.constants[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs_read_back(seed: int, tmp_path: Path) -> None:
    graph = fuzz.problem(seed).drawn.graph
    write_file(graph, tmp_path / "model.txt")
    back = load(tmp_path / "model.txt")
    assert file_text(back, "model.npz") == file_text(graph, "model.npz")
    if not any(node.op == "Loop" for node in graph.nodes):  # whose bodies may get other names
        same(back, graph)


def test_devices_counted_outputs_narrow_types_and_nan_read_back(tmp_path: Path) -> None:
    text = """\
graph several on cpu:0 {
  input x: float32[4] on cpu:1
  const w: float32[4] = [1.0, -0.0, inf, 1e-45]
  const b: bool[2] = [True, False]
  const big: uint64[1] = [18446744073709551615]
  y = Add(x, w) : float32[4] on cpu:1
  p, n = NonZero(y) : int64[1, 4], int64[1]
  k = Not(b) : bool[2]
  u = Identity(big) : uint64[1]
  output p counted[1, n], n, k on cpu:0, u
}
"""
    (tmp_path / "a.txt").write_text(text)
    graph = load(tmp_path / "a.txt")
    assert graph.counted == ((0, 1, 1),)
    assert graph.affinity.inputs == {"x": "cpu:1"}
    narrow = np.arange(12).astype("float8_e4m3fn")
    nan = np.frombuffer(b"\x01\x00\xc0\x7f" * 2, np.float32)
    types = dict(graph.types)
    types |= {"narrow": TensorType.of(narrow), "nan": TensorType.of(nan)}
    more = graph.replace(
        constants={**graph.constants, "narrow": narrow, "nan": nan},
        types=types,
        outputs=(*graph.outputs, "narrow", "nan"),
    )
    write_file(more, tmp_path / "b.txt")
    same(load(tmp_path / "b.txt"), more)


def test_a_model_compiles_from_its_text_and_from_that_of_every_pass(tmp_path: Path, monkeypatch) -> None:
    graph = small_convnet()
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    with Module(compile_in_detail(CompileRequest(graph)).image) as module:
        (wanted,) = module(x)
    monkeypatch.setenv("AUTOTUNE_DUMP", str(tmp_path))
    run_passes(graph, standard_passes())
    monkeypatch.delenv("AUTOTUNE_DUMP")
    texts = {path.read_text(): path for path in sorted((tmp_path / "small_convnet").glob("*.txt"))}
    assert len(texts) > 3
    for path in texts.values():
        (found,) = autotune.compile(str(path))(x)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6, err_msg=path.name)


def test_sizes_may_be_open() -> None:
    text = OPEN.encode()
    model = read_model(text)
    assert open_shapes(model) == {"x": ["batch", 3], "y": ["batch", "seq"]}
    with pytest.raises(ModelImportError, match="has dynamic shapes; compiling needs fixed sizes"):
        load(text, shapes={"x": (2, 3)})
    graph = load(text, shapes={"x": (2, 3), "y": (2, 5)})
    assert [graph.types[v].shape for v in graph.outputs] == [(4, 3), (2, 8)]
    with pytest.raises(
        UsageError, match=r"'batch' of .* is given as 2 by the shape of 'x' and 4 by the shape of 'y'"
    ):
        load(text, shapes={"x": (2, 3), "y": (4, 5)})
    sized = autotune.compile_for_sizes(text, {"batch": "1..4", "seq": "2"})
    x, y = np.ones((3, 3), np.float32), np.zeros((3, 2), np.float32)
    assert [array.shape for array in sized.run({"x": x, "y": y}).values()] == [(6, 3), (3, 5)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("y = Relu(x) : float32[batch]", "no input has the size 'batch'"),
        ("y = Relu(x) : float32[2 2]", "line 4, column 27: expected ',', found '2'"),
        ("y = Relu(x) : float32[3]", "output 'y' is declared float32[3], inferred float32[2]"),
        ("y = Relu(z) : float32[2]", "node 'y' (Relu): input 'z' is not defined"),
        ("y = Frobnicate(x) : float32[2]", "Frobnicate"),
        (
            "y = Loop(x) {body=@step, trips=2} : float32[2]",
            "there is no function 'step' in the file; there are: none",
        ),
        ("const y: float32[2]", "constant 'y' (float32[2]) has no value"),
        ("const y: float32[2] = [1.0]", "constant 'y' (float32[2]) has 1 elements, its type has 2"),
        ("const y: int8[1] = [300]", "is no element of it"),
        ("const y: float32[2] = data abc", "the folder of the text itself"),
        ("output y counted[0, k]", "'k' is counted or counts, and is no output"),
    ],
)
def test_what_is_wrong_is_said(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    path.write_text(
        f'constants "../other.npz"\ngraph g {{\n  input x: float32[2]\n  {line}\n  output y\n}}\n'
    )
    with pytest.raises(ModelImportError) as caught:
        load(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)


def test_constants_are_checked(tmp_path: Path) -> None:
    write_file(small_convnet(), tmp_path / "model.txt")
    data = tmp_path / "model.npz"
    with zipfile.ZipFile(data) as archive:
        held = {name: bytearray(archive.read(name)) for name in archive.namelist()}
    largest = max(held, key=lambda name: len(held[name]))
    held[largest][-1] ^= 1
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in held.items():
            archive.writestr(name, bytes(content))
    with pytest.raises(ModelImportError, match="are not those that the text was written with"):
        load(tmp_path / "model.txt")
    data.write_bytes(b"no archive")
    with pytest.raises(ModelImportError, match="is damaged"):
        load(tmp_path / "model.txt")
    data.unlink()
    with pytest.raises(ModelImportError, match="which is not there\n  copy it there"):
        load(tmp_path / "model.txt")


def test_damaged_texts_are_refused_or_graphs(tmp_path: Path) -> None:
    write_file(small_convnet(), tmp_path / "model.txt")
    text = (tmp_path / "model.txt").read_bytes()
    rng = random.Random(0)
    for _ in range(150):
        at, cut = rng.randrange(len(text)), rng.randrange(30)
        put = bytes(rng.randrange(32, 127) for _ in range(rng.randrange(4)))
        (tmp_path / "damaged.txt").write_bytes(text[:at] + put + text[at + cut :])
        try:
            assert isinstance(load(tmp_path / "damaged.txt"), Graph)
        except ModelImportError:
            continue


def test_text_and_constants_are_two_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the constants would be written over the text"):
        write_file(small_convnet(), tmp_path / "model.npz")
