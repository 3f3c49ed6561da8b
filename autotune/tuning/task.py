"""A tuning task: one distinct workload of a model, its search, and what is known of it so far."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from autotune.database.records import Key, Origin, Run
from autotune.errors import AutotuneError
from autotune.schedule.knob import Config
from autotune.tuning.measure.interface import Built, Candidate
from autotune.tuning.outcome import Measurement

if TYPE_CHECKING:
    from autotune.graph.program import AnyWorkload
    from autotune.tuning.search import Proposal, Search
    from search_spaces.space import Space

_HOPELESS = 24
"""After so many runs without a single one that worked, a task is given up."""
_KEPT = 3
PLATEAU = 32
"""After so many runs that brought nothing beyond noise, others have a better use for the next."""
_NOISE = 0.01


@dataclass
class Task:
    """One workload. ``weight`` is how many dispatches of the model have it; ``names`` are theirs.

    ``default`` is the configuration used when nothing is tuned; ``curve`` is the best latency in ns
    after each run, infinite while none worked. ``known`` maps trace keys to their outcomes.
    """

    names: Sequence[str]
    workload: AnyWorkload
    space: Space
    search: Search
    default: Config
    seed: int = 0
    most: int | None = None
    """No more runs than this, those of earlier jobs included; None for no limit."""
    known: dict[str, Measurement] = field(default_factory=dict)
    curve: list[float] = field(default_factory=list)
    default_ns: float | None = None
    default_trace: str = ""
    no_reference: str = ""
    """Why its candidates cannot be checked, if they cannot: then none is measured."""
    last_run_id: int = 0
    built: dict[str, Built] = field(default_factory=dict)
    """Code of the default and of the fastest candidates by trace key, so that it is not built again."""

    @property
    def name(self) -> str:
        """The first dispatch's name, and how many more there are."""
        more = f" ×{self.weight}" if self.weight > 1 else ""
        return self.names[0] + more

    @property
    def weight(self) -> int:
        """How often the model executes this workload."""
        return len(self.names)

    @property
    def key(self) -> Key:
        """What its runs are stored under."""
        return Key(self.workload.key, self.space.target.key, self.space.key)

    @property
    def best_ns(self) -> float:
        """The best latency known; infinite while nothing worked."""
        return self.curve[-1] if self.curve else float("inf")

    @property
    def hopeless(self) -> bool:
        """Whether everything fails."""
        return len(self.curve) >= _HOPELESS and self.best_ns == float("inf")

    @property
    def room(self) -> float:
        """How many runs it may still have."""
        return float("inf") if self.most is None else max(0, self.most - len(self.curve))

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to try."""
        return self.search.exhausted or self.hopeless or not self.room or bool(self.no_reference)

    @property
    def on_plateau(self) -> bool:
        """Whether the last :data:`PLATEAU` runs brought nothing beyond noise."""
        runs = len(self.curve)
        return runs > PLATEAU and self.best_ns > (1 - _NOISE) * self.curve[-1 - PLATEAU]

    def candidate(self, config: Config) -> Candidate:
        """What the measurer needs to know; the steps themselves where only this process can tell them."""
        made = Candidate(self.workload.text, self.space.target.to_json(), config, self.seed)
        if self.space.sketch is None:
            return made
        try:
            return replace(made, trace=self.space.sketch.bind(config).to_json())
        except AutotuneError as error:
            return replace(made, refused=str(error))

    def tell(self, proposal: Proposal, built: Built, measurement: Measurement, origin: Origin) -> None:
        """Take the outcome of a proposal; a schedule that is known already adds nothing to the curve."""
        trace_key = built.trace_key
        ns = measurement.latency_ns
        self.search.tell(proposal, ns if measurement.latency else None)
        if origin is Origin.DEFAULT and measurement.latency:
            self.default_ns = ns
        if trace_key not in self.known:
            self.known[trace_key] = measurement
            self.curve.append(min(self.best_ns, ns))
        if measurement.latency:
            self._keep(built, origin)

    def keep_default(self, built: Built) -> None:
        """The code of the default schedule, where an earlier session measured it."""
        self.default_trace = built.trace_key
        self.built[built.trace_key] = built

    def _keep(self, built: Built, origin: Origin) -> None:
        self.built[built.trace_key] = built
        if origin is Origin.DEFAULT:
            self.default_trace = built.trace_key
        ranked = sorted(self.built.keys() & self.known.keys(), key=lambda key: self.known[key].latency_ns)
        for key in ranked[_KEPT:]:
            if key != self.default_trace:
                del self.built[key]

    def recall(self, runs: Sequence[Run]) -> None:
        """Take runs from the database: of an earlier session, or of another process."""
        for run in runs:
            self.last_run_id = max(self.last_run_id, run.id or 0)
            if run.trace_key in self.known:
                continue
            self.known[run.trace_key] = Measurement(run.outcome, run.latency, run.error, run.message)
            self.search.add(json.loads(run.config_json), run.latency.min_ns if run.latency else None)
            self.curve.append(min(self.best_ns, run.latency_ns))
            if run.origin is Origin.DEFAULT and run.latency:
                self.default_ns = run.latency_ns


__all__ = ["PLATEAU", "Task"]
