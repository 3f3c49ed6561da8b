"""Tuning within error budgets: a model in float32 and in the precisions that budgets allow are one job, and what comes
of it is measured and stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from autotune.compiler.dividing import imported
from autotune.compiler.request import CompileRequest
from autotune.compiler.sites.decision import model_row
from autotune.database.front import PRECISION
from autotune.database.opening import opened
from autotune.frontends.onnx.read import origin_of
from autotune.passes.preference import TOLERANCE
from autotune.quantization.compiling import AccurateRequest, Data, compile_within, with_sizes
from autotune.quantization.front import PrecisionPoint, rows_of, weights_of
from autotune.quantization.precision import DECLARED_ERRORS, FLOAT32, Precisions, products_outside
from autotune.tuning.compiling import compile_request
from autotune.tuning.measure.error_budget import Accuracy
from autotune.tuning.measure.gain import Gain, gain_of

if TYPE_CHECKING:
    from autotune.compiler.dividing import Model
    from autotune.tuning.report.result import Report

Tune = Callable[[Sequence["Model"], float], "Report"]
"""Tunes models with options of such a declared error."""


def tune_within(
    request: CompileRequest,
    accuracies: Sequence[Accuracy],
    data: Data,
    tune: Tune,
    seed: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[Report, list[PrecisionPoint]]:
    """Choose precisions within each budget, tune the model in all of them and in float32, and measure each alongside
    float32; returns the report, and the points that are stored. Raises as :func:`compile_within` and tuning do.
    """
    with opened(request.database):
        pass  # made before the first job, because what is chosen is looked up in it
    chosen = _distinct(compile_within(request, each, data, say) for each in accuracies)
    name = origin_of(request.model)
    within = [
        each.within.quantization.called(f"{name} within {each.accuracy}") for each in chosen if each.within
    ]
    report = tune([request.model, *within], tolerance_of([each.precisions for each in chosen]))
    if report.stopped:
        return report, []
    plain, sized = compile_request(request).cases[0].done.image, with_sizes(request)
    weights, found = weights_of(sized.model), list[tuple[PrecisionPoint, Gain]]()
    for each in chosen:
        say(f"measuring what {each.accuracy} allows alongside float32")
        now = compile_within(request, each.accuracy, data, tried=[each.precisions])
        gain = gain_of(plain, now.compiled.cases[0].done.image, seed, lambda: False)
        if now.within is not None and gain is not None:
            facts = str(each.accuracy), now.within.held_back, data is None, weights
            found.append((PrecisionPoint(now.within.precisions, *facts), gain))
    return report, stored(sized, found)


def _distinct(made: Iterable[AccurateRequest]) -> list[AccurateRequest]:
    """Return what is not all float32, each choice of precisions once."""
    found = dict[tuple[tuple[str, str], ...], AccurateRequest]()
    for each in made:
        if products_outside(each.precisions, FLOAT32):
            found.setdefault(tuple(sorted(each.precisions.items())), each)
    return list(found.values())


def tolerance_of(plans: Iterable[Precisions]) -> float:
    """Return the least tolerance that allows the stored weights of all plans."""
    used = {precision for plan in plans for precision in plan.values()}
    return max((DECLARED_ERRORS[one] for one in used if one in DECLARED_ERRORS), default=TOLERANCE)


def stored(
    request: CompileRequest, found: Sequence[tuple[PrecisionPoint, Gain]], job: str = ""
) -> list[PrecisionPoint]:
    """Store what was measured as a comparison of the model's precisions; returns the points with it."""
    if not found:
        return []
    graph, target = imported(request.model, request.shapes), request.one_target()
    measured = [
        (point, {"latency": gain.after, "ratio": gain.ratio, "load": gain.load}) for point, gain in found
    ]
    plain: Mapping[str, Any] = {"latency": found[0][1].before, "load": found[0][1].load}
    with opened(request.database) as store:
        store.add_target(target)
        store.add_workload(model_row(graph))
        store.compared(model_row(graph).key, target.key, PRECISION, rows_of(measured, plain), graph.name, job)
    return [replace(p, median_ns=gain.after.median_ns, ratio=gain.ratio) for p, gain in found]


__all__ = ["stored", "tolerance_of", "tune_within"]
