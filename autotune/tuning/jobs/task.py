"""A tuning task: one distinct workload of a model, its search, and what is known of it so far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from autotune.database.inside import Estimate, estimates
from autotune.database.posterior import UNLIKELY, chance_inside
from autotune.database.records import (
    Comparison,
    Footprint,
    Key,
    Origin,
    Outcome,
    Reading,
    Run,
    crash_message,
    outcome_inside,
)
from autotune.errors import AutotuneError
from autotune.schedule.knob import Config
from autotune.tuning.measure.interface import Built, Candidate
from autotune.tuning.measure.outcome import Measurement

if TYPE_CHECKING:
    from autotune.graph.program import AnyWorkload
    from autotune.tuning.search.study import Proposal, Search
    from search_spaces.space import Space

_HOPELESS = 24
"""After so many runs without a single one that worked, a task is given up."""
_KEPT = 6
_LEFT = 8
"""So many runs that an earlier session read alone are taken up again."""
_NOISE = 0.01


@dataclass
class Task:
    """One workload. ``weight`` is how many dispatches of the model have it; ``names`` are theirs.

    ``default`` is the configuration used when nothing is tuned; ``curve`` is the best latency in ns
    after each run, infinite while none worked. ``known`` maps trace keys to their outcomes alone, ``inside`` to what
    in-model measurements say of them.
    """

    names: Sequence[str]
    workload: AnyWorkload
    space: Space
    search: Search
    default: Config
    seed: int = 0
    most: int | None = None
    """No more runs than this, those of earlier jobs included; None for no limit."""
    floor_ns: float = 0.0
    """The latency that no schedule undercuts."""
    expected_ns: float = 0.0
    """The cost model's latency of the default; 0 where there is none."""
    alone: bool = True
    """There is no model to read candidates inside: they count by what they take alone."""
    job: str = ""
    known: dict[str, Measurement] = field(default_factory=dict)
    footprints: dict[str, Footprint] = field(default_factory=dict)
    """The footprints of schedules, by trace key, as far as they are known."""
    codes: dict[str, str] = field(default_factory=dict)
    """The first schedule that gave some machine code, by the key of the code: its readings are those of all others."""
    inside: dict[str, Estimate] = field(default_factory=dict)
    curve: list[float] = field(default_factory=list)
    default_ns: float | None = None
    """Inside the model as soon as it was read there."""
    default_trace: str = ""
    no_reference: str = ""
    """Why its candidates cannot be checked, if they cannot: then none is measured."""
    last_run_id: int = 0
    built: dict[str, Built] = field(default_factory=dict)
    """Code of the default and of the fastest candidates by trace key, so that it is not built again."""
    left: list[Config] = field(default_factory=list)
    """The runs that an earlier session has checked but not measured inside the model."""
    near: list[Config] | None = None
    """The schedules of near workloads that are still to be tried; None until somebody has looked."""
    stale: frozenset[int] = frozenset()
    """Numbers of runs of earlier sessions whose code is, as far as was looked, not what their schedules give now: they
    are learnt from, and the best of them are measured first."""
    unchecked: list[Run] = field(default_factory=list)
    """Runs of earlier sessions that count as long as nobody has looked if their schedules still give the code that was
    measured; the search hears of them afterwards."""
    run_codes: dict[str, str] = field(default_factory=dict)
    """The key of the generated code that each known run of the database was measured with, by trace key."""
    outdated: list[Config] = field(default_factory=list)
    """The fastest of them, which are measured first."""
    tried_near: int = 0
    """The number of runs of this kind, those of earlier sessions included."""
    _begun: bool = False
    """Its default is being measured, or was."""

    @property
    def name(self) -> str:
        """The first dispatch's name, and how many more there are."""
        more = f" ×{self.weight}" if self.weight > 1 else ""
        return self.names[0] + more

    @property
    def weight(self) -> int:
        """Return the number of executions of this workload in the model."""
        return len(self.names)

    @cached_property
    def key(self) -> Key:
        """Return the key under which its runs are stored."""
        return Key(self.workload.key, self.space.target.key, self.space.key)

    @property
    def best_ns(self) -> float:
        """The best latency known; infinite while nothing worked."""
        return self.curve[-1] if self.curve else float("inf")

    @property
    def hopeless(self) -> bool:
        """Return whether everything fails."""
        return len(self.curve) >= _HOPELESS and self.best_ns == float("inf")

    @property
    def room(self) -> float:
        """Return the number of runs that it may still have."""
        return float("inf") if self.most is None else max(0, self.most - len(self.curve))

    @property
    def finished(self) -> bool:
        """Return whether there is nothing left to try."""
        return self.search.exhausted or self.hopeless or not self.room or bool(self.no_reference)

    @property
    def untried(self) -> bool:
        """Return whether its default is still to be measured."""
        if self.no_reference or any(run.config == self.default for run in self.unchecked):
            return False
        self._begun = self._begun or self.default in self.search  # a search forgets nothing
        return not self._begun

    @property
    def at_floor(self) -> bool:
        """Return whether nothing is left to gain."""
        return self.best_ns <= (1 + _NOISE) * self.floor_ns

    def candidate(self, config: Config) -> Candidate:
        """Return the candidate for the measurer; the steps themselves where only this process can tell them."""
        made = Candidate(self.workload.text, self.space.target.to_json(), config, self.seed)
        if self.space.sketch is None:
            return made
        try:
            return replace(made, trace=self.space.sketch.bind(config).to_json())
        except AutotuneError as error:
            return replace(made, refused=str(error))

    @property
    def default_alone_ns(self) -> float:
        """The default's latency alone; infinite while it is unknown."""
        found = self.known.get(self.default_trace)
        return found.latency_ns if found else math.inf

    @property
    def default_code(self) -> Built | None:
        """The code of the default schedule; None while there is none, or where an earlier session built it."""
        return self.built.get(self.default_trace)

    def unlikely(self, latency_ns: float) -> bool:
        """Return whether a candidate with this isolated latency is unlikely to be faster in the model.

        It counts over the default, which was timed at another moment, or over the median candidate if that is slower.
        """
        timed = sorted(found.latency_ns for found in self.known.values() if found.latency)
        usual = max(self.default_alone_ns, timed[len(timed) // 2] if timed else 0.0)
        return usual < math.inf and chance_inside(latency_ns / usual) < UNLIKELY

    def score_ns(self, trace_key: str) -> float:
        """Return the latency of a run as far as it is known: inside the model, else no better than the default;
        infinite for a failure."""
        found, alone = self.known[trace_key], self.default_alone_ns
        if self.alone or not found.latency or alone == math.inf or self.default_ns is None:
            return found.latency_ns
        estimate = self.inside.get(trace_key)
        return self.default_ns * (estimate.ratio if estimate else max(1.0, found.latency_ns / alone))

    def leaders(self, count: int) -> list[str]:
        """Return the fastest runs inside the model, fastest first, as far as they seem faster than the default."""
        works = {trace for trace, found in self.known.items() if found.latency} - {self.default_trace}
        found = {t: e.ratio for t, e in self.inside.items() if e.ratio < 1 and t in works}
        return sorted(found, key=found.__getitem__)[:count]

    def refused(self, built: Built, origin: Origin) -> Measurement | None:
        """Return the measurement of a candidate that takes more than its share of scratch memory, whatever its
        latency; the default may, where nothing takes less."""
        from cost_models.machine import Machine
        from cost_models.terms.memory import most_scratch

        takes, default = built.footprint, self.footprints.get(self.default_trace)
        if takes is None or default is None or origin is Origin.DEFAULT or self.space.target.group_items:
            return None
        most = max(most_scratch(Machine.of(self.space.target), self.workload.bytes), default.scratch_bytes)
        if takes.scratch_bytes <= most:
            return None
        text = f"{takes.scratch_bytes} bytes of scratch memory: more than the {most:.0f} that it may take"
        return Measurement(Outcome.ILLEGAL, message=text)

    def check(self, built: Built, measurement: Measurement, origin: Origin) -> None:
        """Take what a candidate was alone."""
        self.known.setdefault(built.trace_key, measurement)
        if built.footprint is not None:
            self.footprints[built.trace_key] = built.footprint
        if measurement.latency:
            self.built[built.trace_key] = built
            if built.code_key:
                self.codes.setdefault(built.code_key, built.trace_key)
        if origin is Origin.DEFAULT and measurement.latency:
            self.default_trace = built.trace_key
            self.default_ns = self.default_ns or measurement.latency_ns

    def read(self, readings: Sequence[Reading]) -> None:
        """Store in-model measurements: all with the same default beside them."""
        for reading in readings:
            self.inside[reading.trace_key] = self.inside.get(reading.trace_key, Estimate()) + reading
        if readings and self.default_ns:
            scale = readings[-1].default_ns / self.default_ns
            self.curve = [scale * ns for ns in self.curve]
            self.default_ns = readings[-1].default_ns

    def compare(self, rows: Sequence[Comparison]) -> None:
        """Take a comparison of schedules in the model into account."""
        for row in rows:
            if row.name in self.known:
                self.inside[row.name] = self.inside.get(row.name, Estimate()) + row

    def crashed_inside(self, traces: Mapping[str, str]) -> None:
        """Note that candidates that worked in isolation have ended their process inside the model, for these
        reasons: they have failed."""
        for trace, reason in traces.items():
            self.known[trace] = _failed_inside(crash_message(reason))
            self.built.pop(trace, None)

    def distrust(self, host: str, reason: str) -> None:
        """Leave out what a node has measured alone: the default stays, and what others have measured in the model."""
        for trace, found in [*self.known.items()]:
            if found.host == host and found.latency and trace not in (self.default_trace, *self.inside):
                self.known[trace] = Measurement(Outcome.DISTRUSTED, message=reason, host=host)
                self.built.pop(trace, None)

    @property
    def crashes(self) -> list[str]:
        """Return the reasons why candidates that worked in isolation have ended their process inside the model."""
        return [m.message for m in self.known.values() if outcome_inside(m.message)]

    def tell(self, proposal: Proposal, trace_key: str) -> None:
        """End a proposal by what is known of its schedule."""
        self.repeat(proposal, trace_key)
        self.curve.append(min(self.best_ns, self.score_ns(trace_key)))
        self._forget_code()

    def repeat(self, proposal: Proposal, trace_key: str) -> None:
        """End a proposal of a schedule that another one gave before."""
        takes = self.footprints.get(trace_key)
        self.search.tell(proposal, self._over_default(trace_key), takes, self._about(trace_key))

    def _over_default(self, trace_key: str) -> float | None:
        """Return the value of a trial: its latency over the default's, which drifts with it; in µs where the default
        never worked. None for a failure."""
        ns = self.score_ns(trace_key)
        return None if ns == math.inf else ns / (self.default_ns or 1e3)

    def prunes(self, proposal: Proposal | None, measurement: Measurement) -> bool:
        """Return whether the pruner gives a candidate up by its isolated latency: it is not measured in the model.

        The default is never given up.
        """
        if proposal is None or not measurement.latency:
            return False
        alone = self.default_alone_ns if self.default_alone_ns < math.inf else 1e3
        return self.search.prunes(
            proposal, measurement.latency_ns / alone, ever=proposal.config != self.default
        )

    def _about(self, trace_key: str) -> dict[str, str | float]:
        """Return the attributes of a schedule's trial."""
        found, inside = self.known[trace_key], self.inside.get(trace_key)
        about: dict[str, str | float] = {
            "layer": self.names[0],
            "outcome": found.outcome.value,
            "trace": trace_key,
        }
        if found.latency:
            about |= {"latency_ns": self.score_ns(trace_key), "isolated_ns": found.latency_ns}
        if found.message:
            about["message"] = found.message
        if inside is not None:
            about |= {"in_model_ratio": inside.mean, "in_model_processes": inside.processes}
        return about

    def keep_default(self, built: Built) -> None:
        """Store the code of the default schedule, where an earlier session measured it."""
        self.default_trace = built.trace_key
        self.built[built.trace_key] = built
        known = self.known.get(built.trace_key)
        if built.code_key and known is not None and known.latency:
            self.codes.setdefault(built.code_key, built.trace_key)

    def keep_code(self, built: Built, run: Run) -> None:
        """Keep the code of a run that an earlier session measured, if that is what was measured."""
        if built.code == run.code and not built.failed:
            self.built[built.trace_key] = built

    def forget(self, trace_key: str) -> None:
        """Know nothing any more of a schedule that was measured with other code."""
        for known in (self.known, self.inside, self.run_codes, self.footprints):
            known.pop(trace_key, None)

    def measured_otherwise(self, built: Built) -> bool:
        """Return whether what is known of a schedule was measured with other code."""
        return self.run_codes.get(built.trace_key, built.code) != built.code

    def settle(self) -> None:
        """Take it that the unchecked runs were measured with the code that their schedules give: the search hears of
        them."""
        runs, self.unchecked = self.unchecked, []
        for run in runs:
            value, about = self._over_default(run.trace_key), self._about(run.trace_key)
            self.search.add(run.config, value, run.footprint, about, recorded=run.job == self.job)

    def drop_unchecked(self) -> list[Run]:
        """Return the unchecked runs, and know nothing of them any more; nothing else was measured so far."""
        runs, self.unchecked = self.unchecked, []
        for known in (self.known, self.inside, self.run_codes, self.footprints):
            known.clear()
        self.curve, self.left, self.tried_near = [], [], 0
        self.default_trace, self.default_ns = "", None
        return runs

    def may_be_stale(self, run: Run) -> bool:
        """Return whether a run is of other code than its schedule gives, or nobody has looked yet."""
        return run.id in self.stale or any(run.id == other.id for other in self.unchecked)

    @staticmethod
    def past_runs(runs: Sequence[Run]) -> list[Run]:
        """Return the runs that a later one replaced: with the same schedule, or by a default that was measured again
        because its code changed."""
        newest: dict[str, Run] = {}
        for run in sorted(runs, key=lambda run: run.created):
            newest[run.trace_key] = run
        replaced = [run for run in runs if newest[run.trace_key] is not run]
        again = [newest[run.trace_key].created for run in replaced if run.origin is Origin.DEFAULT]
        since = max(again, default=0.0)
        return [run for run in runs if newest[run.trace_key] is not run or run.created < since]

    @staticmethod
    def telling_runs(runs: Sequence[Run]) -> list[Run]:
        """Return the runs whose code says whether that of all is still what was measured: the default and the fastest,
        which a comparison builds anyway."""
        worked = [run for run in runs if run.latency and not run.crashed]
        default = [run for run in worked if run.origin is Origin.DEFAULT][-1:]
        fastest = min(worked, key=lambda run: run.confirmed_ns or run.latency_ns, default=None)
        return list({run.id: run for run in (*default, *([] if fastest is None else [fastest]))}.values())

    def find_stale(self, runs: Sequence[Run], readings: Sequence[Reading]) -> list[tuple[Config, float]]:
        """Take it that runs are stale; returns what worked of them, the fastest first, with latencies in ns."""
        self.stale |= {run.id for run in runs if run.id is not None}
        worked = [run for run in runs if run.latency and not run.crashed]
        alone = next((run.latency_ns for run in worked if run.origin is Origin.DEFAULT), math.inf)
        inside = estimates(readings)

        def latency(run: Run) -> float:
            if self.alone or alone == math.inf or run.origin is Origin.DEFAULT:
                return run.latency_ns
            found = inside.get(run.trace_key)
            return alone * (found.ratio if found else max(1.0, run.latency_ns / alone))

        found = sorted(((run.config, latency(run)) for run in worked), key=lambda one: one[1])
        return [one for one in found if self.space.legal_among([one[0]])[1][0]]

    def _forget_code(self) -> None:
        """Keep the code of the default and of the fastest."""
        ranked = sorted(self.built.keys() & self.known.keys(), key=self.score_ns)
        for key in ranked[_KEPT:]:
            if key != self.default_trace:
                del self.built[key]

    def recall(
        self,
        runs: Sequence[Run],
        readings: Sequence[Reading] = (),
        compared: Sequence[Comparison] = (),
        *,
        unchecked: bool = False,
    ) -> None:
        """Take runs from the database, of an earlier session or of another process, and all measurements of them inside
        models: readings and comparisons."""
        fresh = [run for run in runs if run.trace_key not in self.known]
        self.tried_near += sum(run.origin is Origin.NEAR for run in fresh)
        taken = {*self.known, *(run.trace_key for run in fresh)}
        readings = [reading for reading in readings if reading.trace_key in taken]
        self.inside = estimates(readings)
        self.run_codes |= {run.trace_key: run.code for run in fresh}
        self.last_run_id = max([self.last_run_id, *(run.id or 0 for run in runs)])
        for run in fresh:
            found = Measurement(run.outcome, run.latency, run.error, run.message)
            self.known[run.trace_key] = _failed_inside(run.crashed) if run.crashed else found
            mine = run.config == self.default or (run.origin is Origin.DEFAULT and not self.default_trace)
            if mine and run.latency:
                self.default_trace, self.default_ns = run.trace_key, run.latency_ns
        self.compare(compared)
        if readings and self.default_ns:
            self.default_ns = readings[-1].default_ns
        for run in fresh:
            if run.footprint is not None:
                self.footprints[run.trace_key] = run.footprint
            self.curve.append(min(self.best_ns, self.score_ns(run.trace_key)))
        self.left += self._unread(fresh)
        self.unchecked += fresh
        if not unchecked:
            self.settle()

    def _unread(self, runs: Sequence[Run]) -> list[Config]:
        """Return the fastest of those that are still to be measured in the model."""
        if self.alone or self.default_alone_ns == math.inf:
            return []
        found = [
            run
            for run in runs
            if self.known[run.trace_key].latency
            and run.trace_key not in {*self.inside, self.default_trace}
            and not self.unlikely(run.latency_ns)
        ]
        return [run.config for run in sorted(found, key=lambda run: run.latency_ns)[:_LEFT]]


def _failed_inside(message: str) -> Measurement:
    return Measurement(outcome_inside(message) or Outcome.CRASHED, message=message)


__all__ = ["Task"]
