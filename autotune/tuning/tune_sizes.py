"""Tuning a model of open sizes: a job for each bucket, with the part of the budget that its part of the time is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.compiler.dynamic.buckets import Bucket, buckets
from autotune.compiler.dynamic.traffic import Traffic
from autotune.database.opening import opened
from autotune.frontends.models import ReadModel, read_model
from autotune.frontends.onnx.read import ModelSource
from autotune.passes.preference import TOLERANCE
from autotune.target import Target
from autotune.tuning.api import predict, tune
from autotune.tuning.budget import Budget
from autotune.tuning.sized import BUCKETS, Ranges, split, with_traffic

if TYPE_CHECKING:
    from autotune.database.opening import DatabaseLike
    from autotune.tuning.report import Report
    from autotune.tuning.status import Progress


@dataclass(frozen=True)
class TunedBucket:
    """The job of a bucket, and the part of the budget that it got; no report where no request takes the bucket."""

    sizes: Mapping[str, int]
    share: float
    report: Report | None

    @property
    def label(self) -> str:
        """Its sizes."""
        return ", ".join(f"{symbol} = {size}" for symbol, size in self.sizes.items())


def tune_for_sizes(
    model: ModelSource | ReadModel,
    sizes: Ranges,
    *,
    budget: Budget | str,
    traffic: Traffic | str | Path | None = None,
    most_buckets: int = BUCKETS,
    database: DatabaseLike | None = None,
    target: Target | str = "host",
    threads: int | None = None,
    tolerance: float = TOLERANCE,
    progress: Callable[[], Progress | None] = lambda: None,
    say: Callable[[str], None] = lambda _: None,
    begun: float | None = None,
    **options: Any,
) -> list[TunedBucket]:
    """Search faster schedules for all buckets that :func:`autotune.compile_for_sizes` would make of the same ranges.

    The budget is divided by frequency times the predicted time of a bucket; ``traffic`` (a file of JSON lines such as
    ``{"sizes": {"seq": 17}, "count": 120}``) says how often requests have which sizes, and without it all buckets are
    as frequent. Ranges without named buckets get at most ``most_buckets`` by it, those that pad least. A bucket that
    no request takes is not tuned. The other arguments are those of :func:`autotune.tune`; a job of each bucket
    goes on when the same call is made again. Stops after a bucket whose report says ``stopped``.

    Raises UsageError for the ranges and the traffic, PaddingError, and what :func:`autotune.tune` raises.
    """
    begun = time.monotonic() if begun is None else begun
    limit = Budget.of(budget)
    source = read_model(model)
    ranges, sums = split(source, sizes)
    requests = traffic if isinstance(traffic, Traffic | None) else Traffic.read(traffic)
    ranges = with_traffic(ranges, requests, most_buckets)
    made = list(buckets(source, ranges, sums))
    counts = requests.weights(ranges) if requests else None
    done: list[TunedBucket] = []
    with opened(database) as store:
        weights = []
        for bucket in made:
            frequency = 1 if counts is None else counts[tuple(bucket.sizes[symbol] for symbol in ranges)]
            found = (
                predict(bucket.graph, database=store, target=target, threads=threads, tolerance=tolerance)
                if frequency
                else None
            )
            weights.append(frequency * found.latency_ns if found else 0.0)
        for bucket, share, part in _divided(made, weights, limit, begun):
            tuned = TunedBucket(bucket.sizes, share, None)
            if part is None:
                say(f"not tuning for {tuned.label}: no request takes this bucket")
                done.append(tuned)
                continue
            say(f"tuning for {tuned.label}: {100 * share:.0f} % of the budget, {part}")
            report = tune(
                bucket.graph.replace(name=f"{source.origin} ({tuned.label})"),
                budget=part,
                database=store,
                target=target,
                threads=threads,
                tolerance=tolerance,
                progress=progress(),
                **options,
            )
            done.append(replace(tuned, report=report))
            if report.stopped:
                break
    return done


def _divided(
    made: list[Bucket], weights: list[float], limit: Budget, begun: float
) -> Iterator[tuple[Bucket, float, Budget | None]]:
    """Yield the buckets, those with most weight first, with their shares and budgets: of what is left
    when each begins."""
    total = left = sum(weights)
    trials = limit.trials
    order = sorted(range(len(made)), key=lambda i: -weights[i])
    for index in order:
        weight = weights[index]
        if not weight:
            yield made[index], 0.0, None
            continue
        share = weight / left
        seconds = limit.limit_s and max(1.0, share * (limit.limit_s - (time.monotonic() - begun)))
        own = None if trials is None else max(1, round(share * trials))
        yield (
            made[index],
            weight / total,
            Budget(trials=own, seconds=seconds, per_workload=limit.per_workload),
        )
        left -= weight
        trials = None if trials is None or own is None else max(0, trials - own)


__all__ = ["TunedBucket", "tune_for_sizes"]
