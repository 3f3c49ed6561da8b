"""Compiling models of open sizes: each bucket from the database, as one model that takes requests of all sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Unpack

from autotune.compiler.dynamic.buckets import Bucket, SizeRange, buckets
from autotune.compiler.dynamic.declared import by_dimension, declared_axes
from autotune.compiler.dynamic.traffic import Traffic
from autotune.compiler.request import CompileOptions, CompileRequest, keywords_of
from autotune.errors import UsageError
from autotune.frontends.models import ReadModel, load, read_model
from autotune.graph.ir import Graph
from autotune.runtime.axes import Axes, axis, axis_text, extents
from autotune.runtime.sized_model import SizeBucket, SizedModel, SizedTensor, with_shared_constants
from autotune.runtime.sized_module import SizedModule
from autotune.tuning.api import check_cores, compile_with_database

if TYPE_CHECKING:
    from autotune.compiler.dividing import Model
    from autotune.compiler.explain import Compilation
    from autotune.database.store import Database
    from autotune.frontends.sizes import Given
    from autotune.runtime.image import ModuleImage


@dataclass(frozen=True)
class SizedCompilation:
    """A model of open sizes, with everything that explains each bucket, and where the schedules came from."""

    model: SizedModel
    parts: tuple[Compilation, ...]
    where: str | None


@keywords_of(CompileOptions, without=("shapes",))
def compile_for_sizes(
    model: Model,
    sizes: Given,
    *,
    on_miss: str = "error",
    kept: int = 4,
    **options: Unpack[CompileOptions],
) -> SizedModule:
    """Compile a model for requests of many sizes: each takes the smallest bucket that it fits in.

    ``sizes`` are by the names of the dimensions that the model leaves open (``INPUT.AXIS`` for one without a name):
    "1..32" has the powers of two as buckets, "1..32:8,32" has those, and 8 is one size; the shape of an input may be
    given by its name, ``(1, 128)``. The ``options`` are those of :func:`autotune.compile`.

    With ``on_miss="compile"`` a request out of the ranges is compiled for its exact sizes when it comes, which is
    logged as a warning; the last ``kept`` of such are kept, with constants of their own.

    Raises UsageError for other dimensions than the model's, PaddingError where a request's answer would depend on what
    lies beyond its sizes, and what :func:`autotune.compile` raises.
    """
    return module_of_sizes(replace(CompileRequest(model, **options), shapes=sizes), on_miss, kept)


def module_of_sizes(request: CompileRequest, on_miss: str = "error", kept: int = 4) -> SizedModule:
    """:func:`compile_for_sizes` of a request."""
    check_cores(request)
    if on_miss not in ("error", "compile"):
        raise UsageError(f"on_miss is error or compile, not {on_miss!r}")
    if kept < 1:
        raise UsageError(f"at least 1 module is kept of those that are compiled on a miss, got {kept}")
    request.checked(open_sizes=True)
    source = read_model(request.model)
    done = compile_sizes_in_detail(replace(request, model=source))

    def exactly(real: Mapping[str, int]) -> ModuleImage:
        axes = declared_axes(source, split(source, request.shapes or {})[1])
        graph = load(source, shapes={name: extents(each, real) for name, each in axes.items()})
        return compile_with_database(of_one_size(request, graph))[0].image

    workers = request.threads if request.allow_oversubscription else None
    return SizedModule(done.model, workers, on_miss=exactly if on_miss == "compile" else None, kept=kept)


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


def compile_sizes_in_detail(
    request: CompileRequest, say: Callable[[str], None] = lambda _: None
) -> SizedCompilation:
    """:func:`compile_for_sizes` with all that explains the result; it says what it is compiling for."""
    source = read_model(request.checked(open_sizes=True).model)
    declared = declared_axes(source, split(source, request.shapes or {})[1])
    made: list[tuple[Bucket, Compilation]] = []
    where = None
    ranges, found = buckets_of(request, source)
    for bucket in found:
        say(f"compiling for {', '.join(f'{symbol} = {size}' for symbol, size in bucket.sizes.items())}")
        done, where = compile_with_database(of_one_size(request, bucket.graph))
        made.append((bucket, done))
    model = _model(made, declared, {symbol: each.least for symbol, each in ranges.items()})
    return SizedCompilation(model, tuple(done for _, done in made), where)


def _model(
    made: Sequence[tuple[Bucket, Compilation]],
    declared: Mapping[str, Axes],
    least: Mapping[str, int],
) -> SizedModel:
    first, (image, *_) = made[0][0], [done.image for _, done in made]
    own = image.inputs[: len(first.inputs)]
    inputs = tuple(
        SizedTensor(
            spec.name, spec.dtype, tuple(map(axis_text, declared.get(spec.name) or map(axis, spec.shape)))
        )
        for spec in own
    )
    found = SizedModel(
        image.name,
        inputs,
        tuple(spec.name for spec in image.outputs),
        least,
        tuple(
            SizeBucket(
                dict(bucket.sizes),
                tuple(bucket.size_inputs),
                tuple(tuple(map(axis_text, bucket.outputs[spec.name])) for spec in image.outputs),
            )
            for bucket, _ in made
        ),
        with_shared_constants([done.image for _, done in made]),
    )
    found.verify()
    return found


__all__ = [
    "SizedCompilation",
    "buckets_of",
    "compile_for_sizes",
    "compile_sizes_in_detail",
    "module_of_sizes",
    "of_one_size",
    "split",
    "traffic_of",
]
