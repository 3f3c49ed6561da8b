"""The backend of torch.compile, and exported programs as models; PyTorch takes part where it is installed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.errors import ModelImportError, UsageError
from autotune.pytorch import Subgraph, backend, report
from autotune.pytorch.tensors import array_of, tensor_of

torch = pytest.importorskip("torch", reason="CI does not install PyTorch: it is 190 MB")
pytest.importorskip("onnxscript", reason="PyTorch's exporter needs it")

LOGGER = "autotune.pytorch"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def model() -> Any:
    nn = torch.nn
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU()).eval()


def compiled(function: Any, **options: Any) -> Any:
    return torch.compile(function, backend=backend, options={"threads": 1, **options})


def last() -> Subgraph:
    return report()[-1]


def test_a_model_runs_compiled_and_its_weights_may_change() -> None:
    net = model()
    fast = compiled(net)
    x = torch.randn(4, 8)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(fast(x), net(x))
        found = last()
        assert (found.reason, found.operators, found.dispatches, found.made) == ("", 3, 1, 1)
        assert found.error < 1e-6
        net[0].weight.mul_(-2.0)
        for _ in range(2):
            torch.testing.assert_close(fast(x), net(x))
    assert (last().reason, last().made) == ("", 2)


def multiply_data(weight: Any) -> None:
    weight.data.mul_(3.0)


def replace_data(weight: Any) -> None:
    weight.data = weight.data * 3.0


def write_one_through_numpy(weight: Any) -> None:
    weight.detach().numpy()[-1, -1] += 3.0


@pytest.mark.parametrize("inlined", [True, False])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    "write", [multiply_data, replace_data, write_one_through_numpy], ids=lambda each: each.__name__
)
def test_writes_that_pytorch_does_not_count_are_noticed(write: Any, transposed: bool, inlined: bool) -> None:
    net = model()
    if transposed:  # dense, but not in the order of its axes
        net[0].weight.data = net[0].weight.data.t().contiguous().t()
    x = torch.randn(4, 8)
    with torch._dynamo.config.patch(inline_inbuilt_nn_modules=inlined), torch.no_grad():
        fast = compiled(net)
        fast(x)
        write(net[0].weight)
        for _ in range(2):
            torch.testing.assert_close(fast(x), net(x))
    assert (last().reason, last().made) == ("", 2)


def test_weights_said_to_be_fixed_are_not_hashed() -> None:
    net = model()
    fast = compiled(net, weights="fixed")
    x = torch.randn(4, 8)
    with torch.no_grad():
        before = fast(x)
        net[0].weight.detach().numpy()[:] *= 3.0
        torch.testing.assert_close(fast(x), before)
        net[0].weight.data = net[0].weight.data.clone()
        torch.testing.assert_close(fast(x), net(x))


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_in_a_bucket_are_compiled_once(dynamic: bool | None) -> None:
    net = model()
    fast = torch.compile(net, backend=backend, dynamic=dynamic, options={"threads": 1})
    with torch.inference_mode():
        for rows in (4, 9, 10, 9, 10, 13, 24, 22, 21):
            x = torch.randn(rows, 8)
            torch.testing.assert_close(fast(x), net(x))
    assert last().shapes_vary
    ends = [next(iter(program.buckets.values())).most for program in last().programs]
    assert (last().reason, last().exact, ends[-3:]) == ("", frozenset(), [10, 14, 24])


def test_buckets_are_coarser_where_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.pytorch.subgraph._FINE_PROGRAMS", 1)
    net = model()
    fast = torch.compile(net, backend=backend, dynamic=True, options={"threads": 1})
    with torch.inference_mode():
        for rows in (10, 10, 13, 16):
            x = torch.randn(rows, 8)
            torch.testing.assert_close(fast(x), net(x))
    assert [each.most for program in last().programs for each in program.buckets.values()] == [10, 16]


def test_sizes_that_guards_allow_are_the_steps_of_a_bucket() -> None:
    def halved(x: Any) -> Any:
        half = torch.nn.functional.max_pool2d(x, 2)
        return torch.cat([x, torch.nn.functional.interpolate(half, scale_factor=2)], 1)

    fast = torch.compile(halved, backend=backend, dynamic=True, options={"threads": 1})
    for height in (22, 24, 28):
        x = torch.randn(1, 3, height, 8)
        torch.testing.assert_close(fast(x), halved(x))
    texts = {bucket.text for program in last().programs for bucket in program.buckets.values()}
    assert (last().reason, texts) == ("", {"3", "8", "22..24:+2:24", "26..28:+2:28"})


def test_sizes_whose_padding_cannot_be_masked_are_compiled_exactly() -> None:
    def repeated(x: Any) -> Any:
        return x.repeat(1, 3).cumsum(1), x.shape[0] * 2

    fast = torch.compile(repeated, backend=backend, dynamic=True, options={"threads": 1})
    for columns in (5, 6, 5):
        x = torch.randn(4, columns)
        for _ in range(2):
            found, number = fast(x)
            torch.testing.assert_close(found, repeated(x)[0])
            assert number == 8
    assert (last().reason, len(last().programs)) == ("", 2)


def test_flex_attention_is_compiled() -> None:
    flex = pytest.importorskip("torch.nn.attention.flex_attention")

    def attention(x: Any) -> Any:
        return flex.flex_attention(x, x, x, score_mod=lambda score, b, h, i, j: score - 0.5 * (i - j).abs())

    fast = torch.compile(attention, backend=backend, dynamic=True, options={"threads": 1})
    for length in (9, 10):
        x = torch.randn(2, 3, length, 8)
        torch.testing.assert_close(fast(x), attention(x))
    assert (last().reason, len(last().programs)) == ("", 1)


def test_autocast_is_compiled() -> None:
    net = model()

    def cast(x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return net(x)

    fast = compiled(cast)
    with torch.inference_mode():
        for _ in range(2):
            x = torch.randn(4, 8)
            torch.testing.assert_close(fast(x), cast(x), rtol=2e-2, atol=2e-2)
    assert last().reason == ""


def test_views_and_numbers_follow_the_sizes() -> None:
    fast = torch.compile(
        lambda x: (x[1:].t(), x.shape[0] + 1, x * 2.0), backend=backend, dynamic=True, options={"threads": 1}
    )
    for rows in (5, 6, 9):
        x = torch.randn(rows, 4)
        for _ in range(2):
            view, number, doubled = fast(x)
            assert view.data_ptr() == x[1:].data_ptr()
            torch.testing.assert_close(view, x[1:].t())
            torch.testing.assert_close(doubled, x * 2.0)
            assert number == rows + 1


def test_results_that_are_views_of_inputs_stay_views() -> None:
    fast = compiled(lambda x: (x[1:].t(), x.sin().bfloat16(), 3))
    x = torch.randn(3, 4)
    for _ in range(2):
        view, values, number = fast(x)
        assert view.data_ptr() == x[1:].data_ptr()
        assert view.stride() == (1, 4)
        torch.testing.assert_close(values, x.sin().bfloat16())
        assert number == 3
    assert last().reason == ""


def test_a_graph_break_makes_two_subgraphs(capsys: pytest.CaptureFixture[str]) -> None:
    before = len(report())

    def broken(x: Any) -> Any:
        y = x * 2.0
        print("here")
        return torch.tanh(y) + 1.0

    fast = compiled(broken)
    x = torch.randn(5)
    for _ in range(2):
        torch.testing.assert_close(fast(x), torch.tanh(x * 2.0) + 1.0)
    assert capsys.readouterr().out == "here\n" * 2
    assert [each.reason for each in report()[before:]] == ["", ""]


def in_place(x: Any) -> Any:
    x[0] = 1.0
    return x + 1.0


def unknown(x: Any) -> Any:
    return torch.linalg.inv(x)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (in_place, "it writes to its input 0"),
        (unknown, "PyTorch's exporter cannot write the program as ONNX: "),
    ],
)
def test_what_cannot_be_compiled_is_pytorchs_and_it_says_so(
    function: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    fast = compiled(function)
    with caplog.at_level(logging.WARNING, LOGGER):
        for _ in range(2):
            x = torch.eye(4) + 0.5
            torch.testing.assert_close(fast(x.clone()), function(x.clone()))
    (record,) = caplog.records
    number, operators = last().number, last().operators
    assert record.getMessage().startswith(
        f"subgraph {number} ({operators} operators) is run by PyTorch, not compiled: {reason}"
    )
    assert last().reason.startswith(reason)


def test_training_is_pytorchs(caplog: pytest.LogCaptureFixture) -> None:
    net = model()
    fast = compiled(net)
    with caplog.at_level(logging.WARNING, LOGGER):
        fast(torch.randn(4, 8)).sum().backward()
    assert net[0].weight.grad is not None
    assert last().reason == (
        "it is traced for training; call the model within torch.no_grad() or torch.inference_mode()"
    )


def test_wrong_results_are_noticed(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    from autotune.pytorch import program

    monkeypatch.setattr(program, "tensor_of", lambda array: tensor_of(array) + 1.0)
    fast = compiled(lambda x: x * 2.0)
    x = torch.ones(3)
    with caplog.at_level(logging.WARNING, LOGGER):
        torch.testing.assert_close(fast(x), x * 2.0)
    assert last().reason == (
        "result 0 is 5.0e-01 from PyTorch's, relative to the largest value; allowed are 0.001"
    )
    torch.testing.assert_close(fast(x), x * 2.0)


def test_options_are_those_of_compile() -> None:
    with pytest.raises(UsageError) as caught:
        backend(None, [], options={"thread": 1})
    assert str(caught.value).startswith("the backend has no option 'thread'; options: database, ")
    assert str(caught.value).endswith("did you mean 'threads'?")
    with pytest.raises(UsageError) as caught:
        backend(None, [], options={"weights": "old"})
    assert str(caught.value) == "weights='old' is none of 'hashed', 'fixed'"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
def test_tensors_and_arrays_share_memory(dtype: str) -> None:
    tensor = torch.ones(3, 4, dtype=getattr(torch, dtype))
    array = array_of(tensor)
    assert str(array.dtype) == dtype
    back = tensor_of(array)
    assert (back.dtype, back.data_ptr()) == (tensor.dtype, tensor.data_ptr())
    turned = array_of(tensor.t())
    assert turned.shape == (4, 3)
    assert turned.flags.c_contiguous


def test_an_exported_program_is_a_model_and_tensors_are_read_and_written_in_place() -> None:
    net = model()
    x = torch.randn(4, 8)
    with autotune.compile(torch.export.export(net, (x,)), threads=1) as module:
        out = torch.zeros(4, 16)
        (found,) = module(x, out=[out])
    with torch.no_grad():
        torch.testing.assert_close(out, net(x))
    assert found is out


def test_an_exported_program_has_the_names_and_ranges_of_its_sizes(tmp_path: Path) -> None:
    batch = torch.export.Dim("batch", min=1, max=4)
    net = model()
    program = torch.export.export(net, (torch.randn(2, 8),), dynamic_shapes=({0: batch},))
    autotune.compile(program, threads=1).save(tmp_path / "model.atm")
    with autotune.load(tmp_path / "model.atm") as module:
        assert module.sizes == {"batch": [1, 2, 4]}
        x = torch.randn(3, 8)
        with torch.no_grad():
            torch.testing.assert_close(torch.from_numpy(module(x)[0]), net(x))
    with autotune.compile(program, shapes={"batch": 3}, threads=1) as module:
        assert module.inputs[0].shape == (3, 8)


def test_multiples_of_a_size_are_a_range_with_a_step() -> None:
    side = torch.export.Dim("_side", min=2, max=4)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, stride=2, padding=1), torch.nn.Upsample(scale_factor=2.0)
    ).eval()
    program = torch.export.export(net, (torch.randn(1, 3, 8, 8),), dynamic_shapes=({2: 4 * side},))
    with autotune.compile(program, threads=1) as module:
        assert module.compiled.inputs[0].axes == ("1", "3", "_side", "8")
        assert module.sizes["_side"][-1] == 16
        for extent in (8, 12, 16):
            x = torch.randn(1, 3, extent, 8)
            with torch.no_grad():
                torch.testing.assert_close(torch.from_numpy(module(x)[0]), net(x))


def test_a_file_of_a_program_is_not_read(tmp_path: Path) -> None:
    torch.export.save(torch.export.export(model(), (torch.randn(2, 8),)), tmp_path / "model.pt2")
    with pytest.raises(ModelImportError, match=r"is a program of torch\.export, not an ONNX model"):
        autotune.compile(tmp_path / "model.pt2")


def test_an_exported_program_with_state_is_refused() -> None:
    class Counter(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: Any) -> Any:
            self.count += 1.0
            return x + self.count

    program = torch.export.export(Counter(), (torch.randn(3),)).run_decompositions()
    with pytest.raises(ModelImportError) as caught:
        autotune.compile(program)
    assert str(caught.value) == (
        "the exported program changes 'count' in place\n"
        "  what is compiled has no state: return the new value instead"
    )


def test_the_entry_point_names_the_backend() -> None:
    import tomllib
    from importlib.metadata import EntryPoint

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    group = "torch_dynamo_backends"
    ((name, value),) = project["project"]["entry-points"][group].items()
    assert name == "autotune"
    assert EntryPoint(name, value, group).load() is backend


def test_numbers_that_are_not_finite_may_be_the_same() -> None:
    fast = compiled(lambda x: torch.log(x))
    x = torch.tensor([0.0, -1.0, 2.0])
    for _ in range(2):
        np.testing.assert_array_equal(fast(x).isnan().numpy(), [False, True, False])
    assert last().reason == ""
