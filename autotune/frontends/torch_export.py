"""Programs of ``torch.export`` as ONNX models, by PyTorch's own exporter.

It holds more models than a translation of ATen's operators of our own would: what it writes is what is imported.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from typing import Any

from autotune.distribution import install
from autotune.errors import MissingExtraError, ModelImportError

EXPORTED = "exported program"
_OPSET = 18
"""A program as PyTorch's exporter writes it without converting it afterwards."""
_SHOWN = 400


def is_exported_program(model: object) -> bool:
    """Return whether it is a ``torch.export.ExportedProgram``; PyTorch is not imported to find out."""
    kind = type(model)
    return kind.__name__ == "ExportedProgram" and kind.__module__.split(".")[0] == "torch"


def to_onnx(program: Any, *, names: list[str] | None = None) -> Any:
    """Return the ``onnx.ModelProto`` of a program; ``names`` are those of its inputs.

    Raises MissingExtraError without onnxscript, ModelImportError for a program that changes what it is given (a buffer
    or an input), or that PyTorch's exporter cannot write, with its reason.
    """
    _check_pure(program)
    try:
        import onnxscript  # noqa: F401 - torch.onnx needs it
    except ImportError as error:
        raise MissingExtraError(
            f"PyTorch exports programs by onnxscript ({error}): {install('torch')}"
        ) from error
    import torch

    try:
        with _quiet():
            written = torch.onnx.export(
                program, dynamo=True, opset_version=_OPSET, input_names=names, verbose=False
            )
    except Exception as error:  # what PyTorch's exporter raises is of many kinds
        raise ModelImportError(
            f"PyTorch's exporter cannot write the program as ONNX: {export_error(error)}"
        ) from error
    return written.model_proto


def _check_pure(program: Any) -> None:
    signature = program.graph_signature
    changed = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    if changed:
        raise ModelImportError(
            f"the exported program changes {changed[0]!r} in place\n"
            "  what is compiled has no state: return the new value instead"
        )


def export_error(error: BaseException) -> str:
    """Return the innermost cause on one line: the exporter wraps it in advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:_SHOWN]}{' ...' if len(text) > _SHOWN else ''}"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's progress and its warnings: what matters is raised."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


__all__ = ["EXPORTED", "export_error", "is_exported_program", "to_onnx"]
