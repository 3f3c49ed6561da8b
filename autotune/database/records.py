"""The values that go into and come out of the tuning database."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from autotune.database.columns import (
    RecordLayout,
    StoredColumn,
    moment,
    number,
    positive,
    storable,
    stored,
    text,
    whole,
    without_nan,
)
from autotune.errors import DatabaseError


class Outcome(StrEnum):
    """The outcome of measuring one candidate; exactly one per measured run."""

    OK = "ok"
    ILLEGAL = "illegal"
    """The schedule broke a rule before any code was made."""
    COMPILE_ERROR = "compile_error"
    TIMEOUT = "timeout"
    """Building or running took longer than the candidate's limit, which does not include the start of a worker;
    the worker was killed."""
    OUT_OF_MEMORY = "out_of_memory"
    """It took more memory than a candidate may."""
    CRASHED = "crashed"
    """The worker died of it (a signal, or it left)."""
    WRONG_RESULT = "wrong_result"
    """The output differs from the reference."""
    OUT_OF_BOUNDS = "out_of_bounds"
    """It wrote to memory that is not its own: to an input or a constant, or beside an output."""
    DISTRUSTED = "distrusted"
    """It worked, on a node that was then left out of its fleet: what it took is not used."""


class Origin(StrEnum):
    """Why a candidate was measured."""

    DEFAULT = "default"
    """The schedule that is used when nothing was tuned: every workload's run number one."""
    SEARCH = "search"
    NEAR = "near"
    """Found for a near workload: one of other sizes, on another target, or the same with other code."""


@dataclass(frozen=True)
class Key:
    """The key by which a schedule is looked up: three SHA-256 hex strings."""

    workload: str
    target: str
    space: str


@dataclass(frozen=True)
class Latency:
    """Statistics over ``n`` timed repeats of one candidate, nanoseconds for one execution.

    ``spread_ns`` is the distance between the first and the third quartile.
    """

    n: int
    min_ns: float
    median_ns: float
    spread_ns: float


@dataclass(frozen=True)
class Footprint:
    """The resources of a dispatch beside time.

    ``memory_bytes``: workspaces and the scratch memory of all workers while it runs, without its inputs and outputs.
    ``artifact_bytes``: its object file, and its constants as the model reads them (packed weights, if it packs them).
    ``scratch_bytes`` is the scratch memory in ``memory_bytes``, which all dispatches of a model share.
    """

    memory_bytes: int
    artifact_bytes: int
    scratch_bytes: int = 0

    @property
    def workspace_bytes(self) -> int:
        """The rest of the memory, which lies in the model's arena."""
        return self.memory_bytes - self.scratch_bytes


CRASHED_INSIDE = "crashed inside the model"
"""The message of what worked alone, and ended its process there; if it is known, the reason follows it."""
TIMED_OUT_INSIDE = "timed out inside the model"
"""The same of what was ended there because it hung."""
HUNG = "it hung: "
"""The begin of such a reason."""


def _reason(value: Any, name: str) -> str:
    return text(value, name) or CRASHED_INSIDE


@dataclass(frozen=True)
class Run:
    """One measured candidate. ``latency`` is set exactly when ``outcome`` is ok.

    ``error`` is the largest difference from the reference over the reference's largest magnitude.
    ``config_json`` holds the knob values that made the trace; ``created`` is in seconds since 1970,
    UTC. ``confirmed_ns`` is the median latency in the newest comparison inside a model, ``inside`` that model's
    name; None and empty if it never was. ``footprint`` is None for what was never built, and for runs of versions that
    did not store it. ``crashed`` says how it ended its process inside a model, though it worked alone; empty if it
    did not. ``code`` is the key of the generated code that was measured
    (:class:`autotune.codegen.code.DispatchCode`); empty where none was generated, and in runs of versions that did not
    store it. A run is *stale* if its schedule now gives other code.

    Each field declares its columns, from which the rest of the database derives them; a new one is stored as soon as
    it is declared here, with the version after ``schema.VERSION`` as its ``since``, which becomes that version.
    """

    key: Key = field(
        metadata=stored(
            StoredColumn("workload_key", part="workload", refers="workloads.key", dtype="str"),
            StoredColumn("target_key", part="target", refers="targets.key", dtype="str"),
            StoredColumn("space_key", part="space", refers="spaces.key", dtype="str"),
            make=Key,
            provenance=True,
        )
    )
    trace_key: str = field(
        metadata=stored(StoredColumn("trace_key", "text(64)", dtype="str"), provenance=True)
    )
    trace_json: str = field(metadata=stored(StoredColumn("trace_json", dtype="str"), provenance=True))
    config_json: str = field(metadata=stored(StoredColumn("config_json")))
    outcome: Outcome = field(
        metadata=stored(
            StoredColumn("outcome", "text(16)", lambda value, _: Outcome(value), str, dtype="str")
        )
    )
    latency: Latency | None = field(
        default=None,
        metadata=stored(
            StoredColumn("n", "integer", whole, part="n", empty=0, shown="repeats", dtype="int64"),
            *(
                StoredColumn(
                    f"latency_{name}_ns",
                    "float",
                    read,
                    part=f"{name}_ns",
                    nullable=True,
                    shown=shown,
                    dtype="float64",
                )
                for name, read, shown in (
                    ("min", positive, "latency_ns"),
                    ("median", positive, "median_ns"),
                    ("spread", number, "spread_ns"),
                )
            ),
            make=Latency,
            present="latency_min_ns",
        ),
    )
    error: float | None = field(
        default=None,
        metadata=stored(
            StoredColumn("error", "float", number, without_nan, nullable=True, dtype="float64"),
            present="error",
        ),
    )
    message: str = field(default="", metadata=stored(StoredColumn("message", write=storable, dtype="str")))
    origin: Origin = field(
        default=Origin.SEARCH,
        metadata=stored(StoredColumn("origin", "text(16)", lambda value, _: Origin(value), str, dtype="str")),
    )
    host: str = field(
        default="", metadata=stored(StoredColumn("host", "text(128)", dtype="str"), provenance=True)
    )
    versions: str = field(default="", metadata=stored(StoredColumn("versions", dtype="str"), provenance=True))
    seed: int = field(
        default=0, metadata=stored(StoredColumn("seed", "bigint", whole, dtype="int64"), provenance=True)
    )
    job: str = field(
        default="",
        metadata=stored(
            StoredColumn(
                "job", write=lambda value: value or None, nullable=True, refers="jobs.id", dtype="str"
            ),
            present="job",
            none="",
            provenance=True,
        ),
    )
    created: float = field(
        default=0.0,
        metadata=stored(StoredColumn("created", "float", moment, lambda value: value or time.time())),
    )
    id: int | None = field(
        default=None, metadata=stored(StoredColumn("id", read=lambda value, _: value, stored=False))
    )
    confirmed_ns: float | None = field(
        default=None,
        metadata=stored(
            StoredColumn("confirmed_ns", "float", number, stored=False, dtype="float64"),
            present="confirmed_ns",
        ),
    )
    inside: str = field(
        default="",
        metadata=stored(StoredColumn("inside", stored=False, dtype="str"), present="inside", none=""),
    )
    footprint: Footprint | None = field(
        default=None,
        metadata=stored(
            *(
                StoredColumn(name, "bigint", whole, part=name, nullable=True, since=since, dtype="Int64")
                for name, since in (("memory_bytes", 7), ("artifact_bytes", 7), ("scratch_bytes", 9))
            ),
            make=Footprint,
            present="scratch_bytes",
        ),
    )
    code: str = field(
        default="",
        metadata=stored(StoredColumn("code", "text(64)", since=12, before="", dtype="str"), provenance=True),
    )
    crashed: str = field(
        default="",
        metadata=stored(StoredColumn("crashed", read=_reason, stored=False), present="crashed", none=""),
    )

    @property
    def config(self) -> dict[str, int | str | bool]:
        """The knob values; raises DatabaseError for a damaged row."""
        try:
            found = json.loads(self.config_json)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise DatabaseError(f"the configuration of run {self.id} is no JSON object")
        return found

    @property
    def latency_ns(self) -> float:
        """The minimum, or infinity for a candidate that failed."""
        return self.latency.min_ns if self.latency else float("inf")


RUNS = RecordLayout(Run)
"""The columns of runs."""


@dataclass(frozen=True)
class Ratio:
    """A candidate's latency over the incumbent's: the median of the readings' ratios, and its 95 % interval.

    The interval is None where there were too few readings for one. Printed it is a speed-up, or what there is
    instead of one.

    >>> print(Ratio(0.8, (0.78, 0.82)), Ratio(0.98, (0.95, 1.01)), Ratio(0.5), sep="; ")
    1.25× (1.22× to 1.28×); no change (0.99× to 1.05×); unconfirmed
    """

    median: float
    interval: tuple[float, float] | None = None

    @property
    def speedup(self) -> float | None:
        """Return the speed-up of the candidate; None where the interval does not exclude that nothing changed."""
        return 1 / self.median if self.changed else None

    @property
    def changed(self) -> bool:
        """Return whether the interval excludes 1."""
        return self.interval is not None and not self.interval[0] <= 1 <= self.interval[1]

    def over(self, other: Ratio) -> Ratio:
        """Return this ratio over another one to the same incumbent; the interval holds the quotient if
        both hold theirs.

        >>> Ratio(0.9, (0.8, 1.0)).over(Ratio(0.5, (0.4, 0.5))), Ratio(0.9).over(Ratio(0.5, (0.4, 0.6)))
        (Ratio(median=1.8, interval=(1.6, 2.5)), Ratio(median=1.8, interval=None))
        """
        median = self.median / other.median
        if self.interval is None or other.interval is None:
            return Ratio(median)
        return Ratio(median, (self.interval[0] / other.interval[1], self.interval[1] / other.interval[0]))

    @staticmethod
    def from_json(made: Mapping[str, Any]) -> Ratio:
        """Return what :meth:`to_json` has described; raises KeyError, TypeError and ValueError for anything else.

        >>> Ratio.from_json(Ratio(0.8, (0.78, 0.82)).to_json())
        Ratio(median=0.8, interval=(0.78, 0.82))
        """
        bounds = made["interval"]
        interval = None if bounds is None else (float(bounds[0]), float(bounds[1]))
        return Ratio(float(made["ratio"]), interval)

    def to_json(self) -> dict[str, Any]:
        """Return the speed-up, null where there is none, and what it follows from."""
        return {"speedup": self.speedup, "ratio": self.median, "interval": self.interval, "text": str(self)}

    def __str__(self) -> str:
        if self.interval is None:
            return "unconfirmed"
        low, high = self.interval
        if low == high == 1:
            return "no change: the same machine code"
        bounds = f"({1 / high:.2f}× to {1 / low:.2f}×)"
        return f"{1 / self.median:.2f}× {bounds}" if self.changed else f"no change {bounds}"


def crash_message(reason: str) -> str:
    """Return the message of what ended its process inside a model for a reason; empty where that is not known.

    >>> crash_message("the worker died (SIGSEGV)"), crash_message("")
    ('crashed inside the model: the worker died (SIGSEGV)', 'crashed inside the model')
    >>> crash_message("it hung: profile took longer than 20 s")
    'timed out inside the model: profile took longer than 20 s'
    """
    if reason.startswith(HUNG):
        return f"{TIMED_OUT_INSIDE}: {reason.removeprefix(HUNG)}"
    return f"{CRASHED_INSIDE}: {reason}" if reason else CRASHED_INSIDE


def outcome_inside(message: str) -> Outcome | None:
    """Return the outcome of a run that failed inside a model, by that message; None for any other message.

    >>> outcome_inside(crash_message("it hung: ")), outcome_inside(crash_message("")), outcome_inside("no")
    (<Outcome.TIMEOUT: 'timeout'>, <Outcome.CRASHED: 'crashed'>, None)
    """
    if message.startswith(TIMED_OUT_INSIDE):
        return Outcome.TIMEOUT
    return Outcome.CRASHED if message.startswith(CRASHED_INSIDE) else None


SAME_CODE = Ratio(1.0, (1.0, 1.0))
"""Of a candidate whose machine code is the incumbent's: nothing to read."""


@dataclass(frozen=True)
class PartOfWhole:
    """The part of a candidate in a measurement of the whole model, untuned and with all that is used.

    ``share`` is the part of the latency that all such candidates take together. ``expected`` is the log of its ratio by
    all that was known, over that of ``beside``, ``whole`` the same of the model, and ``error`` the standard deviation
    of what follows for it.
    """

    share: float
    expected: float
    whole: float
    error: float
    beside: str = ""


@dataclass(frozen=True)
class Comparison:
    """One candidate of a site, compared with the others inside a model.

    Of a workload's options ``name`` is the option's and ``key`` covers its regions and their search spaces; of its
    schedules ``name`` is the trace's key, ``key`` that of the search space, and ``run`` the row of the run. ``detail``
    says in JSON what an option is whose name does not, such as a placement. ``latency`` is None, and ``message`` says
    why, for one that failed or is less exact than it declares; ``error`` is its largest difference from the exact
    result over that one's largest magnitude. The incumbent has no ``ratio``. ``load``: the
    processors that other processes took meanwhile. With a ``part`` latency and ratio are those of the whole model.
    ``inside`` names the model; it and ``created`` are set by the database.
    """

    name: str
    key: str
    latency: Latency | None = None
    won: bool = False
    ratio: Ratio | None = None
    run: int | None = None
    error: float | None = None
    message: str = ""
    inside: str = ""
    created: float = 0.0
    detail: str = ""
    load: float = 0.0
    part: PartOfWhole | None = None


@dataclass(frozen=True)
class Reading:
    """The latency of a run inside a model, in one process with an interleaved measurement of whole versions.

    ``ratio``: the median over ``rounds`` of its latency over that of the default schedule, whose median was
    ``default_ns``. ``load``: the processors that other processes took meanwhile. ``inside`` names the model; it and
    ``created`` are set by the database. ``host`` is the node of a fleet that alone has measured it; empty where this
    machine has, or several nodes that agree.
    """

    trace_key: str
    ratio: float
    rounds: int
    default_ns: float
    inside: str = ""
    created: float = 0.0
    load: float = 0.0
    host: str = ""


MODEL = "model"
"""The kind of the workload that stands for a whole model."""
WHOLE = ", whole"
"""The end of the kind of site by which parts of measurements of a whole model are stored."""
DEVICES = "devices"
"""The kind of site by which comparisons of placements are stored, of a model on some devices."""


class Storable(Protocol):
    """A workload of a graph or of a user's own program, as far as it is stored."""

    @property
    def key(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def flops(self) -> int: ...
    @property
    def bytes(self) -> int: ...


@dataclass(frozen=True)
class WorkloadRow:
    """A stored workload: ``text`` parses back, ``flops`` and ``bytes`` are per execution."""

    key: str
    text: str
    kind: str
    flops: int
    bytes: int

    @staticmethod
    def of(workload: Storable) -> WorkloadRow:
        """Return the row of a workload."""
        return WorkloadRow(workload.key, workload.text, workload.kind, workload.flops, workload.bytes)


@dataclass(frozen=True)
class WorkloadSummary:
    """The number of measurements of a workload on a target, and its isolated latencies in ns: first ones, the smallest.

    ``default_ns`` is None where the default schedule was not timed, ``best_ns`` where nothing was. ``ratio`` is that of
    the schedule that won the newest comparison inside a model; None if there was none, or the default won.
    """

    workload_key: str
    target_key: str
    runs: int
    default_ns: float | None
    best_ns: float | None
    ratio: Ratio | None = None


@dataclass(frozen=True)
class JobRow:
    """One tuning job, which may have been stopped and continued.

    ``fingerprint`` is equal for jobs that may continue each other; ``options`` is JSON text;
    ``owner`` names the process that works on it; ``elapsed_s`` counts only the time it worked. ``status`` is JSON text:
    what the job last said of itself, at the time ``updated``; empty of jobs of versions that said nothing.
    """

    id: str
    fingerprint: str
    model: str
    target_key: str
    options: str
    state: str
    owner: str
    elapsed_s: float
    created: float
    updated: float
    status: str = ""

    RUNNING = "running"
    STOPPED = "stopped"
    DONE = "done"


__all__ = [
    "CRASHED_INSIDE",
    "DEVICES",
    "HUNG",
    "MODEL",
    "RUNS",
    "SAME_CODE",
    "TIMED_OUT_INSIDE",
    "WHOLE",
    "Comparison",
    "Footprint",
    "JobRow",
    "Key",
    "Latency",
    "Origin",
    "Outcome",
    "PartOfWhole",
    "Ratio",
    "Reading",
    "Run",
    "WorkloadRow",
    "WorkloadSummary",
    "crash_message",
    "outcome_inside",
]
