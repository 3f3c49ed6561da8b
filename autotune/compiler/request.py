"""The request of a compilation: all that is asked for, and what of it does not go together.

An option is declared here once, as a field with its default and as a keyword of the public functions that take it; a
flag of the command line (:mod:`autotune.cli.options`) bears the same name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

from autotune.database.goal import MAX_SLOWDOWN, Goal
from autotune.errors import UsageError
from autotune.passes.preference import TOLERANCE, Preference
from autotune.target import Target

if TYPE_CHECKING:
    from autotune.compiler.dividing import Model
    from autotune.compiler.dynamic.traffic import RequestTraffic
    from autotune.compiler.lock import Lock
    from autotune.compiler.shared import SharedWork
    from autotune.database.opening import DatabaseLike
    from autotune.frontends.sizes import Given
    from autotune.graph.ir import Array, Graph
    from autotune.passes.memory.dispatch_order import Aim
    from autotune.passes.partition import PartitionOptions
    from autotune.passes.pipeline import Observer
    from autotune.schedule.trace import Trace

F = TypeVar("F", bound=Callable[..., Any])


class ModelOptions(TypedDict, total=False):
    """Keywords of all functions that read a model: what changes its workloads and their options."""

    database: DatabaseLike | None
    target: Target | str | Sequence[Target | str]
    threads: int | None
    tolerance: float
    finite: bool
    shapes: Given | None
    values: Mapping[str, Array] | None
    traffic: RequestTraffic | str | Path | None
    most_buckets: int


class ChoiceOptions(ModelOptions, total=False):
    """The same, and what algorithms and schedules are chosen for."""

    objective: str
    max_slowdown: float


class MachineOptions(ModelOptions, total=False):
    """Keywords of what runs on this machine."""

    allow_oversubscription: bool


class CompileOptions(ChoiceOptions, MachineOptions, total=False):
    """Keywords of what compiles a model."""

    require_hit: bool
    lock: str | Path | Lock | None
    placement: Mapping[str, str] | None
    devices: Sequence[str]
    verify: bool


@dataclass(frozen=True, eq=False)
class CompileRequest:
    """The request of a compilation.

    Of users:

    ``model`` is a path, ``"zoo:NAME"``, bytes, a ``ModelProto`` or a graph.
    ``database`` is a file, a URL or an open database; for None the functions of users take the default one, where it
    exists, and :mod:`autotune.compiler` takes none.
    ``target`` is "host", a level such as "x86-64-v3" or a device such as "cuda:sm_90"; several make an artifact of
    which loading takes the one that fits best. ``threads`` are all usable cores unless given.
    ``tolerance``: algorithms of a larger declared error are left out (relative to the largest result; 0: exact ones
    only). ``finite``: only algorithms that neither enlarge the range of what is computed nor spread NaN and infinities
    beyond the results that they are part of (docs/arithmetic.md).
    ``shapes`` gives sizes that the model leaves open: of a dimension by its name, or the shape of an input by the
    input's. A text is a range: "1..32" has the powers of two as buckets, "1..32:8,32" has those, "past+1" is a sum of
    others. With ``traffic`` (a file of JSON lines such as ``{"sizes": {"seq": 17}, "count": 120}``) a range without
    named buckets has at most ``most_buckets``, which pad least.
    ``values`` gives inputs that are constant from here on, such as a number of results that decides what is compiled:
    arrays, numbers or lists of them by name. The compiled model has no such inputs.
    With the ``objective`` "memory" or "size" (of the artifact) the smallest algorithms and schedules are used that take
    up to ``max_slowdown`` times as long as the fastest (docs/objectives.md).
    ``allow_oversubscription``: more threads than usable cores are no error.
    ``require_hit``: it is an error that no candidate was measured alongside the default schedule of a workload.
    ``lock`` is a file that `autotune lock` wrote: exactly the code that it pins is made, for its target, and no
    database is read (docs/locks.md).
    ``placement`` names devices for parts of the model, by patterns of values, nodes or operators; ``devices`` are those
    that :func:`autotune.place` searched a placement on: the database has it, else all of the model is on the first
    (docs/placement.md).
    ``verify``: isl proves every schedule before its code runs, and the memory plan is gone through.

    Of benchmarks, tests and error budgets:

    ``observer`` is called after each graph pass. ``schedules`` (workload key to trace) come before those of the
    database. ``algorithm`` names the one to use wherever it applies. ``without`` names graph passes to leave out
    (:func:`autotune.passes.pipeline.optional_passes`). ``layout`` is that of convolutions, ``partition`` what is fused,
    ``order`` what dispatches are ordered for. ``decisions`` has options of the model's sites by their kinds
    (:data:`autotune.compiler.sites.KINDS`), which come before those of the database; ``{}`` is an untuned model.
    ``tolerances`` are those of workloads by their keys, instead of ``tolerance`` (docs/precision.md).
    ``shared`` is what requests of models alike have in common (:mod:`autotune.compiler.shared`).
    ``same_code``: other machine code than a lock pins is an error.
    """

    model: Model
    database: DatabaseLike | None = None
    target: Target | str | Sequence[Target | str] = "host"
    threads: int | None = None
    tolerance: float = TOLERANCE
    finite: bool = False
    shapes: Given | None = None
    values: Mapping[str, Array] | None = None
    traffic: RequestTraffic | str | Path | None = None
    most_buckets: int = 4
    objective: str = "latency"
    max_slowdown: float = MAX_SLOWDOWN
    allow_oversubscription: bool = False
    require_hit: bool = False
    lock: str | Path | Lock | None = None
    placement: Mapping[str, str] | None = None
    devices: Sequence[str] = ()
    verify: bool = False

    observer: Observer | None = None
    schedules: Mapping[str, Trace] | None = None
    algorithm: str | None = None
    without: Collection[str] = ()
    layout: str = "NHWC"
    partition: PartitionOptions | None = None
    order: Aim | None = None
    decisions: Mapping[str, str] | None = None
    tolerances: Mapping[str, float] | None = None
    shared: SharedWork | None = None
    same_code: bool = True

    @property
    def targets(self) -> tuple[Target | str, ...]:
        """Return the targets, one or several."""
        return (self.target,) if isinstance(self.target, Target | str) else tuple(self.target)

    def one_target(self) -> Target:
        """Return the only target, for so many threads; raises UsageError where there are several."""
        if len(self.targets) != 1:
            raise UsageError(
                f"{len(self.targets)} targets were given\n  give one: several are for artifacts of `autotune compile`"
            )
        return Target.parse(self.targets[0], self.threads)

    @property
    def preference(self) -> Preference:
        """Return which algorithms and schedules are wanted; raises UsageError."""
        return Preference(
            self.tolerance,
            self.algorithm,
            Goal.of(self.objective, self.max_slowdown),
            self.finite,
            self.tolerances or {},
        )

    @property
    def has_ranges(self) -> bool:
        """Return whether any of the sizes is a range."""
        return any(isinstance(given, str) for given in (self.shapes or {}).values())

    def of_graph(self, graph: Graph) -> CompileRequest:
        """Return the request of a graph that the model was imported as, for one of its sizes."""
        return replace(self, model=graph, shapes=None, values=None, traffic=None)

    def given(self) -> list[str]:
        """Return the names of the fields that differ from their defaults, without the model's."""
        values = {field.name: (getattr(self, field.name), field.default) for field in fields(self)[1:]}
        return [name for name, (value, default) in values.items() if value not in (default, None, {}, [], ())]

    def checked(self, *, on_devices: bool = False) -> CompileRequest:
        """Return the request, its values in its model; raises UsageError with all :meth:`problems`."""
        from autotune.graph.ir import Graph

        if found := self.problems(on_devices=on_devices):
            raise UsageError("\n".join(found))
        if not self.values or isinstance(self.model, Graph):
            return self
        from autotune.frontends.models import with_values

        return replace(self, model=with_values(self.model, self.values))

    def problems(self, *, on_devices: bool = False) -> list[str]:
        """Say what does not go together and why; ``on_devices``: the model itself names devices."""
        from autotune.graph.ir import Graph

        given, found = set(self.given()), list[str]()
        if self.lock is not None and (names := [name for name in self.given() if name not in _BESIDE_A_LOCK]):
            found.append(
                f"{', '.join(names)} given together with the lock {self.lock_name}\n"
                "  which pins what these choose: leave them out, or make another lock with them"
            )
        if isinstance(self.model, Graph) and self.values:
            found.append(
                "values were given for a graph; they are for models, whose inputs they make constant"
            )
        if isinstance(self.model, Graph) and self.shapes:
            found.append("shapes were given for a graph, which has fixed ones; they are for models")
        if self.traffic is not None and not self.has_ranges:
            found.append(
                "traffic was given without a range of sizes, whose buckets it chooses\n"
                "  give a range: seq=1..512"
            )
        if self.most_buckets < 1:
            found.append(f"there is at least 1 bucket, got {self.most_buckets}")
        if self.placement and self.devices:
            found.append("a placement and devices to look one up for were given\n  leave out one of them")
        named = on_devices or self.placement or self.devices
        if named and (names := [name for name in ("target", "threads") if name in given]):
            found.append(
                f"{', '.join(names)} given for a model that runs on the devices that are named for it\n"
                "  they say for what and for how many threads to compile: leave out target and threads"
            )
        return found + self._same_targets()

    def _same_targets(self) -> list[str]:
        """Return problems of targets whose code an artifact could not tell apart."""
        from autotune.runtime.targets import label

        known, found = dict[str, Target | str](), list[str]()
        for target in self.targets if len(self.targets) > 1 else ():
            name = label(Target.parse(target, self.threads))
            if name in known:
                found.append(
                    f"the targets {known[name]} and {target} are both {name}: one artifact holds it once"
                )
            known[name] = target
        return found

    @property
    def lock_name(self) -> str:
        """Return the file of the lock, or the model that it is of."""
        return (
            str(self.lock) if isinstance(self.lock, str | Path) else f"of {getattr(self.lock, 'model', '')}"
        )


_BESIDE_A_LOCK = ("lock", "values", "verify", "observer", "same_code", "shared", "allow_oversubscription")
"""Fields that a lock does not have in itself."""


def keywords_of(options: type, without: Collection[str] = ()) -> Callable[[F], F]:
    """Show the fields that a typed dictionary names as keywords of a function that takes them as ``**options``, with
    the defaults of :class:`CompileRequest`; other keywords are a TypeError."""
    names = [
        field for field in fields(CompileRequest) if field.name in {*options.__annotations__} - {*without}
    ]

    def decorate(function: F) -> F:
        own = inspect.signature(function)
        before = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
        shown = [
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type
            )
            for field in names
        ]
        signature = own.replace(parameters=[*before, *shown])

        @wraps(function)
        def called(*values: Any, **keywords: Any) -> Any:
            signature.bind(*values, **keywords)
            return function(*values, **keywords)

        called.__signature__ = signature  # type: ignore[attr-defined]
        return cast("F", called)

    return decorate


__all__ = [
    "ChoiceOptions",
    "CompileOptions",
    "CompileRequest",
    "MachineOptions",
    "ModelOptions",
    "keywords_of",
]
