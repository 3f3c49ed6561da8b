"""Recording: random candidates of a model's workloads are measured alone and, a part of them, inside the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from autotune.bench import machine
from autotune.bench.replay import choice
from autotune.bench.replay.recording import COLUMNS, CORES, FREE, NOT_FREE, CandidateRecording, RecordingFacts
from autotune.calibration import cores
from autotune.calibration.host import ensure
from autotune.calibration.probe import Probe
from autotune.compiler import divide
from autotune.database import Database
from autotune.database.inside import Estimate
from autotune.database.records import Outcome, Reading
from autotune.errors import MeasureError
from autotune.files import scratch_folder
from autotune.passes.preference import TOLERANCE, Preference
from autotune.schedule.knob import config_to_json
from autotune.target import Target
from autotune.tuning.compare.interleaved import EVERY
from autotune.tuning.compare.sites import Site, Sites
from autotune.tuning.jobs.model import MeasuredModel, work_of
from autotune.tuning.jobs.subject import Subject
from autotune.tuning.jobs.task import Task
from autotune.tuning.measure.inside import InModelReader
from autotune.tuning.measure.interface import Built, Candidate
from autotune.tuning.measure.pool import ProcessPool
from autotune.tuning.search.online_model import OnlineModel
from autotune.tuning.search.samplers import factory
from autotune.tuning.search.study import Search

if TYPE_CHECKING:
    from autotune.compiler.dividing import Model
    from autotune.passes.partition import Partition

Say = Callable[[str], None]
_BESIDE = 5
"""So many of the default's last readings count together: one that was disturbed would make its candidates look fast."""
_AGAIN, _TURNS_AGAIN = 0.1, 5
"""This share, the fastest, is read again, in so many turns."""
_ATTEMPTS = 3
"""So often is a workload timed, until the cores were free."""


@dataclass(frozen=True)
class Effort:
    """The extent of a recording: ``candidates`` of each workload (all, where a space has fewer),
    each timed ``turns`` times; the fastest ``share`` of them inside the model too, in so many ``processes``.
    ``workloads``: of so many diverse workloads (:func:`autotune.bench.replay.choice.diverse`), None for all."""

    candidates: int = 320
    turns: int = 3
    share: float = 1 / 3
    processes: int = 2
    seed: int = 0
    workloads: int | None = None


@dataclass
class _Sample:
    """The candidates of one workload, the default first, and what was read of them by machine code."""

    subject: Subject
    built: list[Built]
    outcomes: dict[str, Outcome]
    ratios: dict[str, list[float]]
    default_ns: list[float]
    inside: list[Reading]
    undisturbed: bool = True

    def ratio(self, built: Built) -> float:
        """The median of the turns; missing for a candidate that failed."""
        ratios = self.ratios.get(built.code_key)
        return float(np.median(ratios)) if ratios else np.nan

    def fastest(self, share: float) -> list[Built]:
        """The fastest alone, one of each machine code, without the default."""
        codes = {built.code_key: built for built in reversed(self.built) if built.code_key in self.ratios}
        codes.pop(self.built[0].code_key)
        return sorted(codes.values(), key=self.ratio)[: round(share * len(self.built))]


def record(
    model: Model, names: Sequence[str], target: Target, effort: Effort, say: Say
) -> list[CandidateRecording]:
    """Measure random candidates of the workloads of ``model`` whose dispatches have one of ``names``, shell patterns;
    without any, all. Raises UsageError for a name that none has, and what compiling and measuring raise.

    A workload is timed again where other work, or the host of a virtual machine, had cores meanwhile, and its recording
    says so if that is how it stayed.
    """
    ensure(target, say)
    parts, preference = divide(model, target=target), Preference(TOLERANCE)
    subjects, sites = work_of(parts, target, preference)
    wanted = choice.named(subjects, names)
    if effort.workloads is not None:
        wanted = choice.diverse(wanted, effort.workloads, effort.seed)
    probe = Probe(target)
    with closing(ProcessPool.started(target.cores)) as pool:
        samples = [_alone(subject, pool, probe, effort, say) for subject in wanted]
    if samples and effort.share:
        _read_inside(samples, parts, subjects, sites, effort, say)
    facts = machine.facts()
    return [_recording(sample, parts.name, facts) for sample in samples]


def _alone(subject: Subject, pool: ProcessPool, probe: Probe, effort: Effort, say: Say) -> _Sample:
    """The candidates of a workload, timed interleaved with its default: again, if the cores were not free meanwhile."""
    sample = _built(subject, pool, effort, say)
    for _ in range(_ATTEMPTS):
        before = cores.are_free(probe)
        _time_all(sample, pool, effort, say)
        sample.undisturbed = before and cores.are_free(probe)
        if sample.undisturbed:
            break
        say(f"{subject.names[0]}: not all cores were free, so that parallel candidates look slow")
    return sample


def _built(subject: Subject, pool: ProcessPool, effort: Effort, say: Say) -> _Sample:
    """The candidates of a workload, the default first; nothing is timed yet."""
    rng = np.random.default_rng(effort.seed)
    drawn = subject.space.random(rng, effort.candidates)
    configs = [subject.default, *(config for config in drawn if config != subject.default)]
    say(f"{subject.names[0]}: building {len(configs)} of {subject.space.size():,} candidates")
    text = subject.space.target.to_json()
    built = pool.build([Candidate(subject.workload.text, text, config, effort.seed) for config in configs])
    return _Sample(subject, built, {}, {}, [], [])


def _time_all(sample: _Sample, pool: ProcessPool, effort: Effort, say: Say) -> None:
    """Time the candidates, one of each machine code, interleaved with the default; readings of before are forgotten."""
    rng = np.random.default_rng(effort.seed)
    codes = {one.code_key: one for one in reversed(sample.built) if one.code_key}
    sample.default_ns.clear()
    sample.ratios = {code: [] for code in codes}
    say(f"{sample.subject.names[0]}: timing {len(codes)} of them, {effort.turns} turns each")
    _take_turns(sample, list(codes.values()), effort.turns, rng, pool)
    _read_again(sample, rng, pool)


def _read_again(sample: _Sample, rng: np.random.Generator, pool: ProcessPool) -> None:
    """Replace the readings of the fastest: the least of many readings is the luckiest."""
    fastest = sample.fastest(_AGAIN)
    for one in fastest:
        sample.ratios[one.code_key].clear()
    _take_turns(sample, fastest, _TURNS_AGAIN, rng, pool)


def _take_turns(
    sample: _Sample, candidates: Sequence[Built], turns: int, rng: np.random.Generator, pool: ProcessPool
) -> None:
    """Each candidate once a turn, in random order, the default in between; one that fails has no further turn."""
    for _ in range(turns):
        left = [one for one in candidates if one.code_key in sample.ratios]
        order = [left[i] for i in rng.permutation(len(left))]
        for first in range(0, len(order), EVERY):
            _time(sample, order[first : first + EVERY], pool)


def _time(sample: _Sample, candidates: Sequence[Built], pool: ProcessPool) -> None:
    """The default, then some candidates."""
    for _ in range(max(1, _BESIDE - len(sample.default_ns))):
        sample.default_ns.append(_time_default(sample, pool))
    beside = float(np.median(sample.default_ns[-_BESIDE:]))
    for one in candidates:
        measured = pool.measure(one, np.inf)
        sample.outcomes[one.code_key] = measured.outcome
        if measured.latency is None:
            del sample.ratios[one.code_key]
        else:
            sample.ratios[one.code_key].append(measured.latency_ns / beside)


def _time_default(sample: _Sample, pool: ProcessPool) -> float:
    measured = pool.measure(sample.built[0], np.inf)
    if measured.latency is None:
        raise MeasureError(f"the default of {sample.subject.names[0]} fails: {measured.message}")
    return measured.latency_ns


def _read_inside(
    samples: Sequence[_Sample],
    parts: Partition,
    subjects: Sequence[Subject],
    sites: Sequence[Site],
    effort: Effort,
    say: Say,
) -> None:
    """Read the fastest of each sample inside the model, with other candidates in each process."""
    make = factory("random", OnlineModel(None), 1)
    tasks = [Task(s.names, s.workload, s.space, Search(s.space, make, 0), s.default) for s in subjects]
    fastest = {sample.subject.workload.key: sample.fastest(effort.share) for sample in samples}
    rng = np.random.default_rng(effort.seed)
    target = samples[0].subject.space.target
    with (
        scratch_folder("autotune-replay-") as folder,
        Database(folder / "empty.db") as empty,
    ):
        model = MeasuredModel(parts, sites, target, empty, Preference(TOLERANCE), effort.seed)
        reader = InModelReader(Sites(tasks, sites), model)
        for number in range(effort.processes):
            for some in _batches(fastest, reader.most, rng):
                count = sum(map(len, some.values()))
                say(f"{parts.name}: reading {count} candidates inside it, {number + 1} of {effort.processes}")
                for key, readings in reader.read(some, lambda: False).readings.items():
                    next(s for s in samples if s.subject.workload.key == key).inside.extend(readings)


def _batches(
    candidates: Mapping[str, Sequence[Built]], most: int, rng: np.random.Generator
) -> Iterator[dict[str, list[Built]]]:
    """The candidates of all workloads in random order, so many of each at once."""
    shuffled = {key: [found[i] for i in rng.permutation(len(found))] for key, found in candidates.items()}
    for first in range(0, max(map(len, shuffled.values())), most):
        some = {key: found[first : first + most] for key, found in shuffled.items()}
        yield {key: found for key, found in some.items() if found}


def _recording(sample: _Sample, model: str, facts: Mapping[str, str]) -> CandidateRecording:
    import pandas

    subject, defaults = sample.subject, [reading.default_ns for reading in sample.inside]
    inside: dict[str, Estimate] = {}
    code_of = {built.trace_key: built.code_key for built in sample.built}
    for reading in sample.inside:
        code = code_of[reading.trace_key]
        inside[code] = inside.get(code, Estimate()) + reading
    rows = [_row(sample, built, inside.get(built.code_key)) for built in sample.built]
    return CandidateRecording(
        RecordingFacts(
            model=model,
            name=subject.names[0],
            workload=subject.workload.text,
            target=subject.space.target.to_json(),
            family=subject.space.family,
            size=subject.space.size(),
            default_ns=float(np.median(sample.default_ns)),
            default_inside_ns=float(np.median(defaults)) if defaults else None,
            machine={**facts, CORES: FREE if sample.undisturbed else NOT_FREE},
        ),
        pandas.DataFrame(rows, columns=list(COLUMNS)),
    )


def _row(sample: _Sample, built: Built, inside: Estimate | None) -> tuple[object, ...]:
    outcome = built.failed.outcome if built.failed else sample.outcomes[built.code_key]
    return (
        config_to_json(built.candidate.config),
        built.trace_key,
        built.code_key,
        outcome.value,
        sample.ratio(built),
        len(sample.ratios.get(built.code_key, ())),
        inside.mean if inside else np.nan,
        inside.rounds if inside else 0,
    )


__all__ = ["Effort", "record"]
