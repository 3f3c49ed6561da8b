"""Decide the sites of a whole model: each option is a compilation of it, compared as the options of workloads are."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from autotune.compiler import compile_in_detail, predict_ns
from autotune.compiler.sites import KINDS, SiteKind
from autotune.compiler.sites.decision import Decision, compared, decided, model_row, option_key
from autotune.database.records import Comparison
from autotune.errors import UsageError
from autotune.machine_lock import Measuring
from autotune.suggest import listing
from autotune.tuning.compare.interleaved import Interleaved
from autotune.tuning.compare.questions import Choice, Question
from autotune.tuning.measure.turns import Rounds, Turns
from autotune.tuning.measure.whole_model import UNWATCHED, Profile, Version, Versions, Watch

if TYPE_CHECKING:
    from autotune.compiler.request import CompileRequest
    from autotune.database.store import Database
    from autotune.graph.ir import Graph
    from autotune.runtime.image import ModuleImage
    from autotune.runtime.programs.device_program import DeviceProgram
    from autotune.tuning.jobs.budget import Budget
    from autotune.tuning.jobs.models import AskedModel

SITES = tuple(kind.name for kind in KINDS)
"""The names of all sites of a whole model."""
LEAST_S, SHARE = 300.0, 0.1
"""The shortest time budget of which a part goes to sites of the whole model, and that part of it."""
PROMISING = 1.5
"""An option that is expected to take so many times as long as the best one is not compared, unless that is asked for:
predictions of a whole model are off by less."""
MOST = 8
"""Versions of a model that are in a process at once."""
PROCESSES = 8
"""Fresh processes: a site of the whole model is compared once, and an interval needs six."""
Compiler: TypeAlias = "Callable[[Version], ModuleImage | DeviceProgram]"


@dataclass
class CompiledVersions:
    """Versions of a model that are compiled each by itself, and measured as a whole, with so many requests in flight
    (0: one after another)."""

    name: str
    compiled: Compiler
    seed: int
    in_flight: int = 0
    most: int = MOST
    turns_of: Callable[[int], Turns] = Turns

    def read(
        self,
        versions: Sequence[Version],
        rounds: Rounds,
        out_of_time: Callable[[], bool],
        watch: Watch = UNWATCHED,
    ) -> list[Profile | None]:
        """Measure versions interleaved; return the times of each, None for one that failed."""
        with self.turns_of(self.seed) as turns:
            for version in versions:
                if out_of_time():
                    return [None] * len(versions)
                turns.add(self.compiled(version), self.in_flight)
            return turns.whole(rounds, out_of_time, watch)


def checked_sites(names: Collection[str]) -> tuple[str, ...]:
    """Return kinds of sites of a whole model by name, in the order in which they are decided; raises UsageError."""
    for name in names:
        if name not in SITES:
            raise UsageError(f"there is no site {name!r} of a model; sites: {listing(name, SITES)}")
    return tuple(name for name in SITES if name in names)


def decide(
    request: CompileRequest,
    graph: Graph,
    database: Database,
    sites: Collection[str],
    *,
    late: Callable[[], bool],
    say: Callable[[str], None],
    again: bool,
    model_of: Callable[[str, Compiler], Versions],
) -> tuple[CompileRequest, tuple[Decision, ...]]:
    """Compare the options of some ``sites`` of a model, and return the request with all that is decided.

    A site that was compared before is compared ``again`` only if so asked, or where its options are others now; of the
    options then also those count that are expected to be far slower. Each site is compared with what was decided
    before it. Nothing begins that ``late`` has no time for. ``model_of`` returns what measures versions of the model
    of a name that are compiled so.
    """
    row = model_row(graph)
    predicted = dict[tuple[str, str], float]()

    def with_option(request: CompileRequest, kinds: Mapping[str, str]) -> CompileRequest:
        return replace(request, database=database, decisions={**(request.decisions or {}), **kinds})

    def expected_ns(kind: SiteKind, option: str, request: CompileRequest) -> float:
        applied = kind.applied(request, option)
        version = applied.one_target().key, applied.layout  # the order of dispatches is not predicted
        if version not in predicted:
            asked = with_option(request, {kind.name: option})
            predicted[version] = predict_ns(asked, graph)
        return predicted[version]

    def promising(kind: SiteKind, request: CompileRequest) -> tuple[str, ...]:
        first, *others = kind.options(request, graph)
        expected = {option: expected_ns(kind, option, request) for option in (first, *others)}
        least = min(expected.values())
        return (first, *(option for option in others if expected[option] <= PROMISING * least))

    def compare(kind: SiteKind, request: CompileRequest) -> None:
        if kind.name not in sites or late():
            return
        options = kind.options(request, graph) if again else promising(kind, request)
        before = compared(kind, row.key, request, graph, database)
        known = set() if before is None or again else {each.name for each in before.rows}
        if len(options) < 2 or known >= {*options} or late():
            return

        def compiled(version: Version) -> ModuleImage:
            return compile_in_detail(with_option(request, version.whole), graph).image

        target = request.one_target()
        database.add_workload(row)
        database.add_target(target)
        candidates = tuple(Choice(Comparison(option, option_key(kind, option))) for option in options)
        question = Question(kind.name, row.key, target.key, (), candidates)
        say(f"compiling with the {kind.name} {', '.join(options)}")
        model = model_of(graph.name, compiled)
        Interleaved(database, model, "", say, PROCESSES).compare([question], Version({}, {}), late)

    return decided(request, graph, database, compare)


def decide_for(
    asked: AskedModel,
    database: Database,
    sites: Sequence[str] | None,
    budget: Budget,
    begun: float,
    say: Callable[[str], None],
    model_of: Callable[[str, Compiler], Versions],
    fixed: Collection[str] = (),
) -> tuple[CompileRequest, tuple[Decision, ...], float]:
    """Return the request with what is decided of a model that is to be tuned, by a share of the time of its budget.

    ``sites`` are compared, also again; for None all that never were, where there is time; none is looked up for
    ``()``, and none of those that are ``fixed`` is compared. ``model_of`` is as in :func:`decide`. The third value is
    ``begun`` without the time that others measured in meanwhile. Raises UsageError for unknown sites, and for such as
    are fixed.
    """
    request, graph, limit_s = asked.request, asked.graph, budget.limit_s
    if sites is not None and not checked_sites(sites):
        return request, (), begun
    if shared := [name for name in sites or () if name in fixed]:
        raise UsageError(
            f"{', '.join(shared)}: decided in jobs of one model only, as several models share it"
        )
    every = tuple(name for name in SITES if name not in fixed)
    wanted = sites if sites is not None else every if limit_s and limit_s >= LEAST_S else ()

    def late() -> bool:
        return limit_s is not None and time.monotonic() - begun > SHARE * limit_s

    before = time.monotonic()
    with Measuring(f"decide sites of {graph.name}", say) if wanted else nullcontext():
        begun += time.monotonic() - before
        found = decide(
            request,
            graph,
            database,
            wanted,
            late=late,
            say=say,
            again=sites is not None,
            model_of=model_of,
        )
    return *found, begun


__all__ = ["SITES", "CompiledVersions", "Compiler", "checked_sites", "decide", "decide_for"]
