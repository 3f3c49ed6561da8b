"""Tuning a model with dynamic shapes: a job for each bucket, with the part of the budget that its part of the time
is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from autotune.compiler.dynamic.buckets import Bucket
from autotune.compiler.request import CompileRequest, MachineOptions
from autotune.database.opening import opened
from autotune.frontends.models import ReadModel, read_model
from autotune.frontends.onnx.read import ModelSource
from autotune.tuning.api import predicted, tune
from autotune.tuning.compiling import buckets_of, traffic_of
from autotune.tuning.jobs.budget import Budget, BudgetLike
from autotune.tuning.jobs.tune_devices import DevicesReport, tune_on_devices

if TYPE_CHECKING:
    from autotune.frontends.sizes import Given
    from autotune.tuning.report.result import Report
    from autotune.tuning.report.status import Progress


@dataclass(frozen=True)
class TunedBucket:
    """The job of a bucket, and the part of the budget that it got; no report where no request takes the bucket."""

    sizes: Mapping[str, int]
    share: float
    report: Report | DevicesReport | None

    @property
    def label(self) -> str:
        """Its sizes."""
        return ", ".join(f"{symbol} = {size}" for symbol, size in self.sizes.items())


def tune_for_sizes(
    model: ModelSource | ReadModel,
    sizes: Given,
    *,
    budget: BudgetLike,
    devices: Sequence[str] = (),
    progress: Callable[[], Progress | None] = lambda: None,
    say: Callable[[str], None] = lambda _: None,
    begun: float | None = None,
    **options: Any,
) -> list[TunedBucket]:
    """Search faster schedules for all buckets that :func:`autotune.compile_for_sizes` would make of the same ranges.

    The budget is divided by frequency times the predicted time of a bucket; ``traffic`` (a file of JSON lines such as
    ``{"sizes": {"seq": 17}, "count": 120}``) says how often requests have which sizes, and without it all buckets are
    as frequent. Ranges without named buckets get at most ``most_buckets`` by it, those that pad least. A bucket that
    no request takes is not tuned. With ``devices`` a bucket's job is that of
    :func:`~autotune.tuning.jobs.tune_devices.tune_on_devices`: schedules for all of them and a placement of its parts.
    The other ``options`` are those of :func:`autotune.tune`; a job of each bucket goes on when the same call is made
    again, and with ``again=False`` one that has come to its end shows its report, as if that had taken its part of the
    budget. Stops after a bucket whose report says ``stopped``.

    Raises UsageError for the ranges and the traffic, PaddingError, and what :func:`autotune.tune` raises.
    """
    clock = _Clock(time.monotonic() if begun is None else begun)
    limit = Budget.of(budget)
    asked = {name: value for name, value in options.items() if name in MachineOptions.__annotations__}
    request = CompileRequest(model, shapes=sizes, devices=devices, **asked).checked()
    source = read_model(request.model)
    told = ("database", "values", "traffic", "most_buckets")
    options = {n: v for n, v in options.items() if n not in told}
    ranges, made = buckets_of(request, source)
    traffic = traffic_of(request)
    counts = traffic.weights(ranges) if traffic else None
    done: list[TunedBucket] = []
    with opened(request.database) as store:
        weights = []
        for bucket in made:
            frequency = 1 if counts is None else counts[tuple(bucket.sizes[symbol] for symbol in ranges)]
            found = predicted(replace(request.of_graph(bucket.graph), database=store)) if frequency else None
            weights.append(frequency * found.latency_ns if found else 0.0)
        for bucket, share, part in _divided(made, weights, limit, clock):
            tuned = TunedBucket(bucket.sizes, share, None)
            if part is None:
                say(f"not tuning for {tuned.label}: no request takes this bucket")
                done.append(tuned)
                continue
            say(f"tuning for {tuned.label}: {100 * share:.0f} % of the budget, {part}")
            graph = bucket.graph.replace(name=f"{source.origin} ({tuned.label})")
            start = clock.used_s
            report: Report | DevicesReport
            if devices:
                report = tune_on_devices(
                    graph, devices, budget=part, database=store, progress=progress, say=say, **options
                )
            else:
                report = tune(graph, budget=part, database=store, progress=progress(), **options)
            clock.used_s_at_least(start + _seconds(report))
            done.append(replace(tuned, report=report))
            if report.stopped:
                break
    return done


def _seconds(report: Report | DevicesReport) -> float:
    """Return the seconds of the search that a report is of."""
    parts = report.tuned if isinstance(report, DevicesReport) else (report,)
    return sum(part.seconds for part in parts)


class _Clock:
    """The time that a call has used, with that of the jobs that had come to their end before it."""

    def __init__(self, begun: float) -> None:
        self._begun = begun

    @property
    def used_s(self) -> float:
        """Return the seconds that are gone."""
        return time.monotonic() - self._begun

    def used_s_at_least(self, seconds: float) -> None:
        """Count what was used before."""
        self._begun -= max(0.0, seconds - self.used_s)


def _divided(
    made: list[Bucket], weights: list[float], limit: Budget, clock: _Clock
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
        seconds = limit.limit_s and max(1.0, share * (limit.limit_s - clock.used_s))
        own = None if trials is None else max(1, round(share * trials))
        yield (
            made[index],
            weight / total,
            replace(limit, trials=own, seconds=seconds, minutes=None, hours=None, whole=limit.requested),
        )
        left -= weight
        trials = None if trials is None or own is None else max(0, trials - own)


__all__ = ["TunedBucket", "tune_for_sizes"]
