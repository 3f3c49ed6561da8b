"""Programs of torch.export as models: what is told without PyTorch."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.errors import MissingExtraError, ModelImportError, UsageError
from autotune.frontends.onnx import importer as frontend
from autotune.frontends.torch_export import export_error, is_exported_program, to_onnx


def program(buffers: dict[str, str], inputs: dict[str, str]) -> Any:
    """Return what is read of an exported program, made without PyTorch."""
    kind = type("ExportedProgram", (SimpleNamespace,), {"__module__": "torch.export.exported_program"})
    signature = SimpleNamespace(buffers_to_mutate=buffers, user_inputs_to_mutate=inputs)
    return kind(graph_signature=signature)


def test_programs_are_known_by_their_type() -> None:
    assert is_exported_program(program({}, {}))
    assert not is_exported_program("model.onnx")
    with pytest.raises(UsageError) as caught:
        frontend.load(3.5)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "a model is a path, 'zoo:NAME', bytes, an onnx.ModelProto or a torch.export.ExportedProgram, not float"
    )


@pytest.mark.parametrize(("buffers", "inputs"), [({"add": "count"}, {}), ({}, {"add": "count"})])
def test_programs_with_state_are_refused(buffers: dict[str, str], inputs: dict[str, str]) -> None:
    with pytest.raises(ModelImportError, match="the exported program changes 'count' in place"):
        frontend.load(program(buffers, inputs))


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(MissingExtraError) as caught:
        to_onnx(program({}, {}))
    assert str(caught.value).endswith("pip install 'autotune-compiler[torch]'")


def test_the_innermost_reason_is_told() -> None:
    inner, outer = ValueError("no\n  such  operator"), RuntimeError("advice")
    outer.__cause__ = inner
    assert export_error(outer) == "ValueError: no such operator"
    assert export_error(ValueError("x" * 500)).endswith("x ...")
