"""Models compiled within an error budget: the precision of each product is chosen, and the error is measured."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from autotune.compiler.request import CompileOptions, CompileRequest, keywords_of
from autotune.errors import UsageError
from autotune.frontends.models import load, read_model
from autotune.frontends.onnx.read import LoadedModel
from autotune.graph.ir import Array, Graph
from autotune.quantization.front import PrecisionPoint, faster, stored_points
from autotune.quantization.judged import WithinBudget
from autotune.quantization.precision import Precisions
from autotune.quantization.quantize import has_products
from autotune.quantization.within import chosen_within
from autotune.runtime.compiled import Compiled
from autotune.tuning import api
from autotune.tuning.compiling import CompiledRequest, compile_request
from autotune.tuning.measure.error_budget import NOTED, Accuracy
from autotune.tuning.measure.samples import RANDOM_SETS, random_samples, read_samples

if TYPE_CHECKING:
    from autotune.compiler.dividing import Model
    from autotune.runtime.module import Module
    from autotune.tuning.measure.error_budget import AccuracyLike

Data: TypeAlias = "str | Path | Mapping[str, Array] | None"
"""An .npz file or a folder of such, or arrays by the names of inputs; None for random ones."""

RANDOM = (
    f"no data was given: {RANDOM_SETS} sets of random inputs stand in for it (standard normal floats, zeros for "
    "integers), and errors on inputs of real use may be others"
)
_LOG = logging.getLogger("autotune.quantization")
_UNFIT = (
    "lock",
    "tolerance",
    "tolerances",
    "algorithm",
    "values",
    "traffic",
    "placement",
    "devices",
    "decisions",
)
"""Options that decide something else than an error budget does, or would be lost on the way to its model."""


@dataclass(frozen=True)
class AccurateRequest:
    """A model compiled within an error budget, and how it came about; ``within`` is None for one without products."""

    compiled: CompiledRequest
    accuracy: Accuracy
    is_random: bool
    within: WithinBudget | None
    point: PrecisionPoint | None = None
    """The measured point that it was taken from, if it was."""

    def to_json(self) -> dict[str, Any] | None:
        """Return what is known of the error, as plain values."""
        if self.within is None:
            return None
        measured = None if self.point is None or self.point.ratio is None else self.point.ratio.to_json()
        facts = {"budget": str(self.accuracy), "random_inputs": self.is_random, "measured": measured}
        return facts | self.within.to_json()

    @property
    def precisions(self) -> Precisions:
        """Return the precision of each product; none without products."""
        return {} if self.within is None else self.within.precisions

    @property
    def lines(self) -> str:
        """Return the same as text."""
        if self.within is None:
            return f"accuracy {self.accuracy}: all in float32, no product has constant float32 weights"
        measured = "" if self.point is None else f"\n  measured by an earlier job: {self.point}"
        return self.within.lines(str(self.accuracy)) + measured


@keywords_of(CompileOptions)
def compile(
    model: Model,
    *,
    accuracy: AccuracyLike | None = None,
    data: Data = None,
    **options: Unpack[CompileOptions],
) -> Module:
    """Compile a model with the best schedules of the database; workloads without one get the default schedule.

    The ``options`` are those of :class:`~autotune.compiler.request.CompileRequest`. The module runs on all devices that
    are named, by a ``placement``, by ``devices`` or by the model itself, and for the ``target`` "opencl" on a device as
    a whole (docs/opencl.md); with ranges of sizes among the ``shapes`` it takes requests of many shapes, as of
    :func:`compile_for_sizes`. Of several targets the best one runs.

    With an ``accuracy`` products are computed in less than float32 where that is predicted to be faster, as far as the
    error of the outputs allows: 1e-2 (relative), "cosine=0.999", "top1=0.5%" of labels lost, or a function of the
    outputs in float32 and of the outputs, by name, with the largest value that it may return, or with "mean" as a third
    element the largest mean of its values. It is measured on
    ``data`` (an .npz file or a folder, or arrays by the names of inputs; docs/precision.md); without any, random inputs
    stand in, with a warning.

    Raises UsageError for options that exclude one another and for more threads than usable cores without
    ``allow_oversubscription``, PlacementError for devices that contradict one another or are not there, LockError for
    a lock that does not fit, and MissError with ``require_hit`` when nothing was searched for a workload (there is a
    choice, but no candidate was measured alongside the default); with an ``accuracy`` InputError for data that do not
    fit the model.
    """
    if accuracy is None and data is None:
        return api.compile(model, **options)
    if accuracy is None:
        raise UsageError("data are for an accuracy, which is not given")
    request = CompileRequest(model, **options)
    api.check_cores(request)
    if data is None:
        _LOG.warning(RANDOM)
    from autotune.runtime.module import Module

    done = compile_within(request, Accuracy.of(accuracy), data)
    return Module(done.compiled.model, request.threads if request.allow_oversubscription else None)


def compile_within(
    request: CompileRequest,
    accuracy: Accuracy,
    data: Data,
    say: Callable[[str], None] = lambda _: None,
    tried: Sequence[Precisions] = (),
) -> AccurateRequest:
    """Compile the model of a request within an error budget; raises as :func:`compile` does.

    Precisions that are to be ``tried`` come first, then those that the database has measured to be faster than float32.
    """
    request = prepared(request)
    model: Any = request.model
    if not has_products(model):
        return AccurateRequest(compile_request(request, say), accuracy, data is None, None)
    samples = samples_of(model, data)
    points = faster(
        point
        for point in stored_points(request)
        if not (point.kind == accuracy.kind and point.held_back.error > accuracy.limit)
    )
    within, compiled = chosen_within(
        request,
        samples,
        accuracy,
        faster=True,
        tried=[*tried, *(point.precisions for point in points)],
        threads=request.threads,
    )
    taken = next((point for point in points if point.precisions == within.precisions), None)
    done = AccurateRequest(compiled, accuracy, data is None, within, taken)
    return replace(done, compiled=_noted(compiled, json.dumps(done.to_json())))


def samples_of(model: Any, data: Data) -> Mapping[str, Array]:
    """Return the input sets of data, or random ones where there are none; ``model`` is an ONNX model of any kind."""
    if data is None:
        from autotune.frontends.onnx.read import read_model as read

        return random_samples(read(model).proto)
    return data if isinstance(data, Mapping) else read_samples(Path(data))


def prepared(request: CompileRequest) -> CompileRequest:
    """Return the request of a model whose inputs have the sizes of the request; raises UsageError for one that an
    error budget is not for."""
    request = request.checked()
    if names := [name for name in request.given() if name in _UNFIT]:
        raise UsageError(
            f"{', '.join(names)} given together with an accuracy\n  which chooses precisions by the errors that are "
            "measured: leave them out"
        )
    if request.has_ranges or not request.preference.goal.is_latency:
        what = "ranges of sizes" if request.has_ranges else f"objective {request.objective}"
        raise UsageError(f"an accuracy is for fixed sizes and the objective latency, not for {what}")
    api.runnable(request.one_target())
    if isinstance(request.model, Graph) or not isinstance(read_model(request.model), LoadedModel):
        raise UsageError("an accuracy is for ONNX models: a graph or its text has no products to quantise")
    return with_sizes(request)


def with_sizes(request: CompileRequest) -> CompileRequest:
    """Return the request of a model whose inputs have the sizes of the request, with its data in it."""
    if not request.shapes:
        return request
    import onnx
    from onnx import external_data_helper

    source: Any = read_model(request.model)
    made, graph = onnx.ModelProto(), load(source, shapes=request.shapes)
    made.CopyFrom(source.proto)
    if source.folder is not None:
        external_data_helper.load_external_data_for_model(made, str(source.folder))
    for value in made.graph.input:
        if value.name in graph.inputs:
            for dim, size in zip(
                value.type.tensor_type.shape.dim, graph.types[value.name].shape, strict=True
            ):
                dim.dim_value = size
    return replace(request, model=made, shapes=None)


def _noted(done: CompiledRequest, text: str) -> CompiledRequest:
    """Return a compiled model whose images say the error in their metadata."""
    (case,) = done.cases
    program = case.done.program
    images = tuple(replace(image, metadata={**image.metadata, NOTED: text}) for image in program.images)
    program = replace(program, images=images)
    segments = zip(case.done.segments, images, strict=True)
    compilation = replace(
        case.done, program=program, segments=tuple(replace(each, image=image) for each, image in segments)
    )
    return replace(done, model=Compiled.of(program), cases=(replace(case, done=compilation),))


__all__ = [
    "RANDOM",
    "AccurateRequest",
    "Data",
    "compile",
    "compile_within",
    "prepared",
    "samples_of",
    "with_sizes",
]
