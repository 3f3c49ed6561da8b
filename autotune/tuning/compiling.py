"""Compiling a request: its cases by sizes and target, each for one device or for several that are named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from autotune.compiler import compile_in_detail
from autotune.compiler.dynamic.buckets import Bucket, SizeRange, buckets
from autotune.compiler.dynamic.declared import by_dimension, declared_axes
from autotune.compiler.dynamic.load import load
from autotune.compiler.dynamic.traffic import RequestTraffic
from autotune.compiler.explain import Compilation
from autotune.compiler.request import CompileRequest
from autotune.database.opening import default_database
from autotune.errors import MissError
from autotune.frontends.models import ReadModel, declared_shapes, read_model
from autotune.frontends.sizes import Given, open_names
from autotune.frontends.torch_export import declared_ranges, is_exported_program
from autotune.garbage import collector_paused
from autotune.graph.ir import Graph
from autotune.passes.pipeline import dumped_for
from autotune.runtime.axes import axis, axis_text, extents
from autotune.runtime.compiled import Case, Compiled, SizedTensor
from autotune.runtime.programs.device_program import DeviceProgram
from autotune.runtime.targets import choose
from autotune.target import Target
from autotune.tuning.placement.answer import code_of
from autotune.tuning.placement.placing import by_database, placed_by
from autotune.tuning.requested import exists, with_database


@dataclass(frozen=True)
class CompiledCase:
    """A case as it was compiled: its target and sizes as text, empty where there is one, and what explains it."""

    target: str
    sizes: str
    done: Compilation


@dataclass(frozen=True)
class CompiledRequest:
    """A compiled model, with what explains each of its cases, and the database that schedules came from."""

    model: Compiled
    cases: tuple[CompiledCase, ...]
    where: str | None


@collector_paused()
def compile_request(
    request: CompileRequest,
    say: Callable[[str], None] = lambda _: None,
    *,
    graph: Graph | None = None,
    open_sizes: bool = False,
) -> CompiledRequest:
    """Compile a model for all targets and sizes of a request; it says what it is compiling for.

    ``graph`` is the model where it was imported already. With ``open_sizes`` it takes requests of many shapes also
    where each size is one and no range. A program of ``torch.export`` is compiled for the ranges of its ``Dim`` where
    no others are given. The schedules come from the lock, or the request's database, or the default one
    where it exists.

    Raises UsageError for what does not go together, PaddingError where the results of a request would depend on what
    lies beyond its sizes, PlacementError for devices that contradict each other, are not there, or are named for
    nothing, LockError, MissError with ``require_hit``, and ModelImportError.
    """
    request = _with_declared_ranges(request.checked())
    if request.lock is not None:
        return replace(_compiled(request, say, graph, open_sizes), where=request.lock_name)
    if request.require_hit and not exists(request.database):
        raise MissError(f"there is no database {default_database()}; run `autotune tune MODEL` first")
    made, where = with_database(request, lambda own: _compiled(own, say, graph, open_sizes))
    return replace(made, where=where)


def _with_declared_ranges(request: CompileRequest) -> CompileRequest:
    """Return a request with the ranges that a program of ``torch.export`` declares, if all of its open sizes have one
    and no other sizes are given."""
    if request.shapes or not is_exported_program(request.model):
        return request
    model = read_model(request.model)
    ranges = declared_ranges(request.model)
    named = open_names(declared_shapes(model))
    whole = bool(named) and all(name in ranges and name.isidentifier() for name in named)
    return replace(request, model=model, shapes={name: ranges[name] for name in named} if whole else None)


def program_for(request: CompileRequest, sizes: Mapping[str, int]) -> DeviceProgram:
    """Return the program of a model with dynamic shapes for exactly these; of several targets for the best one here."""
    targets = [Target.parse(target, request.threads) for target in request.targets]
    request = replace(request, target=request.targets[choose(targets) if len(targets) > 1 else 0])
    source = read_model(request.model)
    axes = declared_axes(source, split(source, request.shapes or {})[1])
    graph = load(source, shapes={name: extents(each, sizes) for name, each in axes.items()})
    return compile_request(request.of_graph(graph)).cases[0].done.program


def _compiled(
    request: CompileRequest, say: Callable[[str], None], graph: Graph | None, open_sizes: bool
) -> CompiledRequest:
    """Compile all cases; the database is open."""
    models, cases = list[Compiled](), list[CompiledCase]()
    for target in request.targets:
        name, own = str(target) if len(request.targets) > 1 else "", replace(request, target=target)
        if open_sizes or request.has_ranges:
            model, found = _of_sizes(own, name, say)
        else:
            done = _compiled_case(own, graph)
            model, found = Compiled.of(done.program), [CompiledCase(name, "", done)]
        models.append(model)
        cases += found
    return CompiledRequest(models[0] if len(models) == 1 else Compiled.joined(models), tuple(cases), None)


def _compiled_case(request: CompileRequest, graph: Graph | None) -> Compilation:
    """Compile one case, for the placement on the request's devices that the database has, if any are named."""
    if not request.devices:
        return compile_in_detail(request, graph)
    graph, answer = by_database(request, graph)
    done = compile_in_detail(placed_by(request, answer), graph)
    return replace(done, decisions=(replace(answer, code=code_of(done.program)),))


def _of_sizes(
    request: CompileRequest, target: str, say: Callable[[str], None]
) -> tuple[Compiled, list[CompiledCase]]:
    """Compile a model with dynamic shapes for one target."""
    source = read_model(request.model)
    made, cases = list[tuple[Bucket, DeviceProgram]](), list[CompiledCase]()
    ranges, found = buckets_of(request, source)
    for bucket in found:
        sizes = ", ".join(f"{symbol} = {size}" for symbol, size in bucket.sizes.items())
        say(f"compiling for {', '.join(filter(None, (target, sizes)))}")
        with dumped_for(bucket.sizes):
            done = _compiled_case(request.of_graph(bucket.graph), None)
        made.append((bucket, done.program))
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
        {symbol: each.step for symbol, each in ranges.items() if each.step > 1},
    )
    return Compiled.joined([model]), cases


def _case(bucket: Bucket, program: DeviceProgram) -> Case:
    outputs = tuple(tuple(map(axis_text, bucket.outputs[spec.name])) for spec in program.outputs)
    return Case(dict(bucket.sizes), tuple(bucket.size_inputs), outputs, program)


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


def traffic_of(request: CompileRequest) -> RequestTraffic | None:
    """Return how often requests have which sizes, if it was given."""
    given = request.traffic
    return given if isinstance(given, RequestTraffic | None) else RequestTraffic.read(given)


__all__ = [
    "CompiledCase",
    "CompiledRequest",
    "buckets_of",
    "compile_request",
    "program_for",
    "split",
    "traffic_of",
]
