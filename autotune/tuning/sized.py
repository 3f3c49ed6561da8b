"""Compiling models of open sizes: each bucket from the database, as one model that takes requests of all sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from autotune.compiler.dynamic.buckets import Bucket, SizeRange, buckets
from autotune.compiler.dynamic.declared import by_dimension, declared_axes
from autotune.compiler.dynamic.traffic import Traffic
from autotune.database.goal import MAX_SLOWDOWN
from autotune.errors import UsageError
from autotune.frontends.models import ReadModel, load, read_model
from autotune.graph.ir import Graph
from autotune.passes.preference import TOLERANCE
from autotune.runtime.axes import Axes, axis, axis_text, extents
from autotune.runtime.sized_model import SizeBucket, SizedModel, SizedTensor, with_shared_constants
from autotune.runtime.sized_module import SizedModule
from autotune.target import Target
from autotune.tuning.api import check_threads_here, compile_with_database

if TYPE_CHECKING:
    from autotune.compiler.dividing import Model
    from autotune.compiler.driver import CompileOptions
    from autotune.compiler.explain import Compilation
    from autotune.database.opening import DatabaseLike
    from autotune.runtime.image import ModuleImage

Ranges = Mapping[str, str | Sequence[int] | int]
"""Ranges and single sizes by the names of dimensions; shapes by the names of inputs."""
BUCKETS = 4
"""As many are chosen by traffic for a range whose buckets are not named."""


@dataclass(frozen=True)
class SizedCompilation:
    """A model of open sizes, with everything that explains each bucket, and where the schedules came from."""

    model: SizedModel
    parts: tuple[Compilation, ...]
    where: str | None


def compile_for_sizes(
    model: Model,
    sizes: Ranges,
    *,
    database: DatabaseLike | None = None,
    target: Target | str = "host",
    threads: int | None = None,
    tolerance: float = TOLERANCE,
    require_hit: bool = False,
    objective: str = "latency",
    max_slowdown: float = MAX_SLOWDOWN,
    allow_oversubscription: bool = False,
    on_miss: str = "error",
    kept: int = 4,
    traffic: Traffic | str | Path | None = None,
    most_buckets: int = BUCKETS,
    finite: bool = False,
) -> SizedModule:
    """Compile a model for requests of many sizes: each takes the smallest bucket that it fits in.

    ``sizes`` are by the names of the dimensions that the model leaves open (``INPUT.AXIS`` for one without a name):
    "1..32" has the powers of two as buckets, "1..32:8,32" has those, and 8 is one size; the shape of an input may be
    given by its name, ``(1, 128)``. With ``traffic`` (a file of
    JSON lines such as ``{"sizes": {"seq": 17}, "count": 120}``) the former has at most ``most_buckets``, which pad
    least. The other arguments are those
    of :func:`autotune.compile`.

    With ``on_miss="compile"`` a request out of the ranges is compiled for its exact sizes when it comes, which is
    logged as a warning; the last ``kept`` of such are kept, with constants of their own.

    Raises UsageError for other dimensions than the model's, PaddingError where a request's answer would depend on what
    lies beyond its sizes, and what :func:`autotune.compile` raises.
    """
    check_threads_here(target, threads, allow_oversubscription=allow_oversubscription)
    if on_miss not in ("error", "compile"):
        raise UsageError(f"on_miss is error or compile, not {on_miss!r}")
    if kept < 1:
        raise UsageError(f"at least 1 module is kept of those that are compiled on a miss, got {kept}")
    options: CompileOptions = {
        "target": target,
        "threads": threads,
        "tolerance": tolerance,
        "shapes": None,
        "objective": objective,
        "max_slowdown": max_slowdown,
        "finite": finite,
    }
    source = model if isinstance(model, Graph) else read_model(model)
    done = compile_sizes_in_detail(
        source,
        sizes,
        database=database,
        require_hit=require_hit,
        traffic=traffic,
        most_buckets=most_buckets,
        **options,
    )

    def exactly(real: Mapping[str, int]) -> ModuleImage:
        assert not isinstance(source, Graph)  # or it had been refused
        axes = declared_axes(source, split(source, sizes)[1])
        graph = load(source, shapes={name: extents(each, real) for name, each in axes.items()})
        return compile_with_database(graph, database=database, require_hit=require_hit, **options)[0].image

    workers = threads if allow_oversubscription else None
    return SizedModule(done.model, workers, on_miss=exactly if on_miss == "compile" else None, kept=kept)


def split(model: ReadModel, sizes: Ranges) -> tuple[dict[str, SizeRange], dict[str, str]]:
    """Return ranges, and dimensions that are sums of others; raises UsageError."""
    texts = by_dimension(model, sizes)
    sums = {name: given for name, given in texts.items() if given[:1] and not given[0].isdecimal()}
    ranges = {name: SizeRange.parse(given, f"{name}=") for name, given in texts.items() if name not in sums}
    return ranges, sums


def with_traffic(
    ranges: dict[str, SizeRange], traffic: Traffic | None, most_buckets: int
) -> dict[str, SizeRange]:
    """Return the ranges with buckets chosen by traffic, if there is any; raises UsageError."""
    if most_buckets < 1:
        raise UsageError(f"there is at least 1 bucket, got {most_buckets}")
    return ranges if traffic is None else traffic.ranges(ranges, most_buckets)


def has_ranges(shapes: Mapping[str, Any] | None) -> bool:
    """Return whether any of the sizes is a range."""
    return any(isinstance(given, str) for given in (shapes or {}).values())


def compile_sizes_in_detail(
    model: Model | ReadModel,
    sizes: Ranges,
    *,
    database: DatabaseLike | None,
    require_hit: bool = False,
    traffic: Traffic | str | Path | None = None,
    most_buckets: int = BUCKETS,
    say: Callable[[str], None] = lambda _: None,
    **options: Unpack[CompileOptions],
) -> SizedCompilation:
    """Return :func:`compile_for_sizes` with all that explains the result; it says what it is compiling for."""
    if isinstance(model, Graph):
        raise UsageError("ranges of sizes were given for a graph, which has fixed ones; they are for models")
    source = read_model(model)
    ranges, sums = split(source, sizes)
    requests = traffic if isinstance(traffic, Traffic | None) else Traffic.read(traffic)
    ranges = with_traffic(ranges, requests, most_buckets)
    declared = declared_axes(source, sums)
    made: list[tuple[Bucket, Compilation]] = []
    where = None
    for bucket in buckets(source, ranges, sums):
        say(f"compiling for {', '.join(f'{symbol} = {size}' for symbol, size in bucket.sizes.items())}")
        done, where = compile_with_database(
            bucket.graph, database=database, require_hit=require_hit, **options
        )
        made.append((bucket, done))
    found = _model(made, declared, {symbol: each.least for symbol, each in ranges.items()})
    return SizedCompilation(found, tuple(done for _, done in made), where)


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
    "BUCKETS",
    "SizedCompilation",
    "compile_for_sizes",
    "compile_sizes_in_detail",
    "has_ranges",
    "split",
    "with_traffic",
]
