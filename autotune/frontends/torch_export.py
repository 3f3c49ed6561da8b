"""Programs of ``torch.export`` as ONNX models, by PyTorch's own exporter.

It holds more models than a translation of ATen's operators of our own would: what it writes is what is imported.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from autotune.distribution import install
from autotune.errors import MissingExtraError, ModelImportError

EXPORTED = "exported program"
_OPSET = 18
"""A program as PyTorch's exporter writes it without converting it afterwards."""
_SHOWN = 400
_SYMBOL = re.compile(r"[A-Za-z_]\w*")
_NO_END = 1 << 30
"""Ends from here on say that there is none."""


def is_exported_program(model: object) -> bool:
    """Return whether it is a ``torch.export.ExportedProgram``; PyTorch is not imported to find out."""
    kind = type(model)
    return kind.__name__ == "ExportedProgram" and kind.__module__.split(".")[0] == "torch"


def to_onnx(program: Any, *, names: list[str] | None = None) -> Any:
    """Return the ``onnx.ModelProto`` of a program; ``names`` are those of its inputs.

    Its open sizes are called as the program's ``Dim`` are.

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
                program,
                dynamo=True,
                opset_version=_OPSET,
                input_names=names,
                verbose=False,
                optimize=not _has_autocast(program),
            )
    except Exception as error:  # what PyTorch's exporter raises is of many kinds
        raise ModelImportError(
            f"PyTorch's exporter cannot write the program as ONNX: {export_error(error)}"
        ) from error
    proto = written.model_proto  # a new one each time
    _name_multiples(proto, {f"{step}*{symbol}": symbol for symbol, step in _steps(program).items()})
    _rename_sizes(proto, _dimension_names(program))
    return proto


def _has_autocast(program: Any) -> bool:
    """Return whether a program changes dtypes by autocast: the exporter's optimizer folds batch norms into products of
    another dtype, which is no ONNX."""
    return any("autocast" in str(node.target) for node in program.graph.nodes)


def declared_ranges(program: Any) -> dict[str, str]:
    """Return the ranges of a program's open sizes, by the names of its ``Dim``, as ``batch=1..8`` has them; those of
    multiples, ``32*_height``, as ``_height=320..1280:+32``.

    Sizes without an end are left out: PyTorch says none of them, so none can be compiled for.
    """
    names, steps = _dimension_names(program), _steps(program)
    ends = {str(symbol): found for symbol, found in program.range_constraints.items()}
    return {
        names.get(symbol, symbol): _range_text(found, steps.get(symbol, 1))
        for symbol, found in ends.items()
        if getattr(found.upper, "is_Integer", False) and int(found.upper) < _NO_END
    }


def _range_text(found: Any, step: int) -> str:
    text = f"{step * max(int(found.lower), 1)}..{step * int(found.upper)}"
    return text if step == 1 else f"{text}:+{step}"


def _dimension_names(program: Any) -> dict[str, str]:
    """Return the name of the ``Dim`` of each symbol; that of multiples is a source by itself. Programs that were saved
    and loaded have lost them."""
    found = (
        (str(symbol), env.source_name_to_debug_name.get(source.name) or source.name)
        for env in {
            id(each): each for each in map(_environment, _inputs(program)) if each is not None
        }.values()
        for symbol, sources in env.var_to_sources.items()
        for source in sources
    )
    return {symbol: name for symbol, name in found if name.isidentifier()}


def _steps(program: Any) -> dict[str, int]:
    """Return the symbols of which inputs have one multiple and nothing else, and that number."""
    extents = [
        each.node.expr for value in _inputs(program) for each in getattr(value, "shape", ()) if _is_open(each)
    ]
    found = dict[str, set[int]]()
    for extent in extents:
        step, rest = extent.as_coeff_Mul()
        for symbol in extent.free_symbols:
            found.setdefault(str(symbol), set()).add(int(step) if rest == symbol and step.is_Integer else 1)
    return {symbol: min(steps) for symbol, steps in found.items() if len(steps) == 1 and min(steps) > 1}


def _is_open(extent: Any) -> bool:
    return bool(getattr(getattr(getattr(extent, "node", None), "expr", None), "free_symbols", ()))


def _inputs(program: Any) -> list[Any]:
    """Return the values of a program's arguments as it knows them."""
    return [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"]


def _environment(value: Any) -> Any:
    """Return what knows the symbols of a fake tensor."""
    return getattr(getattr(value, "fake_mode", None), "shape_env", None)


def _name_multiples(proto: Any, names: Mapping[str, str]) -> None:
    """Call extents of inputs by names, and leave those of outputs open that are said by such a multiple's symbol."""
    for value in proto.graph.input:
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param in names:
                dimension.dim_param = names[dimension.dim_param]
    for value in proto.graph.output:
        for dimension in value.type.tensor_type.shape.dim:
            if {*_SYMBOL.findall(dimension.dim_param)} & {*names.values()}:
                dimension.ClearField("dim_param")


def _rename_sizes(proto: Any, names: Mapping[str, str]) -> None:
    """Write the names of sizes in place of symbols, also in sums (``s31 + 1``)."""
    for value in (*proto.graph.input, *proto.graph.output):
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.HasField("dim_param"):
                text = _SYMBOL.sub(lambda found: names.get(found[0], found[0]), dimension.dim_param)
                dimension.dim_param = text


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


__all__ = ["EXPORTED", "declared_ranges", "export_error", "is_exported_program", "to_onnx"]
