"""Compiling a request: its cases by sizes and target, each for one device or for several that are named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from autotune.compiler import compile_in_detail
from autotune.compiler.devices.placed import PlacedCompilation, compile_placed
from autotune.compiler.dividing import imported
from autotune.compiler.dynamic.buckets import Bucket, SizeRange, buckets
from autotune.compiler.dynamic.declared import by_dimension, declared_axes
from autotune.compiler.dynamic.traffic import Traffic
from autotune.compiler.explain import Compilation
from autotune.compiler.request import CompileRequest
from autotune.database.opening import default_database
from autotune.errors import MissError
from autotune.frontends.models import ReadModel, load, read_model
from autotune.frontends.sizes import Given
from autotune.garbage import collector_paused
from autotune.graph.devices import is_annotated
from autotune.graph.ir import Graph
from autotune.passes.pipeline import dumped_for
from autotune.passes.placement.device_rules import DeviceRules
from autotune.runtime.axes import axis, axis_text, extents
from autotune.runtime.compiled import Case, Compiled, SizedTensor
from autotune.runtime.programs.device_program import DeviceProgram, of_image
from autotune.tuning.placement.answer import PlacementAnswer, code_of, code_of_image
from autotune.tuning.placement.placing import by_database, known_devices, placed_by, target_of
from autotune.tuning.requested import exists, with_database

if TYPE_CHECKING:
    from autotune.database.store import Database

AnyCompilation: TypeAlias = Compilation | PlacedCompilation


@dataclass(frozen=True)
class CompiledCase:
    """A case as it was compiled: its target and sizes as text, empty where there is one, and what explains it."""

    target: str
    sizes: str
    done: AnyCompilation


@dataclass(frozen=True)
class CompiledRequest:
    """A compiled model, with what explains each of its cases, and the database that schedules came from."""

    model: Compiled
    cases: tuple[CompiledCase, ...]
    where: str | None


@collector_paused()
def compile_request(
    request: CompileRequest, say: Callable[[str], None] = lambda _: None, *, open_sizes: bool = False
) -> CompiledRequest:
    """Compile a model for all targets and sizes of a request; it says what it is compiling for.

    With ``open_sizes`` it takes requests of many shapes also where each size is one and no range. Raises UsageError for
    what does not go together, PaddingError where the results of a request would depend on what lies beyond its sizes,
    PlacementError for devices that contradict each other, are not there, or are named for nothing, LockError, MissError
    with ``require_hit``, and ModelImportError.
    """
    request.checked()
    models, cases, where = list[Compiled](), list[CompiledCase](), None
    several = len(request.targets) > 1
    for target in request.targets:
        name, own = str(target) if several else "", replace(request, target=target)
        if open_sizes or request.has_ranges:
            model, found, where = _of_sizes(own, name, say)
        else:
            done, where = compile_case(own)
            model, found = Compiled.of(program_of(done)), [CompiledCase(name, "", done)]
        models.append(model)
        cases += found
    return CompiledRequest(models[0] if len(models) == 1 else Compiled.joined(models), tuple(cases), where)


def compile_case(request: CompileRequest, graph: Graph | None = None) -> tuple[AnyCompilation, str | None]:
    """Compile a model for one target and size, and say where the schedules came from.

    It is on one device, or on several where any are named. ``graph`` is the model where it was imported already.
    """
    if request.checked().lock is not None:
        return compile_on_one_device(request)
    if request.devices:
        graph, answer = by_database(request)
        done, where = _compile_placed(placed_by(request, answer), graph)
        return _answered(done, answer), where
    return _compile_placed(request, imported(request.model, request.shapes) if graph is None else graph)


def compile_on_one_device(
    request: CompileRequest, graph: Graph | None = None
) -> tuple[Compilation, str | None]:
    """Compile a model for one device, and say where the schedules came from.

    ``graph`` is the model where it was imported already. The second value is None when no database was given and the
    default one does not exist.
    """
    request.checked()
    if request.lock is not None:
        return compile_in_detail(request), request.lock_name
    if request.require_hit and not exists(request.database):
        raise MissError(f"there is no database {default_database()}; run `autotune tune` first")
    return with_database(request, lambda own: compile_in_detail(own, graph))


def program_of(done: AnyCompilation) -> DeviceProgram:
    """Return the program of a case."""
    return done.program if isinstance(done, PlacedCompilation) else of_image(done.image)


def program_for(request: CompileRequest, sizes: Mapping[str, int]) -> DeviceProgram:
    """Return the program of a model with dynamic shapes for exactly these."""
    source = read_model(request.model)
    axes = declared_axes(source, split(source, request.shapes or {})[1])
    graph = load(source, shapes={name: extents(each, sizes) for name, each in axes.items()})
    return program_of(compile_case(of_one_size(request, graph))[0])


def _compile_placed(request: CompileRequest, graph: Graph) -> tuple[AnyCompilation, str | None]:
    if not request.placement and not is_annotated(graph):
        return compile_on_one_device(request, graph)
    request.checked(on_devices=True)
    infos = known_devices()
    rules = DeviceRules(dict(request.placement or {}), tuple(infos))
    return with_database(
        request, lambda own: compile_placed(graph, rules, lambda name: target_of(infos[name]), own)
    )


def _answered(done: AnyCompilation, answer: PlacementAnswer) -> AnyCompilation:
    """Return the same with the placement in its coverage."""
    if isinstance(done, PlacedCompilation):
        return replace(done, placement=str(replace(answer, code=code_of(done.program))))
    said = str(replace(answer, code=code_of_image(done.image)))
    return replace(done, coverage=replace(done.coverage, placement=said))


def _of_sizes(
    request: CompileRequest, target: str, say: Callable[[str], None]
) -> tuple[Compiled, list[CompiledCase], str | None]:
    """Compile a model with dynamic shapes for one target."""
    source = read_model(request.model)
    made, cases, where = list[tuple[Bucket, DeviceProgram]](), list[CompiledCase](), None
    ranges, found = buckets_of(request, source)
    for bucket in found:
        sizes = ", ".join(f"{symbol} = {size}" for symbol, size in bucket.sizes.items())
        say(f"compiling for {', '.join(filter(None, (target, sizes)))}")
        with dumped_for(bucket.sizes):
            done, where = compile_case(of_one_size(request, bucket.graph))
        made.append((bucket, program_of(done)))
        cases.append(CompiledCase(target, sizes, done))
    least = {symbol: each.least for symbol, each in ranges.items()}
    axes = declared_axes(source, split(source, request.shapes or {})[1])
    own = made[0][1].inputs[: len(made[0][0].inputs)]
    model = Compiled(
        made[0][1].name,
        tuple(
            SizedTensor(s.name, s.dtype, tuple(map(axis_text, axes.get(s.name) or map(axis, s.shape))))
            for s in own
        ),
        tuple(spec.name for spec in made[0][1].outputs),
        least,
        tuple(_case(bucket, program) for bucket, program in made),
    )
    return Compiled.joined([model]), cases, where


def _case(bucket: Bucket, program: DeviceProgram) -> Case:
    outputs = tuple(tuple(map(axis_text, bucket.outputs[spec.name])) for spec in program.outputs)
    return Case(dict(bucket.sizes), tuple(bucket.size_inputs), outputs, program)


def of_one_size(request: CompileRequest, graph: Graph, store: Database | None = None) -> CompileRequest:
    """Return the request of a graph that was imported for one of the sizes.

    ``store`` is the database where it is open.
    """
    return replace(request, model=graph, shapes=None, traffic=None, database=store or request.database)


def split(model: ReadModel, sizes: Given) -> tuple[dict[str, SizeRange], dict[str, str]]:
    """Return ranges, and dimensions that are sums of others; raises UsageError."""
    texts = by_dimension(model, sizes)
    sums = {name: given for name, given in texts.items() if given[:1] and not given[0].isdecimal()}
    ranges = {name: SizeRange.parse(given, f"{name}=") for name, given in texts.items() if name not in sums}
    return ranges, sums


def buckets_of(request: CompileRequest, source: ReadModel) -> tuple[dict[str, SizeRange], list[Bucket]]:
    """Return the ranges of a request, with buckets chosen by its traffic, and the model for each bucket.

    Raises UsageError.
    """
    ranges, sums = split(source, request.shapes or {})
    if (traffic := traffic_of(request)) is not None:
        ranges = traffic.ranges(ranges, request.most_buckets)
    return ranges, list(buckets(source, ranges, sums))


def traffic_of(request: CompileRequest) -> Traffic | None:
    """Return how often requests have which sizes, if it was given."""
    given = request.traffic
    return given if isinstance(given, Traffic | None) else Traffic.read(given)


__all__ = [
    "AnyCompilation",
    "CompiledCase",
    "CompiledRequest",
    "buckets_of",
    "compile_case",
    "compile_on_one_device",
    "compile_request",
    "of_one_size",
    "program_for",
    "program_of",
    "split",
    "traffic_of",
]
